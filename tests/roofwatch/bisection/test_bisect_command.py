"""`roofwatch bisect` on a real repository: interrupted, and requested in the database."""

import json
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from roofwatch.bisection.bisect import BisectPlan
from roofwatch.bisection.commits import list_commits, parse_series
from roofwatch.bisection.job import run_bisection
from roofwatch.bisection.stored import read_regression
from roofwatch.ci.bisect.search import SearchPlan
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.bisections import claim_bisection
from roofwatch.db.errors import StoreError
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.model.errors import GitError, JournalError, SuiteError
from roofwatch.model.triage import BisectionRange, BisectionState, CommitStatus
from tests.builders import (
    PROJECT,
    make_change_point,
    make_record,
    make_regression,
    make_series_key,
    sha_of,
)
from tests.databases import ingest_all, text_of
from tests.db.test_bisections import only, request
from tests.git_repository import commit_file, git, make_repository
from tests.roofwatch.bisection.slowed_repository import (
    BENCHMARK,
    QUICK,
    SERIES,
    SLOW,
    SlowedRepository,
    make_slowed_repository,
)
from tests.roofwatch.command import roofwatch, started_roofwatch
from tests.roofwatch.extras import only_with


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> SlowedRepository:
    return make_slowed_repository(tmp_path_factory.mktemp("bisect") / "slowed")


@pytest.mark.slow
def test_a_killed_bisection_resumes_without_measuring_twice(
    slowed: SlowedRepository, tmp_path: Path
) -> None:
    ends = ["--good", slowed.shas[0], "--bad", slowed.shas[-1], "--output", str(tmp_path)]
    command = ["bisect", str(slowed.benchmark), "--series", SERIES, *ends, "--device", "cpu"]
    program = [sys.executable, "-c", "from roofwatch.cli.main import main; main()", *command]
    with subprocess.Popen(
        program, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stderr is not None
        assert any("the bad end against the good end" in line for line in running.stderr)
        os.kill(running.pid, signal.SIGKILL)
    (before,) = json.loads(next(tmp_path.glob("*/bisection.json")).read_text())["steps"]

    done = roofwatch(*command, "--resume", "--json")

    assert done.status == 0, done.error
    found = done.parsed
    assert found["state"] == "found"
    assert (
        found["answer"]["first"]["sha"]
        == found["answer"]["last"]["sha"]
        == slowed.sha("Work ten times as much")
    )
    assert found["answer"]["first"]["author"] == "A. Author"
    assert found["answer"]["confidence"] >= 0.98
    assert found["answer"]["relative_interval"][0] > 1
    times = [datetime.fromisoformat(step["finished_at"]) for step in (before, found["steps"][0])]
    assert times[0] == times[1], "the ends were not measured again"
    commits = {known["commit"]["subject"]: known for known in found["commits"]}
    assert commits["Break the import"]["status"] == "skipped"
    assert "not today" in commits["Break the import"]["reason"]
    for identical in ("Say what it is", "Write a page", "Say that too"):
        assert (commits[identical]["status"], commits[identical]["pair_count"]) == ("same", 0)
    assert found["measurement_count"] == 2 * sum(known["pair_count"] for known in commits.values())
    assert len(git(slowed.folder, "worktree", "list").splitlines()) == 1, (
        "nor did the killed one leave any"
    )


@pytest.mark.slow
def test_a_bisection_needs_only_what_measures(slowed: SlowedRepository, tmp_path: Path) -> None:
    """The action installs no database client, and the job ended with "needs sqlalchemy"."""
    ends = ["--good", slowed.shas[0], "--bad", slowed.shas[-1], "--output", str(tmp_path)]
    command = ["bisect", str(slowed.benchmark), "--series", SERIES, *ends, "--device", "cpu"]

    done = started_roofwatch(*command, "--json", cwd=tmp_path, **only_with(tmp_path, "measure"))

    assert done.status == 0, done.error
    assert done.parsed["answer"]["first"]["sha"] == slowed.sha("Work ten times as much")


@pytest.mark.slow
def test_ends_with_the_same_sources_are_answered_without_measuring(
    slowed: SlowedRepository, tmp_path: Path
) -> None:
    said = slowed.sha("Say what it is")
    ends = ["--good", slowed.sha("Name a constant"), "--bad", said, "--output", str(tmp_path)]

    done = roofwatch("bisect", slowed.benchmark, "--series", SERIES, *ends, "--json")

    assert done.status == 1, done.error
    assert done.parsed["state"] == BisectionState.NO_CHANGE
    assert done.parsed["measurement_count"] == 0
    assert "the sources of the kernel are the same at both ends" in done.parsed["notes"][0]


@pytest.mark.slow
def test_history_from_before_the_benchmark_can_be_searched(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "young")
    texts = (QUICK, f"{QUICK}\nOTHER = 1", f"{SLOW}\nOTHER = 1", f"{SLOW}\nOTHER = 2")
    shas = [commit_file(folder, "work.py", text) for text in texts]
    commit_file(folder, "bench_total.py", BENCHMARK)
    command = (
        "bisect",
        "bench_total.py",
        "--series",
        SERIES,
        "--good",
        shas[0],
        "--bad",
        "HEAD",
        "--device",
        "cpu",
    )

    done = roofwatch(*command, "--output", str(tmp_path / "out"), "--json", cwd=folder)

    assert done.status == 0, done.error
    assert done.parsed["answer"]["first"]["sha"] == done.parsed["answer"]["last"]["sha"] == shas[2]
    refused = roofwatch(
        *command, "--output", str(tmp_path / "other"), "--suite-from", "each", cwd=folder
    )
    assert "bench_total.py: missing at" in refused.error


def test_the_result_of_a_requested_bisection_is_stored_by_who_claimed_it(
    slowed: SlowedRepository, tmp_path: Path, database_url: URL, store: Engine
) -> None:
    commit_range = BisectionRange(
        "slowed", SERIES, None, slowed.sha("Mend it"), slowed.sha("Write a page")
    )
    request(store, commit_range)
    places = ["--device", "cpu", "--output", str(tmp_path)]

    done = roofwatch(
        "bisect", slowed.benchmark, "--next", *places, ROOFWATCH_DATABASE_URL=text_of(database_url)
    )

    assert done.status == 0, done.error
    culprit = slowed.sha("Work ten times as much")
    assert (
        f"{culprit} is the first slower commit: Work ten times as much (A. Author)" in done.output
    )
    bisection = only(store)
    assert bisection.state is BisectionState.FOUND
    assert bisection.answer is not None
    assert bisection.answer.first.sha == culprit
    # only a page changed after it, so the ends are enough
    assert [known.status for known in bisection.progress.commits] == [
        CommitStatus.OPEN,
        CommitStatus.MEASURED,
    ]
    assert [step.pair_count >= 8 for step in bisection.progress.steps] == [True]


@pytest.mark.parametrize(
    ("there", "is_resumed", "message"),
    [
        ('{"commits": [], "steps": []}', False, "--resume continues it"),
        ('{"comm', True, "damaged, or written by another version"),
    ],
)
def test_an_existing_bisection_is_not_overwritten(
    slowed: SlowedRepository, tmp_path: Path, there: str, is_resumed: bool, message: str
) -> None:
    plan = BisectPlan(
        slowed.benchmark,
        BisectionRange("slowed", SERIES, None, slowed.shas[0], slowed.shas[-1]),
        RunPlan(),
        tmp_path,
        SearchPlan(),
        is_resumed=is_resumed,
    )
    file = plan.folder(list_commits(plan.path, slowed.shas[0], slowed.shas[-1])) / "bisection.json"
    file.parent.mkdir()
    file.write_text(there)

    with ForkServer() as fork_server, pytest.raises(JournalError, match=message):
        run_bisection(plan, fork_server)

    assert file.read_text() == there


def test_a_failed_bisection_is_stored_with_its_error(
    slowed: SlowedRepository, tmp_path: Path, store: Engine
) -> None:
    commit_range = BisectionRange("slowed", SERIES, None, sha_of(1), slowed.shas[-1])
    request(store, commit_range)
    claim = claim_bisection(store, "slowed", "any", uuid4())
    plan = BisectPlan(slowed.benchmark, commit_range, RunPlan(), tmp_path, SearchPlan())

    with ForkServer() as fork_server, pytest.raises(GitError):
        run_bisection(plan, fork_server, text_of(store.url), claim=claim)

    assert only(store).state is BisectionState.FAILED
    assert "git rev-parse" in only(store).note


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--series", SERIES], "name what to bisect"),
        (
            ["--series", SERIES, "--good", "HEAD", "--bad", "HEAD^"],
            "the good end must be the older",
        ),
    ],
)
def test_an_invalid_request_is_one_line(
    slowed: SlowedRepository, tmp_path: Path, wrong: list[str], message: str
) -> None:
    done = roofwatch("bisect", slowed.benchmark, *wrong, "--output", tmp_path)

    assert done.status == 2
    assert message in done.error
    assert len(done.error.splitlines()) == 1


def test_a_stored_regression_gives_the_range_to_bisect(
    store: Engine, database_url: URL, tmp_path: Path
) -> None:
    ingest_all(store, *map(make_record, range(8)))
    replace_regressions(store, PROJECT, [make_regression(4, change_points=(make_change_point(4),))])
    with Session(store) as session:
        (found,) = list_triaged(session, PROJECT)
    url = text_of(database_url)

    _, commit_range = read_regression(url, tmp_path, PROJECT, UUID(found.regression_id))

    assert commit_range is not None
    assert (commit_range.good_sha, commit_range.bad_sha) == (sha_of(1), sha_of(6))
    with pytest.raises(StoreError, match="not in project 'another'"):
        read_regression(url, tmp_path, "another", UUID(found.regression_id))


def test_a_stored_regression_of_compiled_code_has_no_time_to_bisect(
    store: Engine, database_url: URL, tmp_path: Path
) -> None:
    ingest_all(store, *map(make_record, range(8)))
    spilled = make_change_point(4, series=make_series_key("local_bytes", target="sm_90"))
    replace_regressions(store, PROJECT, [make_regression(4, change_points=(spilled,))])
    with Session(store) as session:
        (found,) = list_triaged(session, PROJECT)

    regression, commit_range = read_regression(
        text_of(database_url), tmp_path, PROJECT, UUID(found.regression_id)
    )

    assert regression.commit.sha == sha_of(4)
    assert commit_range is None


def test_a_series_is_a_case_whose_implementation_may_be_left_out() -> None:
    assert parse_series("total/n=500/float32/fwd") == ("total/n=500/float32/fwd", None)
    assert parse_series("total/n=500/float32/bwd/torch") == ("total/n=500/float32/bwd", "torch")
    for text in ("total", "total/n=500", "total/fwd/x/y", ""):
        with pytest.raises(SuiteError, match="write KERNEL/CASE/fwd"):
            parse_series(text)
