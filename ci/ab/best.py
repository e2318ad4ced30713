"""Which implementation of a case is the fastest in one run, and whether its lead is beyond the noise. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.compare import Comparison, compare
from roofwatch.ci.thresholds import Thresholds
from roofwatch.collector.record.measurement import Measurement
from roofwatch.db.values import Verdict


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
