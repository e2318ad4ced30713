"""Stored results are the same from the database and through a real server."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine

from roofwatch.collector.git import run_git
from roofwatch.collector.outbox.http_client import HttpClient
from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.acceptances import store_acceptance
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.errors import RecordError, SpoolError
from roofwatch.model.history import RegressionState, Scope
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.record import RunRecord
from roofwatch.model.series_filter import SeriesFilter
from roofwatch.model.triage import TriageState
from roofwatch.store import server as server_module
from roofwatch.store.database_source import DatabaseSource
from roofwatch.store.reading import Source, choose_project, read_sides
from roofwatch.store.server import Server
from tests.api.conftest import served, token_of_today
from tests.builders import (
    CASE_ID,
    NOON,
    PROJECT,
    make_accuracy,
    make_environment,
    make_imported,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_regression,
    make_static_facts,
    sha_of,
)
from tests.ci.values import make_noisy_calibration
from tests.databases import ingest_all, set_triage, text_of
from tests.roofwatch.command import roofwatch

OTHER = "other/project"
STEP = "transformer_training/B=1,T=128/float32/fwd"


@dataclass(frozen=True)
class Filled:
    """A store of two projects, and a token that reads one of them."""

    engine: Engine
    token: str
    pair: tuple[RunRecord, RunRecord]
    aside: RunRecord


@pytest.fixture
def filled(store: Engine) -> Filled:
    facts = [make_static_facts(implementation="torch")]
    pair, slower = (
        make_pair_of_records(
            base, base + 1, head_median_ns=head_ns, block_count=5, static_facts=facts
        )
        for base, head_ns in ((1, 12_000.0), (5, 30_000.0))
    )
    metric = f"{SHARE_OF_STEP}_rms_norm_kernel"
    share = make_imported(
        STEP, metric=metric, statistic="value", unit="share", value=0.1, low=0.09, high=0.11
    )
    for number in range(4):
        outcome = Outcome.CRASHED if number == 1 else Outcome.OK
        record = make_record(
            number,
            measurements=[
                make_measurement(outcome=outcome),
                make_measurement(CASE_ID.replace("64", "65")),
            ],
            accuracies=[make_accuracy()],
            static_facts=[make_static_facts(code=f"version {number // 2}")],
            imported=[share],
        )
        ingest_record(store, record)
    aside = make_record(3)
    ingest_all(store, *pair, *slower, *make_noisy_calibration(), make_record(0, project=OTHER))
    ingest_record(store, aside, is_quarantined=True)
    replace_regressions(
        store, PROJECT, [make_regression(1, state=RegressionState.DISMISSED), make_regression(2)]
    )
    for number in (12, 13, 14):
        store_acceptance(
            store,
            PROJECT,
            PullRequestAcceptance(
                pull_request=f"#{number}",
                comment_id=number,
                head_sha=sha_of(number),
                person="maintainer",
                reason="needed for accuracy",
                accepted_at=NOON,
                most={"0123abcd": 0.25},
            ),
            "test",
        )
    decided = regression_id(make_regression(2))
    set_triage(
        store,
        PROJECT,
        decided,
        TriageState.EXPECTED,
        person="Example Engineer",
        reason="agreed",
        actor="test",
    )
    return Filled(store, token_of_today(store, Scope.READ), pair, aside)


QUESTIONS: dict[str, Callable[[Source], object]] = {
    "runs": lambda source: source.list_runs(PROJECT, 50),
    "some runs": lambda source: source.list_runs(PROJECT, 3),
    "runs in quarantine": lambda source: source.list_runs(PROJECT, 50, is_quarantined=True),
    "series": lambda source: source.read_series(SeriesFilter(PROJECT)),
    "series of pairs": lambda source: source.read_series(
        SeriesFilter(PROJECT, metric="median_ns", include_pairs=True)
    ),
    "series of one case": lambda source: source.read_series(
        SeriesFilter(PROJECT, kernel="rms_norm", case=CASE_ID)
    ),
    "no series": lambda source: source.read_series(
        SeriesFilter(PROJECT, kernel="no such kernel", include_dirty=True)
    ),
    "regressions": lambda source: source.list_regressions(PROJECT),
    "open regressions": lambda source: source.list_regressions(PROJECT, RegressionState.OPEN),
    "decided regressions": lambda source: source.list_regressions(
        PROJECT, triage=TriageState.EXPECTED
    ),
    "acceptances": lambda source: source.list_acceptances(PROJECT),
    "sides of a pair": lambda source: source.resolve_revisions(PROJECT, sha_of(1), sha_of(2)[:8]),
    "sides alone": lambda source: source.resolve_revisions(PROJECT, sha_of(0), sha_of(3)),
    "noise floor": lambda source: source.read_noise_floor(
        PROJECT, source.resolve_revisions(PROJECT, sha_of(1), sha_of(2))[1]
    ),
    "shares of steps": lambda source: source.list_step_shares(
        PROJECT, make_environment().runner_class
    ),
    "records": lambda source: [
        source.load_record(run_id)
        for run_id in source.resolve_revisions(PROJECT, sha_of(1), sha_of(2))
    ],
}


def test_every_question_has_the_answer_of_the_database_through_the_server_too(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server_module, "_PAGE_SIZE", 2)
    database = DatabaseSource(filled.engine)
    with served(filled.engine) as (host, port):
        server = Server(HttpClient(f"http://{host}:{port}", filled.token))
        for name, ask in QUESTIONS.items():
            answered = ask(database)
            assert answered or name == "no series", name
            assert ask(server) == answered, name
        assert (server.list_projects(), database.list_projects()) == ([PROJECT], [PROJECT, OTHER])
        for source in (server, database):
            with pytest.raises(
                (SpoolError, StoreError), match="0000: project example/project has no run of it"
            ):
                source.resolve_revisions(PROJECT, sha_of(0), "0000")
            with pytest.raises(StoreError, match="project of/nobody: no history is stored"):
                choose_project(source, "of/nobody")
        monkeypatch.chdir(tmp_path)
        assert choose_project(server, None) == PROJECT  # the token reads no other
        with pytest.raises(StoreError, match="name a project with --project"):
            choose_project(database, None)
        run_git(tmp_path, "init", "--quiet")
        run_git(tmp_path, "remote", "add", "origin", f"https://github.com/{OTHER}.git")
        assert choose_project(database, None) == OTHER
        with pytest.raises(SpoolError, match=f"HTTP 403: this token is for {PROJECT}"):
            server.list_runs(OTHER, 1)


@pytest.mark.slow
def test_commands_print_through_the_server_what_they_print_of_the_database(
    filled: Filled, database_url: URL, tmp_path: Path
) -> None:
    filled.pair[1].write(tmp_path / "head.json")
    commits = ("compare", sha_of(1), sha_of(2)[:7], "--project", PROJECT, "--json")
    anyway = (*commits, "--no-stored-floor")
    slower = ("compare", sha_of(5), sha_of(6), "--project", PROJECT, "--json")
    decided = ("show", "regressions", "--project", PROJECT)
    nothing = ("show", "series", "--project", PROJECT, "--kernel", "nobody_s", "--pairs")
    commands = {
        # 20 % is no more than this runner shows where nothing changed
        commits: 0,
        anyway: 1,
        ("compare", sha_of(3), "head.json", "--project", PROJECT): 2,
        ("report", *commits[1:-1]): 0,
        ("report", *anyway[1:-2], "--no-stored-floor"): 1,
        slower: 1,
        ("report", *slower[1:-1]): 1,
        ("show", "runs", "--project", PROJECT): 0,
        ("show", "series", "--project", PROJECT): 0,
        nothing: 0,
        decided: 0,
        (*decided, "--state", "open", "--triage", "expected", "--json"): 0,
        ("show", "acceptances", "--project", PROJECT): 0,
    }
    run = partial(roofwatch, cwd=tmp_path, ROOFWATCH_DATABASE_URL=text_of(database_url))
    from_database = {command: run(*command) for command in commands}
    with served(filled.engine) as (host, port):
        server = {"ROOFWATCH_SERVER_URL": f"http://{host}:{port}", "ROOFWATCH_TOKEN": filled.token}
        run = partial(roofwatch, cwd=tmp_path, **server)
        through_server = {command: run(*command) for command in commands}
        again = run(*commits)
        projects = run("show", "projects", "--json")

    assert {command: done.status for command, done in from_database.items()} == commands
    assert through_server == from_database
    assert again == from_database[commits]
    accepted = from_database["show", "acceptances", "--project", PROJECT].output
    assert all(word in accepted for word in ("#12", "maintainer", "needed for accuracy"))
    assert again.parsed["runs"] == [str(record.run_id) for record in filled.pair]
    assert again.parsed["judgement"]["noise_floor"]["case_count"] == 1
    assert from_database[anyway].parsed["judgement"]["noise_floor"] is None
    (predicted,) = from_database[slower].parsed["judgement"]["step_predictions"]
    assert predicted["subject"]["case_id"] == STEP
    assert math.expm1(predicted["log_ratio"]) == pytest.approx(2.0 * 0.1)
    assert "| +20% (" in from_database["report", *slower[1:-1]].output
    assert from_database[nothing].output.endswith(
        "has no such series; excluded: dirty work trees (--dirty)\n"
    )
    # a table wraps its cells
    words = from_database[decided].output.split()
    assert {"expected", "Example", "Engineer"} <= set(words)
    assert projects.parsed["projects"] == [PROJECT]


def test_stored_sides_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    make_record().write(tmp_path / "head.json")
    sides = (Path(sha_of(0)), tmp_path / "head.json")

    with pytest.raises(
        SpoolError,
        match=r"http://127\.0\.0\.1:9: no connection.*check that roofwatch api runs there",
    ):
        read_sides(*sides, project=PROJECT, url="http://127.0.0.1:9")
    with pytest.raises(RecordError, match="add --project"):
        read_sides(*sides, project=None, url="http://127.0.0.1:9")
    with pytest.raises(RecordError, match="no such file; add --project"):
        read_sides(*sides, project=None, url=None)
    with pytest.raises(RecordError, match="are files: leave --project out"):
        read_sides(sides[1], sides[1], project=PROJECT, url=None)
