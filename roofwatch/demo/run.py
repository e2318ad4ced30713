"""The main job, end to end and for real: sixteen commits are measured, kept, judged, reported and shown."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine

from ci.history import PairRequest, unconfirmed
from ci.judge import judge_project
from ci.pull_request import judge_pull_request
from ci.report import to_markdown
from collector.git import checked_out, read_commit
from collector.record import RunRecord
from collector.run import SuiteAt, collect_run, measure_pair
from collector.sampling import SamplingPlan
from collector.suite_run import RunPlan, Subject
from collector.suite_source import SuiteSource
from db.ingest import ingest_record
from db.projects import delete_project
from db.session import open_store
from db.values import Regression
from roofwatch.demo.outcome import CommitOutcome, outcomes, outcomes_table
from roofwatch.demo.scenario import BENCHMARK_FILE, make_repository
from roofwatch.terminal import console, print_note, print_table, write_text

PROJECT = "demo"
_MARKER = ".roofwatch-demo"
_OWN = ("repository", "work-trees", "records", "cache", "tmp", "comment.md")
_REMEASURE_ROUNDS = 5


class DemoError(Exception):
    """The demo cannot run in the folder that it was given."""


@dataclass(frozen=True)
class _Folder:
    root: Path

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def work_trees(self) -> Path:
        return self.root / "work-trees"

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def database(self) -> Path:
        return self.root / "database"

    @property
    def comment(self) -> Path:
        return self.root / "comment.md"

    @property
    def worker_environment(self) -> Mapping[str, str]:
        """Keeps caches and temporary files of the workers inside the folder."""
        return {
            "TRITON_CACHE_DIR": str(self.root / "cache" / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.root / "cache" / "inductor"),
            "TMPDIR": str(self.root / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def run_demo(root: Path, *, serve: bool, port: int | None) -> int:
    """Run the demo in a folder of its own; what an earlier run left there, killed or not, is replaced.

    Returns:
        0 if every planted change was found and no other commit accused, else 1.

    Raises:
        DemoError: the folder holds something else, or another demo runs in it.
    """
    folder = _Folder(root.absolute())
    with _claimed(folder), open_store(folder=folder.database) as engine:
        delete_project(engine, PROJECT)
        with _progress() as bar:
            judged = _measure_and_judge(folder, engine, bar)
        print_table(outcomes_table(judged))
        all_well = all(outcome.is_well for outcome in judged)
        print_note(f"pull-request comment for the last commit: {folder.comment}")
        print_note(
            "every planted change found, no other commit accused" if all_well else "not all is well: see the table"
        )
        if serve:
            from dashboard.serve import serve as serve_dashboard

            serve_dashboard(
                port=port,
                data_dir=folder.database,
                database_url=None,
                on_ready=lambda address: print_note(f"dashboard: {address}   (Ctrl-C ends it)"),
            )
        else:
            print_note(f"look at it: ROOFWATCH_DATA_DIR={folder.database} roofwatch dashboard")
    return 0 if all_well else 1


def _measure_and_judge(folder: _Folder, engine: Engine, bar: Progress) -> list[CommitOutcome]:
    plan = RunPlan(
        extra_environment=folder.worker_environment, sampling=SamplingPlan(warmup_ms=10, budget_ms=60), device="cpu"
    )
    commits = make_repository(folder.repository)
    task = bar.add_task("measuring", total=len(commits) + 2)
    for number, commit in enumerate(commits, start=1):
        bar.update(task, description=f"commit {number} of {len(commits)}: {commit.step.subject}")
        with _suite_at(folder, commit.sha) as suite:
            record = collect_run(suite, plan)
        _keep(folder, engine, record, f"{number:02}-{commit.sha[:12]}")
        bar.advance(task)
    bar.update(task, description="judging the history, measuring again what it suspects")
    regressions = _judge_until_sure(folder, engine, plan)
    bar.advance(task)
    bar.update(task, description="measuring the last commit against its base for the pull-request comment")
    base, head = _measure_pair(folder, commits[-2].sha, commits[-1].sha, replace(plan, block_count=5), None)
    write_text(folder.comment, to_markdown(judge_pull_request(base, head)))
    for record in (base, head):
        _keep(folder, engine, record, f"pull-request-{record.commit.sha[:12]}")
    bar.advance(task)
    return outcomes(commits, regressions)


def _judge_until_sure(folder: _Folder, engine: Engine, plan: RunPlan) -> list[Regression]:
    """Judge the history; measure every suspicion again, base against head, until none is left or it stays open."""
    # blocks of every round add up, so a suspicion that one round leaves open meets more evidence in the next
    timing_plan = replace(plan, targets=(), block_count=6, sampling=SamplingPlan(warmup_ms=20, budget_ms=150))
    for round_number in range(1, _REMEASURE_ROUNDS + 1):
        requests = unconfirmed(judge_project(engine, PROJECT))
        if not requests:
            break
        for (base_sha, head_sha), together in _by_commits(requests).items():
            only = frozenset(Subject(request.case_id, request.implementation) for request in together)
            pair = _measure_pair(folder, base_sha, head_sha, timing_plan, only)
            for record in pair:
                _keep(folder, engine, record, f"again-{round_number}-{head_sha[:12]}-{record.commit.sha[:12]}")
    return judge_project(engine, PROJECT)


def _by_commits(requests: Sequence[PairRequest]) -> dict[tuple[str, str], list[PairRequest]]:
    grouped: dict[tuple[str, str], list[PairRequest]] = defaultdict(list)
    for request in requests:
        grouped[request.base.sha, request.head.sha].append(request)
    return grouped


def _measure_pair(
    folder: _Folder, base_sha: str, head_sha: str, plan: RunPlan, only: frozenset[Subject] | None
) -> tuple[RunRecord, RunRecord]:
    if only is not None:
        kernels = tuple(sorted({subject.case_id.split("/")[0] for subject in only}))
        implementations = tuple(sorted({subject.implementation for subject in only}))
        plan = replace(plan, kernels=kernels, implementations=implementations)
    with _suite_at(folder, base_sha) as base, _suite_at(folder, head_sha) as head:
        return measure_pair(base, head, plan, only=only)


@contextlib.contextmanager
def _suite_at(folder: _Folder, sha: str) -> Iterator[SuiteAt]:
    with checked_out(folder.repository, sha, folder.work_trees / sha[:12]) as work_tree:
        source = SuiteSource(work_tree / BENCHMARK_FILE, (work_tree,))
        yield SuiteAt(source, read_commit(work_tree), PROJECT)


def _keep(folder: _Folder, engine: Engine, record: RunRecord, name: str) -> None:
    record.write(folder.records / f"{name}.json")
    ingest_record(engine, record)


@contextlib.contextmanager
def _claimed(folder: _Folder) -> Iterator[None]:
    """Hold the folder for this process alone, emptied of what an earlier demo made."""
    root = folder.root
    if root.exists() and not (root / _MARKER).exists() and (not root.is_dir() or any(root.iterdir())):
        raise DemoError(f"{root}: holds something else; name an empty or new folder with --dir")
    try:
        root.mkdir(parents=True, exist_ok=True)
        marker = (root / _MARKER).open("a")
    except OSError as error:
        raise DemoError(f"{root}: cannot be written: {error.strerror}; name another folder with --dir") from None
    with marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"{root}: another demo is running in it; name another folder with --dir") from None
        for name in _OWN:
            path = root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        (root / "tmp").mkdir()
        previous, tempfile.tempdir = tempfile.tempdir, str(root / "tmp")
        try:
            yield
        finally:
            tempfile.tempdir = previous


def _progress() -> Progress:
    shown = console()
    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=shown,
    )
