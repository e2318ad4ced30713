"""Measure two revisions against each other, with more blocks for undecided cases, and calibrate the noise floor."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from roofwatch.arguments import suite_at
from roofwatch.ci.ab.compare import ERROR_RATE, look_number, looks_after
from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR, NoiseFloor, NoiseFloorError, noise_floor_of
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement, judge_pull_request
from roofwatch.ci.verdicts import Reason, Thresholds
from roofwatch.collector.errors import GitError
from roofwatch.collector.outbox.files import check_writable
from roofwatch.collector.outbox.journal import make_header
from roofwatch.collector.record.record import RunRecord, SkippedKernel
from roofwatch.collector.run import Progress, measure_pair
from roofwatch.collector.run_plan import Activity, RunPlan, Subject
from roofwatch.collector.suite import SuiteAt, suite_at_revision
from roofwatch.collector.timing.method import Preset
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measurement.run import resumable, write_records
from roofwatch.records import RECORD_SUFFIX
from roofwatch.terminal import progress

FIRST_BLOCKS = 8
"""Blocks per side before the first interim analysis; a verdict compares blocks, not samples."""

_SIDES = ("base", "head")
_MORE_BLOCKS_DECIDE = frozenset({Reason.NOISE, Reason.TOO_FEW_BLOCKS, Reason.MULTIPLICITY})
_NOISE_FLOOR_BLOCKS = 18
"""With so many blocks the relative error of a standard deviation is 1 / √(2 n), one sixth."""
_BLOCK_ACTIVITIES = (Activity.WARM_UP, Activity.TIMING, Activity.OVERHEAD)

Judge = Callable[[RunRecord, RunRecord], PullRequestJudgement]


@dataclass(frozen=True)
class PairPlan:
    """What to compare, and for how long.

    Args:
        path: Benchmark file or folder; None for the bundled suite, which has no other revision.
        revisions: Of base and head; None for the work tree.
        plan: What to measure; `block_count` blocks before the first interim analysis.
        helps: Whether more blocks would help a case.
        budget_s: Seconds for more blocks.
        output: Folder of the two records.
        is_resumed: Continue an interrupted job.
        is_discarded: Discard it.
        skipped: Kernels left out because the change cannot affect them, for the records.
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
    """The records of base and head, and their files."""

    records: tuple[RunRecord, RunRecord]
    files: tuple[Path, Path]


def measure_revisions(pair: PairPlan, judge: Judge, *, title: str) -> MeasuredPair:
    """Measure base and head in one job, and add blocks where they help.

    Raises:
        GitError: there is no such revision.
        CollectorError: a record cannot be written, or the machine or the suite cannot be measured.
    """
    check_writable(pair.output / "record.json")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-pair-")))
        base, head = (
            stack.enter_context(_suite(pair.path, revision, folder / side))
            for side, revision in zip(_SIDES, pair.revisions, strict=True)
        )
        names = [f"{side}-{suite.commit.sha[:12]}" for side, suite in zip(_SIDES, (base, head), strict=True)]
        header = make_header({"base": base, "head": head}, pair.plan, pair_id=uuid.uuid4())
        journal = stack.enter_context(
            resumable(pair.output / "-".join(names), header, is_resumed=pair.is_resumed, is_discarded=pair.is_discarded)
        )
        on_progress = stack.enter_context(progress(title))
        fork_server = stack.enter_context(ForkServer())
        more = AdaptiveBlocks(
            judge,
            pair.helps,
            budget_s=pair.budget_s,
            on_status=lambda text: on_progress(Progress(0, 0, text, is_to_stay=True)),
        )
        measured = measure_pair(
            base, head, pair.plan, fork_server=fork_server, more=more, on_progress=on_progress, journal=journal
        )
        first, second = (record.model_copy(update={"skipped": pair.skipped}) for record in measured)
        files = pair.output / f"{names[0]}{RECORD_SUFFIX}", pair.output / f"{names[1]}{RECORD_SUFFIX}"
        write_records([(files[0], first), (files[1], second)])
        journal.remove()
    return MeasuredPair((first, second), files)


def _suite(path: Path | None, revision: str | None, folder: Path) -> AbstractContextManager[SuiteAt]:
    if revision is None:
        return nullcontext(suite_at(path, None))
    if path is None:
        raise GitError("the bundled suite has no revisions: give the path of a benchmark")
    return suite_at_revision(path, revision, folder)


def is_undecided(case: CaseJudgement) -> bool:
    """Whether more blocks may give a verdict."""
    return case.reason in _MORE_BLOCKS_DECIDE


def needs_more(case: CaseJudgement) -> bool:
    """Whether a case is undecided, or its change needs confirmation after the first interim analysis."""
    return is_undecided(case) or (_has_change(case) and look_number(_block_count(case)) == 1)


def is_noise_floor_unknown(case: CaseJudgement) -> bool:
    """Whether more blocks would noticeably improve the estimate of a case's noise."""
    return case.comparison is not None and case.comparison.block_count < _NOISE_FLOOR_BLOCKS


class AdaptiveBlocks:
    """Decides after each interim analysis which cases get more blocks: those closest to a verdict, while time is left.

    The analyses are those of `roofwatch.ci.ab.compare`, so verdicts remain valid.

    Args:
        judge: Compares the two records.
        helps: Whether more blocks would help a case.
        budget_s: Seconds for more blocks, from the first analysis on.
        on_status: Called with a status line.
        clock: Monotonic, in seconds.
    """

    def __init__(
        self,
        judge: Judge,
        helps: Callable[[CaseJudgement], bool],
        *,
        budget_s: float,
        on_status: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._judge = judge
        self._helps = helps
        self._budget_s = budget_s
        self._on_status = on_status
        self._clock = clock
        self._deadline_s: float | None = None

    def __call__(self, base: RunRecord, head: RunRecord) -> Mapping[Subject, int]:
        """Number of blocks per side for each case that gets more."""
        if self._deadline_s is None:
            self._deadline_s = self._clock() + self._budget_s
        cases = [case for case in self._judge(base, head).cases if case.comparison is not None]
        open_cases = sorted(filter(self._helps, cases), key=_blocks_to_go)
        left_s = self._deadline_s - self._clock()
        wanted = _affordable(open_cases, left_s, seconds_per_pair=_seconds_per_pair(base, head))
        self._on_status(_status(len(cases), len(open_cases), len(wanted), left_s))
        return wanted


def _has_change(case: CaseJudgement) -> bool:
    return case.reason is Reason.BEYOND_THRESHOLD and case.comparison is not None


def _block_count(case: CaseJudgement) -> int:
    """Blocks per side, including excluded ones."""
    return 0 if case.comparison is None else case.comparison.block_count + len(case.left_out)


def _blocks_to_go(case: CaseJudgement) -> float:
    if _has_change(case):
        return 0.0
    if case.comparison is None or case.comparison.more_blocks is None:
        return math.inf
    return case.comparison.more_blocks


def _affordable(open_cases: list[CaseJudgement], left_s: float, *, seconds_per_pair: float) -> dict[Subject, int]:
    """Blocks up to the next interim analysis for as many cases as the time allows."""
    wanted: dict[Subject, int] = {}
    for case in open_cases:
        count = _block_count(case)
        next_look = next(islice(looks_after(count), 1))
        left_s -= (next_look - count) * seconds_per_pair
        if left_s < 0:
            break
        wanted[Subject(case.case_id, case.implementation)] = next_look
    return wanted


def _seconds_per_pair(base: RunRecord, head: RunRecord) -> float:
    """Mean time of a block on both sides so far."""
    records = (base, head)
    spent_ns = sum(record.spent_ns.get(activity, 0) for record in records for activity in _BLOCK_ACTIVITIES)
    blocks = sum(len(measured.blocks) for record in records for measured in record.measurements)
    return 2 * spent_ns / 1e9 / max(1, blocks)


def _status(judged: int, still_open: int, wanted: int, left_s: float) -> str:
    decided = f"{judged - still_open} of {judged} decided"
    if not still_open:
        return decided
    left = f"{max(0.0, left_s):.0f} s left"
    if not wanted:
        return f"{decided}, {still_open} open; {left}, not enough for another block"
    return f"{decided}, {still_open} open, {wanted} of them get more blocks; {left}"


def noise_floor(base: RunRecord, head: RunRecord, thresholds: Thresholds, *, preset: Preset) -> NoiseFloor:
    """Noise floor from two measurements of one commit, sampled with a preset."""
    judged = judge_pull_request(base, head, thresholds)
    comparisons = {
        (case.case_id, case.implementation): case.comparison for case in judged.cases if case.comparison is not None
    }
    floor = noise_floor_of(head, comparisons, threshold=thresholds.relative_change)
    return floor.model_copy(update={"preset": preset})


def read_noise_floor(file: Path | None, preset: Preset | None = None) -> NoiseFloor | None:
    """Read a file written by `roofwatch calibrate`; None for None.

    Args:
        file: To read.
        preset: Sampling that the floor must match; None skips the check.

    Raises:
        NoiseFloorError: the file cannot be read, is not a noise floor, or was sampled differently.
    """
    if file is None:
        return None
    try:
        floor = NoiseFloor.parse(file.read_bytes())
        if preset is not None:
            floor.require_same_sampling(preset)
    except OSError as error:
        raise NoiseFloorError(f"{file}: cannot be read: {error.strerror}") from None
    except NoiseFloorError as error:
        raise NoiseFloorError(f"{file}: {error}") from None
    return floor


def noise_floor_summary(noise: NoiseFloor) -> Iterator[str]:
    """Explain a noise floor, line by line."""
    if not noise.cases:
        yield "nothing was timed, so the noise of this runner is unknown"
        return
    floors = [case.noise_floor for case in noise.cases]
    yield (
        f"noise floor of {len(floors)} cases on {noise.runner_class}: median {statistics.median(floors):.2%}, "
        f"maximum {max(floors):.2%}; a change must exceed {FLOOR_FACTOR:g} times the floor of its case"
    )
    significant_count = sum(case.is_significant for case in noise.cases)
    yield (
        f"false alarms: {sum(case.is_false_alarm for case in noise.cases)} of {len(floors)} cases; {significant_count} "
        f"intervals exclude zero change, at most {ERROR_RATE * len(floors):.1f} expected"
    )
