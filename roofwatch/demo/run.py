"""Run the demo: measure, store, analyse, report and show sixteen commits."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.ci.history.history import unconfirmed
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.build.revision import suite_at_revision
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import Progress, RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.projects import delete_project
from roofwatch.demo.scenario import (
    BENCHMARK_FILE,
    CommitOutcome,
    make_repository,
    outcomes,
    outcomes_table,
)
from roofwatch.model.history import Regression
from roofwatch.model.record import RunRecord
from roofwatch.model.timing_method import SamplingPlan
from roofwatch.model.worker_protocol import Subject
from roofwatch.terminal import print_note, print_table, progress, write_text

PROJECT = "demo"
DATABASE = "database"
"""Folder of the database, kept between demos, because the server of a killed demo may still use it.
"""
_COMMENT = "comment.md"
_TEMPORARY = "tmp"
_MARKER = ".roofwatch-demo"
_SINGLE = RunPlan(device="cpu", block_count=5, sampling=SamplingPlan(warmup_ms=10, budget_ms=60))
# Evidence of all rounds adds up.
_CONFIRM = replace(
    _SINGLE, targets=(), block_count=8, sampling=SamplingPlan(warmup_ms=20, budget_ms=100)
)
_CONFIRM_ROUNDS = 5
_CONFIRM_BUDGET_S = 60.0
"""After this, remaining suspicions stay unconfirmed."""
_PULL_REQUEST = replace(_SINGLE, block_count=8)


class DemoError(Exception):
    """The demo cannot use this folder."""


@contextlib.contextmanager
def claimed(root: Path) -> Iterator[None]:
    """Lock a folder for this process, and empty it of an earlier demo.

    Raises:
        DemoError: the folder holds other files, cannot be written, or another demo runs in it.
    """
    if (
        root.exists()
        and not (root / _MARKER).exists()
        and (not root.is_dir() or any(root.iterdir()))
    ):
        raise DemoError(f"{root}: holds other files; choose an empty or new folder with --dir")
    try:
        root.mkdir(parents=True, exist_ok=True)
        marker = (root / _MARKER).open("a")
    except OSError as error:
        raise DemoError(
            f"{root}: cannot be written: {error.strerror}; choose another folder with --dir"
        ) from None
    with marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"{root}: another demo is running in it; choose another folder with --dir"
            ) from None
        for path in root.iterdir():
            if path.is_dir() and path.name != DATABASE:
                shutil.rmtree(path)
        (root / _COMMENT).unlink(missing_ok=True)
        (root / _TEMPORARY).mkdir()
        previous, tempfile.tempdir = tempfile.tempdir, str(root / _TEMPORARY)
        try:
            yield
        finally:
            tempfile.tempdir = previous


def run_demo(root: Path, *, serve: bool, port: int | None) -> int:
    """Run the demo in its own folder, replacing an earlier demo; 0 if exactly the planted changes
    were found, else 1.

    Raises:
        DemoError: the folder holds other files, or another demo runs in it.
    """
    root = root.absolute()
    with claimed(root), open_store(folder=root / DATABASE) as engine:
        delete_project(engine, PROJECT)
        write_text(root / "roofwatch.toml", settings_of(root))
        judged = _measure_and_judge(root, engine)
        print_table(outcomes_table(judged))
        all_well = all(outcome.is_correct for outcome in judged)
        print_note(
            "every planted change found, no false alarm"
            if all_well
            else "a planted change was missed, or a false alarm: see the table"
        )
        print_note(f"pull-request comment for the last commit: {root / _COMMENT}")
        if serve:
            from roofwatch.dashboard.serve import serve as serve_dashboard

            use_settings(root)
            serve_dashboard(
                port=port,
                on_ready=lambda address: print_note(f"dashboard: {address}   (stop with Ctrl-C)"),
            )
        else:
            print_note(f"show it: cd {root} && roofwatch dashboard")
    return 0 if all_well else 1


def settings_of(root: Path) -> str:
    """The settings file of the demo's folder."""
    return f"data_dir = {json.dumps(str(root / DATABASE))}\n"


def use_settings(root: Path) -> None:
    """Use only the settings of the demo's folder in this process: its current folder may have
    others.
    """
    for name in [name for name in os.environ if name.startswith("ROOFWATCH_")]:
        del os.environ[name]
    os.chdir(root)


def _measure_and_judge(root: Path, engine: Engine) -> list[CommitOutcome]:
    commits = make_repository(root / "repository")
    count = len(commits)
    # caches and temporary files of the workers stay in the folder
    environment = {
        "TRITON_CACHE_DIR": str(root / "cache" / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "cache" / "inductor"),
        "TMPDIR": str(root / _TEMPORARY),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with progress("demo") as show, ForkServer(environment) as fork_server:
        show(Progress(0, count + 2, "loading torch and Triton"))
        fork_server.load("triton")

        def record(
            name: str, plan: RunPlan, *shas: str, only: frozenset[Subject] | None = None
        ) -> tuple[RunRecord, ...]:
            """Measure one commit, or two as a pair; write and store the records."""
            with contextlib.ExitStack() as stack:
                benchmark = root / "repository" / BENCHMARK_FILE
                suites = [
                    stack.enter_context(suite_at_revision(benchmark, sha, project=PROJECT))
                    for sha in shas
                ]
                records = measure(suites, plan, fork_server=fork_server, only=only)
            for one in records:
                one.write(root / "records" / f"{name}-{one.commit.sha[:12]}.json")
                ingest_record(engine, one)
            return records

        for number, commit in enumerate(commits, start=1):
            show(
                Progress(
                    number - 1, count + 2, f"commit {number} of {count}: {commit.step.subject}"
                )
            )
            record(f"{number:02}", _SINGLE, commit.sha)
        show(Progress(count, count + 2, "analysing the history, confirming suspected changes"))
        regressions = _confirm(engine, record)
        show(
            Progress(
                count + 1,
                count + 2,
                "comparing the last commit with its base, for the pull-request comment",
            )
        )
        judgement = judge_pull_request(
            *record("pull-request", _PULL_REQUEST, commits[-2].sha, commits[-1].sha)
        )
        write_text(root / _COMMENT, to_markdown(judgement))
    return outcomes(commits, regressions)


def _confirm(engine: Engine, record: Callable[..., object]) -> list[Regression]:
    """Analyse the history, and measure suspected changes as pairs until none is left or the budget
    is spent.
    """
    deadline = time.monotonic() + _CONFIRM_BUDGET_S
    for number in range(1, _CONFIRM_ROUNDS + 1):
        suspected: dict[tuple[str, str], set[Subject]] = defaultdict(set)
        for step in unconfirmed(analyse_project(engine, PROJECT)):
            subject = Subject(step.series.case_id, step.series.implementation)
            suspected[step.previous_commit.sha, step.commit.sha].add(subject)
        for shas, subjects in suspected.items():
            if time.monotonic() > deadline:
                break
            plan = replace(
                _CONFIRM,
                kernels=tuple(sorted({subject.case_id.split("/")[0] for subject in subjects})),
            )
            record(f"confirm-{number}-{shas[1][:12]}", plan, *shas, only=frozenset(subjects))
    return analyse_project(engine, PROJECT)
