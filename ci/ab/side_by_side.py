"""Two runs of one case side by side, and the implementations of one run: evidence without a verdict. Pure."""

from __future__ import annotations

import difflib
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from roofwatch.ci.ab.changes import Change, find_counter_changes
from roofwatch.ci.ab.comparable import Difference, differences_of, refuse_times, refuse_whole
from roofwatch.ci.ab.compare import Comparison, compare
from roofwatch.ci.ab.launches import LaunchMove, find_flips, find_launch_moves
from roofwatch.ci.message import Remark
from roofwatch.ci.static.comparison import StaticJudgement, compare_static, toolchain_of
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import CaseProfile, Counters, StaticFacts
from roofwatch.db.values import Verdict

_Result = TypeVar("_Result", Measurement, StaticFacts, Counters, CaseProfile)


@dataclass(frozen=True)
class Conditions:
    """What was seen of the device while one time was measured; None and empty where nobody watched."""

    sm_clock_mhz: float | None
    """Median over the blocks, as the next two."""
    memory_clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    """Highest."""
    held_back_by: tuple[str, ...]
    """All that held the clock down in any block."""
    degraded_block_count: int
    """Blocks that say less of the kernel: the device was at fault, or shared."""
    block_count: int


@dataclass(frozen=True)
class SideBySide:
    base: Measurement | None
    """None where the run has no such measurement."""
    head: Measurement | None
    base_conditions: Conditions
    head_conditions: Conditions
    refusals: tuple[Remark, ...]
    """Why the two do not compare."""
    code: tuple[StaticJudgement, ...]
    """Compiled functions that differ."""
    unchanged_code_count: int
    """Compiled functions whose machine code is the same, on all targets."""
    counters: tuple[Change, ...]
    """The most moved first."""
    launches: tuple[LaunchMove, ...]
    """What is launched otherwise, by profiles of both."""
    choices: tuple[Remark, ...]
    """Of the autotuner, that became others."""
    environment: tuple[Difference, ...]
    """Of machine and toolchain, the toolchain first; each with the value of the base and that of the head."""


def side_by_side(base: RunRecord, head: RunRecord, case_id: str, implementation: str) -> SideBySide:
    """Gather what the two runs know of a case and implementation."""
    subject = (case_id, implementation)
    before = next(iter(_of(base.measurements, subject)), None)
    after = next(iter(_of(head.measurements, subject)), None)
    code = compare_static(
        _of(base.static_facts, subject),
        _of(head.static_facts, subject),
        base_toolchain=toolchain_of(base.environment),
        head_toolchain=toolchain_of(head.environment),
    )
    return SideBySide(
        base=before,
        head=after,
        base_conditions=_conditions(before),
        head_conditions=_conditions(after),
        refusals=(*refuse_whole(base, head), *refuse_times(base, head)),
        code=code.judged,
        unchanged_code_count=sum(code.unchanged_by_target.values()),
        counters=find_counter_changes(_of(base.counters, subject), _of(head.counters, subject)),
        launches=find_launch_moves(_of(base.profiles, subject), _of(head.profiles, subject)),
        choices=() if before is None or after is None else tuple(flip.remark for flip in find_flips(before, after)),
        environment=tuple(differences_of([base.environment, head.environment])),
    )


def code_diff(base: str, head: str, *, line_limit: int) -> tuple[str, int]:
    """The lines of two disassemblies that differ, as a unified diff with three lines around each.

    Returns:
        The diff, of at most so many lines, and how many more there are.
    """
    lines = list(difflib.unified_diff(base.splitlines(), head.splitlines(), "base", "head", lineterm=""))
    return "\n".join(lines[:line_limit]), max(len(lines) - line_limit, 0)


def _of(results: Sequence[_Result], subject: tuple[str, str]) -> list[_Result]:
    return [one for one in results if (one.case_id, one.implementation) == subject]


def _conditions(measurement: Measurement | None) -> Conditions:
    blocks = () if measurement is None else measurement.blocks
    states = [block.device_state for block in blocks if block.device_state is not None]
    return Conditions(
        sm_clock_mhz=_median(state.sm_clock_mhz for state in states),
        memory_clock_mhz=_median(state.memory_clock_mhz for state in states),
        power_w=_median(state.power_w for state in states),
        temperature_c=max((state.temperature_c for state in states if state.temperature_c is not None), default=None),
        held_back_by=tuple(sorted({reason for state in states for reason in state.clock_event_reasons})),
        degraded_block_count=sum(bool(state.degraded_by) for state in states),
        block_count=len(blocks),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


# --- implementations


@dataclass(frozen=True)
class BestImplementation:
    """The fastest of a case, and what it leads by."""

    case_id: str
    implementation: str
    median_ns: float
    runner_up: str | None
    """The next one that was timed alike; None where there is no other."""
    comparison: Comparison | None
    """The runner-up as base, the best as head."""

    @property
    def is_clear(self) -> bool:
        """The whole interval of the lead lies beyond the practical threshold."""
        return self.comparison is not None and self.comparison.verdict is Verdict.IMPROVED


def find_best(measurements: Iterable[Measurement], thresholds: Thresholds | None = None) -> list[BestImplementation]:
    """The best implementation of each case that any was timed of, in the order of the record.

    Block i of one is held against block i of the other, as many as both have. The blocks of two implementations do not
    lie side by side, so what drifts between them widens the interval; it favours neither.

    Args:
        measurements: Of one run.
        thresholds: How large a lead is worth telling; the defaults if left out.
    """
    limit = (thresholds or Thresholds()).relative_change
    by_case: defaultdict[str, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        if measurement.blocks:
            by_case[measurement.case_id].append(measurement)
    return [_best_of(case_id, timed, limit) for case_id, timed in by_case.items()]


def _best_of(case_id: str, timed: Sequence[Measurement], threshold: float) -> BestImplementation:
    best, *others = sorted(timed, key=lambda one: (one.median_ns or 0.0, one.implementation))
    assert best.median_ns is not None
    runner_up = next((other for other in others if (other.timer, other.cache) == (best.timer, best.cache)), None)
    return BestImplementation(
        case_id=case_id,
        implementation=best.implementation,
        median_ns=best.median_ns,
        runner_up=None if runner_up is None else runner_up.implementation,
        comparison=None if runner_up is None else _lead(runner_up, best, threshold),
    )


def _lead(runner_up: Measurement, best: Measurement, threshold: float) -> Comparison:
    count = min(len(runner_up.blocks), len(best.blocks))
    base, head = ([block.samples_ns for block in side.blocks[:count]] for side in (runner_up, best))
    return compare(base, head, threshold=threshold)
