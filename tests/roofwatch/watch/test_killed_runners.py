"""Runners that are killed, that work at the same time, or whose server is away: nothing is measured
twice and nothing is lost.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.collector.outbox.http_client import TOKEN_VARIABLE
from roofwatch.db.agenda import list_jobs, request_job
from roofwatch.db.queries.runs import list_runs
from roofwatch.model.agenda import JobKind, PlannedJob, StoredJob
from roofwatch.model.record import RunRecord, Side
from tests.api.conftest import new_token, served
from tests.git_repository import commit_file, git, make_repository
from tests.roofwatch.bisection.slowed_repository import BENCHMARK, QUICK, SLOW

pytestmark = pytest.mark.slow

PROJECT = "watched"
_ARGUMENTS = ("--device", "cpu", "--no-static", "--branch", "HEAD", "--project", PROJECT, "--json")

KILLING = """
import importlib
import os
import signal
import sys

module_name, attribute, call_count = sys.argv[1:4]
owner = importlib.import_module(module_name)
*parents, name = attribute.split(".")
for parent in parents:
    owner = getattr(owner, parent)
real, calls = getattr(owner, name), []


def killing(*arguments, **keywords):
    calls.append(1)
    if len(calls) == int(call_count):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **keywords)


setattr(owner, name, killing)
sys.argv[1:] = sys.argv[4:]
from roofwatch.cli.main import main

main()
"""
"""Kills its own process at the numbered call of a function of the command."""

PHASES = {
    "planning": ("roofwatch.watch.runner", "make_agenda", 1),
    "building": ("roofwatch.watch.measuring", "measure", 1),
    "measuring": ("roofwatch.collector.runs.suite_run", "SuiteRun.take_block", 5),
    "writing": ("roofwatch.model.record", "RunRecord.write", 2),
    # the first call sends what was measured without a server
    "sending": ("roofwatch.watch.service", "Service.send", 2),
    "between jobs": ("roofwatch.watch.service", "Service.finish", 1),
}
_MEASURED_BEFORE_DEATH = {"sending", "between jobs"}


@dataclass(frozen=True)
class Runner:
    """A checkout of the repository with a folder of records, and a server to send them to if any."""

    repository: Path
    records: Path
    url: str

    def command(self, *options: str) -> list[str]:
        path = str(self.repository / "bench_total.py")
        return ["watch", path, "--records", str(self.records), *_ARGUMENTS, *options]

    def environment(self) -> dict[str, str]:
        server = {"ROOFWATCH_SERVER_URL": self.url} if self.url else {}
        return {**os.environ, **server, "NO_COLOR": "1"}

    def start(self, *options: str, script: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        program = script or ("from roofwatch.cli.main import main; main()",)
        return subprocess.Popen(
            [sys.executable, "-c", *program, *self.command(*options)],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str) -> None:
        process = self.start(*options)
        _, error = process.communicate()
        assert process.returncode in (0, 1), error

    def die(self, phase: str) -> None:
        module, attribute, count = PHASES[phase]
        process = self.start("--max-jobs", "1", script=(KILLING, module, attribute, str(count)))
        _, error = process.communicate()
        assert process.returncode == -signal.SIGKILL, error

    def read(self) -> list[RunRecord]:
        return [RunRecord.read(file) for file in sorted(self.records.glob("*.json*"))]


def stored_run_ids(store: Engine) -> list[str]:
    with Session(store) as session:
        return sorted(run.run_id for run in list_runs(session, PROJECT, None))


def stored_jobs(store: Engine) -> list[StoredJob]:
    with Session(store) as session:
        return list_jobs(session, PROJECT)


def whole_pairs(records: list[RunRecord]) -> Counter[tuple[str, str]]:
    """How often each two commits were measured as a pair, base and head."""
    sides: dict[str, dict[Side, str]] = {}
    for record in records:
        if record.pairing is not None:
            side_shas = sides.setdefault(str(record.pairing.pair_id), {})
            side_shas[record.pairing.side] = record.commit.sha
    return Counter(
        (shas[Side.BASE], shas[Side.HEAD]) for shas in sides.values() if len(shas) == len(Side)
    )


@pytest.fixture
def url(store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    token = new_token(store, project=PROJECT, now=datetime.now(UTC))
    monkeypatch.setenv(TOKEN_VARIABLE, token.text)
    monkeypatch.setenv("ROOFWATCH_DATA_DIR", str(tmp_path / "data"))
    with served(store) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a repository whose first commit was measured, and of the records."""
    root = tmp_path_factory.mktemp("measured")
    folder = make_repository(root / "watched")
    (folder / "bench_total.py").write_text(BENCHMARK)
    commit_file(folder, "work.py", QUICK, "Begin")
    Runner(folder, root / "records", url="").run("--max-jobs", "1")
    commit_file(folder, "work.py", SLOW, "Work ten times as much")
    return root


@pytest.fixture
def runner(tmp_path: Path, url: str, measured: Path) -> Runner:
    shutil.copytree(measured, tmp_path / "copy")
    return Runner(tmp_path / "copy" / "watched", tmp_path / "copy" / "records", url)


@pytest.mark.parametrize("phase", PHASES)
def test_a_runner_that_is_killed_loses_at_most_the_job_in_hand(
    phase: str, runner: Runner, store: Engine
) -> None:
    runner.die(phase)
    before = {record.run_id for record in runner.read()}
    is_measured = len(whole_pairs(runner.read())) == 1

    runner.run("--max-jobs", "1")

    records = runner.read()
    base, head = git(runner.repository, "rev-parse", "HEAD~1", "HEAD").split()
    assert is_measured == (phase in _MEASURED_BEFORE_DEATH)
    assert before <= {record.run_id for record in records}
    pair_count = whole_pairs(records)
    # after a death that lost nothing, the next job is the second pair of the same suspicion
    assert pair_count == {(base, head): 2 if is_measured else 1}
    assert stored_run_ids(store) == sorted(str(record.run_id) for record in records)
    assert all(job.leased_until is None or job.finished_at for job in stored_jobs(store))
    assert git(runner.repository, "worktree", "list").count("\n") <= 1


def test_two_runners_of_one_class_do_every_job_once(
    runner: Runner, store: Engine, tmp_path: Path
) -> None:
    second = Runner(runner.repository, tmp_path / "other records", runner.url)

    processes = [working.start("--max-jobs", "2") for working in (runner, second)]
    errors = [process.communicate()[1] for process in processes]
    assert all(process.returncode in (0, 1) for process in processes), errors
    runner.run("--max-jobs", "4")

    finished = Counter(job.key for job in stored_jobs(store) if job.finished_at is not None)
    confirmations = {key for key in finished if key.startswith("confirm:")}
    assert all(count == 1 for key, count in finished.items() if key not in confirmations)
    records = {str(record.run_id) for record in runner.read()}
    assert stored_run_ids(store) == sorted(records)
    # the change was paired twice: by the run of its commit, and by the one that confirms it
    base, head = git(runner.repository, "rev-parse", "HEAD~1", "HEAD").split()
    assert whole_pairs(runner.read())[base, head] == 2


def test_a_server_that_is_away_for_a_day_gets_everything_once(
    runner: Runner, store: Engine
) -> None:
    away = Runner(runner.repository, runner.records, "http://127.0.0.1:9")
    away.run("--max-jobs", "1")
    commit_file(runner.repository, "work.py", f"{SLOW}\nOTHER = 1", "Name a constant")
    away.run("--max-jobs", "1")
    stored_meanwhile = stored_run_ids(store)

    runner.run("--max-jobs", "1")

    records = runner.read()
    assert stored_meanwhile == []
    assert stored_run_ids(store) == sorted(str(record.run_id) for record in records)


def test_a_rewritten_branch_is_measured_once_beside_its_old_records(
    runner: Runner, store: Engine
) -> None:
    runner.run("--max-jobs", "2")
    before = stored_run_ids(store)
    git(runner.repository, "reset", "--quiet", "--hard", "HEAD~1")
    commit_file(runner.repository, "work.py", f"{QUICK}\nOTHER = 2", "Work as before")

    runner.run("--max-jobs", "1")
    runner.run("--max-jobs", "1", "--dry-run")

    base, head = git(runner.repository, "rev-parse", "HEAD~1", "HEAD").split()
    assert whole_pairs(runner.read())[base, head] == 1
    assert set(before) < set(stored_run_ids(store))


def test_what_a_person_asked_for_is_measured_before_the_plan(runner: Runner, store: Engine) -> None:
    runner.run("--max-jobs", "1")
    commit_file(runner.repository, "work.py", f"{SLOW}\nOTHER = 1", "Name a constant")
    base, head = git(runner.repository, "rev-parse", "HEAD~2", "HEAD").split()
    asked = PlannedJob(
        key=f"confirm:{base}:{head}",
        kind=JobKind.CONFIRM,
        reason="somebody asked for it",
        expected_s=10.0,
        base_sha=base,
        head_sha=head,
    )
    (runner_class,) = {job.runner_class for job in stored_jobs(store)}
    with Session(store) as session, session.begin():
        request_job(session, PROJECT, runner_class, asked)

    runner.run("--max-jobs", "1")

    assert whole_pairs(runner.read())[base, head] == 1
    (done,) = [job for job in stored_jobs(store) if job.key == asked.key]
    assert done.finished_at is not None
