"""Run the demo: measure, store, analyse, report and show sixteen commits."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from roofwatch.ci.report.comment import to_markdown
from roofwatch.collector.run_plan import Progress
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.db.engine.session import open_store
from roofwatch.db.projects import delete_project
from roofwatch.demo.measuring import PROJECT, Measuring
from roofwatch.demo.scenario import CommitOutcome, make_repository, outcomes, outcomes_table
from roofwatch.terminal import print_note, print_table, progress, write_text

_MARKER = ".roofwatch-demo"


class DemoError(Exception):
    """The demo cannot use this folder."""


@dataclass(frozen=True)
class DemoFolder:
    """The folder that holds everything the demo makes."""

    root: Path

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def database(self) -> Path:
        """Kept between demos, because the server of a killed demo may still use it."""
        return self.root / "database"

    @property
    def comment(self) -> Path:
        return self.root / "comment.md"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    def worker_environment(self) -> dict[str, str]:
        """Variables that keep caches and temporary files of the workers in the folder."""
        return {
            "TRITON_CACHE_DIR": str(self.root / "cache" / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.root / "cache" / "inductor"),
            "TMPDIR": str(self.temporary),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def clear(self) -> None:
        for path in self.root.iterdir():
            if path.is_dir() and path != self.database:
                shutil.rmtree(path)
        self.comment.unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(root: Path) -> Iterator[DemoFolder]:
    """Lock a folder for this process, and empty it of an earlier demo.

    Raises:
        DemoError: the folder holds other files, cannot be written, or another demo runs in it.
    """
    if root.exists() and not (root / _MARKER).exists() and (not root.is_dir() or any(root.iterdir())):
        raise DemoError(f"{root}: holds other files; choose an empty or new folder with --dir")
    try:
        root.mkdir(parents=True, exist_ok=True)
        marker = (root / _MARKER).open("a")
    except OSError as error:
        raise DemoError(f"{root}: cannot be written: {error.strerror}; choose another folder with --dir") from None
    with marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"{root}: another demo is running in it; choose another folder with --dir") from None
        folder = DemoFolder(root)
        folder.clear()
        folder.temporary.mkdir()
        previous, tempfile.tempdir = tempfile.tempdir, str(folder.temporary)
        try:
            yield folder
        finally:
            tempfile.tempdir = previous


def run_demo(root: Path, *, serve: bool, port: int | None) -> int:
    """Run the demo in its own folder, replacing an earlier demo.

    Returns:
        0 if every planted change was found and no other commit was reported, else 1.

    Raises:
        DemoError: the folder holds other files, or another demo runs in it.
    """
    with claimed(root.absolute()) as folder, open_store(folder=folder.database) as engine:
        delete_project(engine, PROJECT)
        judged = _measure_and_judge(folder, engine)
        print_table(outcomes_table(judged))
        all_well = all(outcome.is_correct for outcome in judged)
        print_note(
            "every planted change found, no false alarm"
            if all_well
            else "a planted change was missed, or a false alarm: see the table"
        )
        print_note(f"pull-request comment for the last commit: {folder.comment}")
        if serve:
            _serve(folder, port)
        else:
            print_note(f"show it: ROOFWATCH_DATA_DIR={folder.database} roofwatch dashboard")
    return 0 if all_well else 1


def _measure_and_judge(folder: DemoFolder, engine: Engine) -> list[CommitOutcome]:
    commits = make_repository(folder.repository)
    count = len(commits)
    with progress("demo") as show, ForkServer(folder.worker_environment()) as fork_server:
        show(Progress(0, count + 2, "loading torch and Triton"))
        fork_server.warm_up()
        measuring = Measuring(folder.repository, folder.root / "work-trees", folder.records, engine, fork_server)
        for number, commit in enumerate(commits, start=1):
            show(Progress(number - 1, count + 2, f"commit {number} of {count}: {commit.step.subject}"))
            measuring.measure_commit(commit, f"{number:02}-{commit.sha[:12]}")
        show(Progress(count, count + 2, "analysing the history, confirming suspected changes"))
        regressions = measuring.confirm_suspicions()
        show(Progress(count + 1, count + 2, "comparing the last commit with its base, for the pull-request comment"))
        judgement = measuring.judge_pull_request(commits[-2], commits[-1])
        write_text(folder.comment, to_markdown(judgement))
    return outcomes(commits, regressions)


def _serve(folder: DemoFolder, port: int | None) -> None:
    from roofwatch.dashboard.serve import serve

    serve(
        port=port,
        data_dir=folder.database,
        database_url=None,
        on_ready=lambda address: print_note(f"dashboard: {address}   (stop with Ctrl-C)"),
    )
