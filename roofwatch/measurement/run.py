"""Measure a suite at one commit or at two revisions, write its records, and calibrate the noise
floor.

An interrupted run can be resumed.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from roofwatch.ci.ab.compare import ERROR_RATE, look_number, looks_after
from roofwatch.ci.ab.noise_floor import FLOOR_FACTOR, NoiseFloor, noise_floor_of
from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.judge.change import Change
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.collector.runs.cluster import spread_run
from roofwatch.collector.runs.journal import ALONE, Header, Journal, journal_path, make_header
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import Activity, Progress, RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.console.terminal import print_error, progress
from roofwatch.model.claim import CodeState
from roofwatch.model.files import check_writable
from roofwatch.model.measurement import Autotuning
from roofwatch.model.record import RunRecord, Side
from roofwatch.model.timing_method import Preset
from roofwatch.model.verdict import Reason
from roofwatch.model.worker_protocol import Subject
from roofwatch.reporting.records import RECORD_SUFFIX

FIRST_BLOCKS = 8
"""Blocks per side before the first interim analysis; a verdict compares blocks, not samples."""

_MORE_BLOCKS_DECIDE = frozenset({Reason.NOISE, Reason.TOO_FEW_BLOCKS, Reason.MULTIPLICITY})
_TORCH_NAMES = ("torch", "compile")
"""Implementations in plain torch, which few changes of a kernel touch."""
_NOISE_FLOOR_BLOCKS = 18
"""With so many blocks the relative error of a standard deviation is 1 / √(2 n), one sixth."""
_BLOCK_ACTIVITIES = (Activity.WARM_UP, Activity.TIMING, Activity.OVERHEAD)
"""What a further block costs."""

Judge = Callable[[RunRecord, RunRecord], PullRequestJudgement]


def measure_suite(
    suite: SuiteAt,
    plan: RunPlan,
    destination: Path,
    *,
    fork_server: ForkServer,
    address: str | None = None,
    skipped: tuple[str, ...] = (),
    is_resumed: bool = False,
    pinned: Mapping[Subject, tuple[Autotuning, ...]] | None = None,
) -> list[tuple[Path, RunRecord]]:
    """Measure a suite on this machine, or on the Ray cluster at an address, and write a record per
    kind of machine.

    An interrupted run at the destination is continued if asked. The record names the kernels that
    were skipped.

    Returns:
        Each record with its path.

    Raises:
        CollectorError: a record cannot be written, or something cannot be measured; results so far
        can be resumed.
    """
    # Before an hour of measuring, not after it.
    check_writable(destination)
    header = make_header({ALONE: suite}, plan, is_spread=address is not None)
    with (
        resumable(destination, header, is_resumed=is_resumed) as journal,
        progress(suite.project) as on_progress,
    ):
        if address is not None:
            records = spread_run(suite, plan, address, on_progress, journal=journal)
        else:
            records = measure(
                [suite],
                plan,
                on_progress,
                fork_server=fork_server,
                journal=journal,
                pinned=pinned,
            )
        return _write(
            paths=_paths(destination, len(records)),
            records=records,
            skipped=skipped,
            journal=journal,
        )


@contextmanager
def resumable(destination: Path, header: Header, *, is_resumed: bool) -> Iterator[Journal]:
    """Keep a journal beside the record's destination, or continue that of an interrupted run. If
    the block fails, print how to resume.

    Raises:
        JournalError: there is an interrupted run that was not to be resumed, or it cannot be.
    """
    path = journal_path(destination)
    with Journal(path, header, is_resumed=is_resumed) as journal:
        if journal.result_count:
            print_error(f"resuming with {journal.result_count} results in {path}")
        for number in journal.damaged_lines:
            print_error(
                f"{path}: line {number} is damaged and was skipped; its result is measured again"
            )
        try:
            yield journal
        except BaseException:
            if journal.result_count:
                print_error(
                    f"{journal.result_count} results are kept in {path}: repeat the command with "
                    f"--resume to continue, "
                    "or delete the file to start again"
                )
            raise


def _write(
    paths: Sequence[Path],
    records: Sequence[RunRecord],
    skipped: tuple[str, ...],
    journal: Journal,
) -> list[tuple[Path, RunRecord]]:
    written = [
        (path, record.model_copy(update={"skipped": skipped}))
        for path, record in zip(paths, records, strict=True)
    ]
    # The first one last: if it exists, all do.
    for path, record in reversed(written):
        record.write(path)
    journal.remove()
    return written


def _paths(destination: Path, count: int) -> list[Path]:
    """`run.json`, then `run-2.json` and so on."""
    name, dot, endings = destination.name.partition(".")
    more_names = [f"{name}-{number}{dot}{endings}" for number in range(2, count + 1)]
    return [destination, *(destination.with_name(more_name) for more_name in more_names)]


def measure_revisions(
    base: SuiteAt,
    head: SuiteAt,
    plan: RunPlan,
    *,
    fork_server: ForkServer,
    judge: Judge,
    helps: Callable[[Change[CaseEvidence]], bool],
    budget_s: float,
    output: Path,
    title: str,
    skipped: tuple[str, ...] = (),
    is_resumed: bool = False,
    is_over: Callable[[], bool] = lambda: False,
) -> list[tuple[Path, RunRecord]]:
    """Measure base and head in one job, and add blocks for `budget_s` seconds where they help.

    `helps` tells whether more blocks would help a case. An interrupted job in the output folder is
    continued if asked. The records name the kernels that were skipped. Once `is_over` is true,
    nothing more is timed.

    Returns:
        Base and head, each with its file.

    Raises:
        CollectorError: a record cannot be written, or the machine or the suite cannot be measured.
    """
    check_writable(output / "record.json")
    names = [
        f"{side}-{suite.commit.sha[:12]}" for side, suite in zip(Side, (base, head), strict=True)
    ]
    header = make_header({"base": base, "head": head}, plan)
    with (
        resumable(output / "-".join(names), header, is_resumed=is_resumed) as journal,
        progress(title) as on_progress,
    ):

        def note(text: str) -> None:
            on_progress(
                Progress(
                    done=0,
                    total=0,
                    text=text,
                    is_to_stay=True,
                )
            )

        note(f"undecided cases are measured for up to {budget_s:.0f} s more (--budget)")
        more = AdaptiveBlocks(
            judge=judge,
            helps=helps,
            budget_s=budget_s,
            on_status=note,
        )
        measured = measure(
            [base, head],
            plan,
            on_progress,
            fork_server=fork_server,
            more=more,
            is_over=is_over,
            journal=journal,
        )
        return _write(
            paths=[output / f"{name}{RECORD_SUFFIX}" for name in names],
            records=measured,
            skipped=skipped,
            journal=journal,
        )


# --- more blocks for undecided cases


def is_undecided(case: Change[CaseEvidence]) -> bool:
    """Whether more blocks may give a verdict."""
    return case.reason in _MORE_BLOCKS_DECIDE


def needs_more(case: Change[CaseEvidence]) -> bool:
    """Whether a case is undecided, or its change needs confirmation after the first interim
    analysis.
    """
    if is_undecided(case):
        return True
    # A change that was seen once may be chance: the next analysis confirms it.
    is_first_look = look_number(_block_count(case)) == 1
    return _has_change(case) and is_first_look


def is_noise_floor_unknown(case: Change[CaseEvidence]) -> bool:
    """Whether more blocks would noticeably improve the estimate of a case's noise."""
    comparison = case.evidence.comparison
    if comparison is None:
        return False
    return comparison.block_count < _NOISE_FLOOR_BLOCKS


@dataclass
class AdaptiveBlocks:
    """Decides after each interim analysis which cases get more blocks: those closest to a verdict,
    while time is left.

    The analyses are those of `roofwatch.ci.ab.compare`, so verdicts remain valid.
    """

    judge: Judge
    helps: Callable[[Change[CaseEvidence]], bool]
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
        judged = self.judge(base, head)
        cases = [case for case in judged.cases if case.evidence.comparison is not None]
        rivals = {
            case.subject.kernel for case in cases if case.subject.implementation not in _TORCH_NAMES
        }

        def priority(case: Change[CaseEvidence]) -> tuple[bool, bool, float]:
            """What was edited comes first, then what is closest to a verdict, in case the time does
            not suffice for all.
            """
            is_torch = case.subject.implementation in _TORCH_NAMES
            is_reference = is_torch and case.subject.kernel in rivals
            return _has_same_code(case), is_reference, _blocks_to_go(case)

        open_cases = sorted(filter(self.helps, cases), key=priority)
        left_s = self.deadline_s - self.clock()
        seconds_per_pair = _seconds_per_pair(base, head)
        block_counts = _affordable(open_cases, left_s, seconds_per_pair=seconds_per_pair)
        status = f"{len(cases) - len(open_cases)} of {len(cases)} decided"
        if open_cases:
            remaining = f"{max(0.0, left_s):.0f} s left"
            more = f"; {remaining}, not enough for another block"
            if block_counts:
                more = f", {len(block_counts)} of them get more blocks; {remaining}"
            status += f", {len(open_cases)} open{more}"
        self.on_status(status)
        return block_counts


def _has_same_code(case: Change[CaseEvidence]) -> bool:
    claim = case.evidence.claim
    return claim is not None and claim.code is CodeState.SAME


def _has_change(case: Change[CaseEvidence]) -> bool:
    is_beyond = case.reason in {Reason.BEYOND_THRESHOLD, Reason.SAME_SOURCES}
    return is_beyond and case.evidence.comparison is not None


def _block_count(case: Change[CaseEvidence]) -> int:
    """Blocks per side, including excluded ones."""
    comparison = case.evidence.comparison
    if comparison is None:
        return 0
    return comparison.block_count + len(case.evidence.left_out)


def _blocks_to_go(case: Change[CaseEvidence]) -> float:
    if _has_change(case):
        return 0.0
    comparison = case.evidence.comparison
    if comparison is None or comparison.more_blocks is None:
        return math.inf
    return comparison.more_blocks


def _affordable(
    open_cases: list[Change[CaseEvidence]],
    left_s: float,
    *,
    seconds_per_pair: float,
) -> dict[Subject, int]:
    """Blocks up to the next interim analysis for as many cases as the time allows."""
    block_counts: dict[Subject, int] = {}
    for case in open_cases:
        count = _block_count(case)
        # Between two analyses, blocks would be measured that nobody looks at.
        next_look = next(islice(looks_after(count), 1))
        left_s -= (next_look - count) * seconds_per_pair
        if left_s < 0:
            break
        block_counts[Subject(case.case_id, case.implementation)] = next_look
    return block_counts


def _seconds_per_pair(base: RunRecord, head: RunRecord) -> float:
    """Mean time of a block on both sides so far."""
    records = (base, head)
    spent_ns = sum(
        record.spent_ns.get(activity, 0) for record in records for activity in _BLOCK_ACTIVITIES
    )
    blocks = sum(len(measured.blocks) for record in records for measured in record.measurements)
    return 2 * spent_ns / 1e9 / max(1, blocks)


# --- the noise floor


def noise_floor(base: RunRecord, head: RunRecord, *, preset: Preset) -> NoiseFloor:
    """Noise floor from two measurements of one commit, sampled with a preset."""
    judged = judge_pull_request(base, head)
    comparisons = {
        case.case_key: case.evidence.comparison
        for case in judged.cases
        if case.evidence.comparison is not None
    }
    return noise_floor_of(head, comparisons, preset)


def noise_floor_summary(noise: NoiseFloor) -> Iterator[str]:
    """Explain a noise floor, line by line."""
    if not noise.cases:
        yield "nothing was timed, so the noise of this runner is unknown"
        return
    floors = [case.noise_floor for case in noise.cases]
    median_floor = statistics.median(floors)
    yield (
        f"noise floor of {len(floors)} cases on {noise.runner_class}: median {median_floor:.2%}, "
        f"maximum {max(floors):.2%}; a change must exceed {FLOOR_FACTOR:g} times the floor of its "
        f"case"
    )
    false_alarm_count = sum(case.is_false_alarm for case in noise.cases)
    significant_count = sum(case.is_significant for case in noise.cases)
    expected_count = ERROR_RATE * len(floors)
    yield (
        f"false alarms: {false_alarm_count} of {len(floors)} cases; {significant_count} "
        f"intervals exclude zero change, at most {expected_count:.1f} expected"
    )
