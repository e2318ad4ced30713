"""Measure two revisions against each other, with more blocks for undecided cases, and calibrate the noise floor."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from roofwatch.ci.ab.compare import ERROR_RATE, look_number, looks_after
from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR, NoiseFloor, NoiseFloorError, noise_floor_of
from roofwatch.ci.report.pull_request import CaseJudgement, PullRequestJudgement, judge_pull_request
from roofwatch.ci.verdicts import Reason
from roofwatch.collector.outbox.files import check_writable
from roofwatch.collector.outbox.journal import make_header
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run import measure
from roofwatch.collector.run_plan import Activity, Progress, RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.timing.method import Preset
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import Subject
from roofwatch.measurement.run import resumable
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


def measure_revisions(
    base: SuiteAt,
    head: SuiteAt,
    plan: RunPlan,
    *,
    fork_server: ForkServer,
    judge: Judge,
    helps: Callable[[CaseJudgement], bool],
    budget_s: float,
    output: Path,
    title: str,
    skipped: tuple[str, ...] = (),
    is_resumed: bool = False,
) -> list[tuple[Path, RunRecord]]:
    """Measure base and head in one job, and add blocks for `budget_s` seconds where they help.

    `helps` tells whether more blocks would help a case. An interrupted job in the output folder is continued if
    asked. The records name the kernels that were skipped.

    Returns:
        Base and head, each with its file.

    Raises:
        CollectorError: a record cannot be written, or the machine or the suite cannot be measured.
    """
    check_writable(output / "record.json")
    names = [f"{side}-{suite.commit.sha[:12]}" for side, suite in zip(_SIDES, (base, head), strict=True)]
    header = make_header({"base": base, "head": head}, plan)
    with (
        resumable(output / "-".join(names), header, is_resumed=is_resumed) as journal,
        progress(title) as on_progress,
    ):

        def note(text: str) -> None:
            on_progress(Progress(0, 0, text, is_to_stay=True))

        note(f"undecided cases are measured for up to {budget_s:.0f} s more (--budget)")
        more = AdaptiveBlocks(judge, helps, budget_s, note)
        measured = measure([base, head], plan, on_progress, fork_server=fork_server, more=more, journal=journal)
        written = [
            (output / f"{name}{RECORD_SUFFIX}", record.model_copy(update={"skipped": skipped}))
            for name, record in zip(names, measured, strict=True)
        ]
        for path, record in written:
            record.write(path)
        journal.remove()
    return written


def is_undecided(case: CaseJudgement) -> bool:
    """Whether more blocks may give a verdict."""
    return case.reason in _MORE_BLOCKS_DECIDE


def needs_more(case: CaseJudgement) -> bool:
    """Whether a case is undecided, or its change needs confirmation after the first interim analysis."""
    return is_undecided(case) or (_has_change(case) and look_number(_block_count(case)) == 1)


def is_noise_floor_unknown(case: CaseJudgement) -> bool:
    """Whether more blocks would noticeably improve the estimate of a case's noise."""
    return case.comparison is not None and case.comparison.block_count < _NOISE_FLOOR_BLOCKS


@dataclass
class AdaptiveBlocks:
    """Decides after each interim analysis which cases get more blocks: those closest to a verdict, while time is left.

    The analyses are those of `roofwatch.ci.ab.compare`, so verdicts remain valid.
    """

    judge: Judge
    helps: Callable[[CaseJudgement], bool]
    """Whether more blocks would help a case."""
    budget_s: float
    """Time for more blocks, from the first analysis on."""
    on_status: Callable[[str], None]
    """Called with a status line."""
    clock: Callable[[], float] = time.monotonic
    deadline_s: float | None = field(default=None, init=False)

    def __call__(self, base: RunRecord, head: RunRecord) -> Mapping[Subject, int]:
        """Number of blocks per side for each case that gets more."""
        if self.deadline_s is None:
            self.deadline_s = self.clock() + self.budget_s
        cases = [case for case in self.judge(base, head).cases if case.comparison is not None]
        open_cases = sorted(filter(self.helps, cases), key=_blocks_to_go)
        left_s = self.deadline_s - self.clock()
        wanted = _affordable(open_cases, left_s, seconds_per_pair=_seconds_per_pair(base, head))
        status = f"{len(cases) - len(open_cases)} of {len(cases)} decided"
        if open_cases:
            left = f"{max(0.0, left_s):.0f} s left"
            more = f"; {left}, not enough for another block"
            if wanted:
                more = f", {len(wanted)} of them get more blocks; {left}"
            status += f", {len(open_cases)} open{more}"
        self.on_status(status)
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


def noise_floor(base: RunRecord, head: RunRecord, *, preset: Preset) -> NoiseFloor:
    """Noise floor from two measurements of one commit, sampled with a preset."""
    judged = judge_pull_request(base, head)
    comparisons = {
        (case.case_id, case.implementation): case.comparison for case in judged.cases if case.comparison is not None
    }
    return noise_floor_of(head, comparisons, preset)


def read_noise_floor(file: Path | None, preset: Preset | None = None) -> NoiseFloor | None:
    """Read a file written by `roofwatch calibrate`, which must match the sampling of a preset if given; None for None.

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
