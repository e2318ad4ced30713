"""Two revisions of a suite measured against each other, their records kept."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

from roofwatch.arguments import suite_at
from roofwatch.ci.report.pull_request import CaseJudgement
from roofwatch.collector.errors import GitError
from roofwatch.collector.outbox.files import check_writable
from roofwatch.collector.outbox.journal import make_header
from roofwatch.collector.record.record import RunRecord, SkippedKernel
from roofwatch.collector.run import OnProgress, Progress, measure_pair
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt, suite_at_revision
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measuring.undecided import Judge, MoreWhileItHelps
from roofwatch.measuring.unfinished import kept
from roofwatch.records import RECORD_SUFFIX
from roofwatch.terminal import progress

_SIDES = ("base", "head")
FIRST_BLOCKS = 8
"""On each side, whatever the sampling: a verdict rests on pairs of blocks and not on samples."""


@dataclass(frozen=True)
class PairPlan:
    """What to measure against what, and how long.

    Args:
        path: Benchmark file or folder; None for the suite that comes with roofwatch, which has no other revision.
        revisions: Of base and head; None for the work tree as it is.
        plan: What of it; `block_count` is the number of blocks before the first look.
        helps: Whether more blocks would help a case, after a look.
        budget_s: Seconds for them.
        output: Folder of the two records.
        is_resumed: Go on with a job that was cut short there.
        is_discarded: Forget it.
        skipped: Kernels that are left out because they cannot differ, for the records to say so.
    """

    path: Path | None
    revisions: tuple[str | None, str | None]
    plan: RunPlan
    helps: Callable[[CaseJudgement], bool]
    budget_s: float
    output: Path
    is_resumed: bool = False
    is_discarded: bool = False
    skipped: tuple[SkippedKernel, ...] = ()


@dataclass(frozen=True)
class MeasuredPair:
    """The records of base and head, and the files they are in."""

    records: tuple[RunRecord, RunRecord]
    files: tuple[Path, Path]


def measure_revisions(asked: PairPlan, judge: Judge, *, title: str) -> MeasuredPair:
    """Measure base and head in one job, look, and measure on where it helps.

    Raises:
        GitError: there is no such revision.
        CollectorError: a record cannot be written, or the machine or the suite not measured.
    """
    check_writable(asked.output / "record.json")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-pair-")))
        base, head = (
            stack.enter_context(_suite(asked.path, revision, folder / side))
            for side, revision in zip(_SIDES, asked.revisions, strict=True)
        )
        names = [f"{side}-{suite.commit.sha[:12]}" for side, suite in zip(_SIDES, (base, head), strict=True)]
        header = make_header({"base": base, "head": head}, asked.plan, pair_id=uuid.uuid4())
        journal = stack.enter_context(
            kept(asked.output / "-".join(names), header, is_resumed=asked.is_resumed, is_discarded=asked.is_discarded)
        )
        on_progress = stack.enter_context(progress(title))
        fork_server = stack.enter_context(ForkServer())
        base_record, head_record = measure_pair(
            base,
            head,
            asked.plan,
            fork_server=fork_server,
            more=MoreWhileItHelps(judge, asked.helps, budget_s=asked.budget_s, say=_noting(on_progress)),
            on_progress=on_progress,
            journal=journal,
        )
        said = {"skipped": asked.skipped}
        records = base_record.model_copy(update=said), head_record.model_copy(update=said)
        files = asked.output / f"{names[0]}{RECORD_SUFFIX}", asked.output / f"{names[1]}{RECORD_SUFFIX}"
        for file, record in zip(files, records, strict=True):
            record.write(file)
        journal.remove()
    return MeasuredPair(records, files)


def _suite(path: Path | None, revision: str | None, folder: Path) -> AbstractContextManager[SuiteAt]:
    if revision is None:
        return nullcontext(suite_at(path, None))
    if path is None:
        raise GitError("the suite that comes with roofwatch has no revisions: give the path of a benchmark")
    return suite_at_revision(path, revision, folder)


def _noting(on_progress: OnProgress) -> Callable[[str], None]:
    return lambda text: on_progress(Progress(0, 0, text, is_to_stay=True))
