"""Run the demo: watch a repository grow by sixteen commits, store and show what was found."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine

from roofwatch.ci.history.analyse import analyse_project
from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.runs.run_plan import Progress, RunPlan
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.console.terminal import print_note, print_table, progress, write_text
from roofwatch.db.engine.session import open_store
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.projects import delete_project
from roofwatch.demo.scenario import (
    BENCHMARK_FILE,
    STEPS,
    CommitOutcome,
    MadeCommit,
    begin_repository,
    commit_step,
    outcomes,
    outcomes_table,
)
from roofwatch.model.agenda import JobKind
from roofwatch.model.record import RunRecord
from roofwatch.model.timing_method import SamplingPlan
from roofwatch.watch.branch import Branch
from roofwatch.watch.runner import Watch

PROJECT = "demo"
DATABASE = "database"
"""Folder of the database, kept between demos, because the server of a killed demo may still use it.
"""
_COMMENT = "comment.md"
_TEMPORARY = "tmp"
_MARKER = ".roofwatch-demo"
_PLAN = RunPlan(device="cpu", block_count=5, sampling=SamplingPlan(warmup_ms=10, budget_ms=60))
_BUDGET_S = 120.0
"""For the jobs after one commit; what is left is done after the next."""


class DemoError(Exception):
    """The demo cannot use this folder."""


@contextlib.contextmanager
def claimed(root: Path) -> Iterator[None]:
    """Lock a folder for this process, and empty it of an earlier demo.

    Raises:
        DemoError: the folder holds other files, cannot be written, or another demo runs in it.
    """
    # a demo empties its folder, which may be somebody's
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
        # the database stays: starting one takes longest
        for path in root.iterdir():
            if path.is_dir() and path.name != DATABASE:
                shutil.rmtree(path)
        (root / _COMMENT).unlink(missing_ok=True)
        (root / _TEMPORARY).mkdir()
        previous = tempfile.tempdir
        tempfile.tempdir = str(root / _TEMPORARY)
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
        summary = "a planted change was missed, or a false alarm: see the table"
        if all_well:
            summary = "every planted change found, no false alarm"
        print_note(summary)
        print_note(f"pull-request comment for the last change: {root / _COMMENT}")
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
    """Commit one step after another, and let `watch` measure what each needs."""
    repository = root / "repository"
    watched: Watch | None = None
    count = len(STEPS)
    # caches and temporary files of the workers stay in the folder
    environment = {
        "TRITON_CACHE_DIR": str(root / "cache" / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "cache" / "inductor"),
        "TMPDIR": str(root / _TEMPORARY),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with progress("demo") as show, ForkServer(environment) as fork_server:
        show(Progress(0, count + 1, "loading torch and Triton"))
        fork_server.load("triton")

        made: list[MadeCommit] = []
        pair: list[RunRecord] = []
        begin_repository(repository)
        for number, step in enumerate(STEPS, start=1):
            made.append(commit_step(repository, number - 1))
            if watched is None:
                watched = _watch(root, fork_server)
            show(Progress(number - 1, count + 1, f"commit {number} of {count}: {step.subject}"))
            for done in watched.run(budget_s=_BUDGET_S):
                records = [RunRecord.read(Path(file)) for file in done.files]
                for record in records:
                    ingest_record(engine, record)
                if done.job.kind is JobKind.NEW and len(records) == 2:
                    pair = records
            news = watched.news()
            for message in news:
                text = f"commit {number}: {message.kind}: {message.text}"
                show(
                    Progress(
                        done=number,
                        total=count + 1,
                        text=text,
                        is_to_stay=True,
                    )
                )
            watched.ledger.add(news)
        show(Progress(count, count + 1, "analysing the history"))
        regressions = analyse_project(engine, PROJECT)
    if pair:
        write_text(root / _COMMENT, to_markdown(judge_pull_request(*pair)))
    return outcomes(made, regressions)


def _watch(root: Path, fork_server: ForkServer) -> Watch:
    benchmark = root / "repository" / BENCHMARK_FILE
    return Watch(
        branch=Branch(
            path=benchmark,
            name="main",
            commit_range=None,
            fork_server=fork_server,
        ),
        project=PROJECT,
        plan=_PLAN,
        records=root / "records",
        fork_server=fork_server,
        # a few commits need no noise floor
        kinds=frozenset(JobKind) - {JobKind.CALIBRATE},
    )
