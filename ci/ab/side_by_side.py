"""Two runs of one case side by side, and the implementations of one run: evidence without a
verdict. Pure.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.changes import compare_counters
from roofwatch.ci.ab.comparable import DifferingField, differences_of, refuse_runner, refuse_whole
from roofwatch.ci.ab.compare import PairedEstimate, compare
from roofwatch.ci.ab.launches import LaunchEvidence, compare_profiles, find_flips
from roofwatch.ci.judge.change import Change
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.messages import Remark
from roofwatch.ci.static.comparison import StaticChange, judge_static
from roofwatch.ci.static.same_code import toolchain_of
from roofwatch.model.grouping import group_by
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord
from roofwatch.model.verdict import THRESHOLDS


@dataclass(frozen=True)
class SideBySide:
    """Two runs of one case and implementation."""

    base: Measurement | None
    """None if the run has no such measurement."""
    head: Measurement | None
    refusals: tuple[Remark, ...]
    """Why the times are not compared."""
    code: tuple[StaticChange, ...]
    """Compiled functions that differ."""
    unchanged_code_count: int
    """Compiled functions with the same machine code, over all targets."""
    counters: tuple[Change[None], ...]
    """The largest change first."""
    launches: tuple[Change[LaunchEvidence], ...]
    choices: tuple[Remark, ...]
    """Choices of the autotuner that differ."""
    environment: tuple[DifferingField, ...]
    """Machine and toolchain, the toolchain first; with the value of the base and of the head."""


def side_by_side(
    base: RunRecord,
    head: RunRecord,
    case_id: str,
    implementation: str,
) -> SideBySide:
    """Gather the evidence of two runs about a case and implementation."""
    pairing = Pairing(base, head)
    base_results, head_results = pairing.of((case_id, implementation))
    base_measured = base_results.measurement
    head_measured = head_results.measurement
    launches: list[Change[LaunchEvidence]] = []
    if base_results.profile is not None and head_results.profile is not None:
        launches = compare_profiles(base_results.profile, head_results.profile)
    code = judge_static(
        base_results.code,
        head_results.code,
        base_toolchain=toolchain_of(base.environment),
        head_toolchain=toolchain_of(head.environment),
    )
    choices: tuple[Remark, ...] = ()
    if base_measured is not None and head_measured is not None:
        choices = find_flips(base_measured, head_measured)
    refusals = refuse_whole(pairing)
    refusals += refuse_runner(base.environment.runner_class, head.environment.runner_class)
    counters = compare_counters(base_results.counters, head_results.counters)
    return SideBySide(
        base=base_measured,
        head=head_measured,
        refusals=tuple(refusals),
        code=code.changes,
        unchanged_code_count=sum(code.unchanged_by_target.values()),
        counters=tuple(counters),
        launches=tuple(launches),
        choices=choices,
        environment=tuple(differences_of([base.environment, head.environment])),
    )


def code_diff(
    base: str,
    head: str,
    *,
    line_limit: int,
) -> tuple[str, int]:
    """Make a unified diff of two disassemblies.

    Returns:
        The first `line_limit` lines, and how many more there are.
    """
    lines = list(
        difflib.unified_diff(
            base.splitlines(),
            head.splitlines(),
            "base",
            "head",
            lineterm="",
        )
    )
    cut_count = max(len(lines) - line_limit, 0)
    return "\n".join(lines[:line_limit]), cut_count


# --- implementations


@dataclass(frozen=True)
class BestImplementation:
    """The fastest implementation of a case."""

    case_id: str
    implementation: str
    median_ns: float
    """Median time of a launch, the lowest of the case."""
    runner_up: str | None
    """The next one with the same timer and cache state."""
    comparison: PairedEstimate | None
    """The runner-up as base, the best as head."""


def find_best(measurements: Iterable[Measurement]) -> list[BestImplementation]:
    """Find the best implementation of each timed case, in the order of the record.

    Block i of one is compared with block i of the other. The blocks of two implementations are not
    interleaved, so a drift between them widens the interval; it favours neither.
    """
    # only blocks can be compared
    timed_measurements = (measurement for measurement in measurements if measurement.blocks)
    by_case = group_by(timed_measurements, lambda measurement: measurement.case_id)
    return [_best_of(timed) for timed in by_case.values()]


def _best_of(timed: Sequence[Measurement]) -> BestImplementation:
    """The fastest implementation of each case, and by how much."""
    best, *slower = sorted(timed, key=_time_and_name)
    assert best.median_ns is not None
    # times of another timer or cache state do not compare
    method = best.timer, best.cache
    rivals = [rival for rival in slower if (rival.timer, rival.cache) == method]
    if not rivals:
        return BestImplementation(
            case_id=best.case_id,
            implementation=best.implementation,
            median_ns=best.median_ns,
            runner_up=None,
            comparison=None,
        )
    runner_up = rivals[0]
    count = min(len(runner_up.blocks), len(best.blocks))
    comparison = compare(
        [block.samples_ns for block in runner_up.blocks[:count]],
        [block.samples_ns for block in best.blocks[:count]],
        threshold=THRESHOLDS.relative_change,
    )
    return BestImplementation(
        case_id=best.case_id,
        implementation=best.implementation,
        median_ns=best.median_ns,
        runner_up=runner_up.implementation,
        comparison=comparison,
    )


def _time_and_name(measurement: Measurement) -> tuple[float, str]:
    return measurement.median_ns or 0.0, measurement.implementation
