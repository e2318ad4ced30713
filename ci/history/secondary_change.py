"""What is measured beside a time, judged over a history: the host's time of a launch, and the memory of one. Pure.

Both are one number a run, each timer and cache state for itself, as rotated copies take memory and a timer more of the
host. No pair of records confirms a step of either:

- memory is what torch's allocator counts in one launch from an empty cache, the same in every run of the same code: a
  step of which all runs on either side say one number is sure;
- the host's time is that of one thread on whatever machine the job got. It seldom says one number, so a step of it is
  a suspicion, which calls nobody; and it accuses neither the kernel on the device nor its machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from roofwatch.ci.causes.compiled_changes import CompiledHistory
from roofwatch.ci.causes.explain import Around, explain_host, explain_memory
from roofwatch.ci.changepoint import detect
from roofwatch.ci.history.points import points_by_timing
from roofwatch.ci.history.trend_finding import TrendFinding
from roofwatch.ci.history.value_steps import ValueSteps, find_value_steps
from roofwatch.ci.thresholds import Thresholds
from roofwatch.db.values import CommitRef, Series, Suspect


@dataclass(frozen=True)
class _Kind:
    """How one metric is judged."""

    least: float
    """What counts as no more than nothing."""
    threshold: Callable[[Thresholds], float]
    explain: Callable[[Around], tuple[Suspect, ...]]


_KINDS: Mapping[str, _Kind] = {
    # below the clocks that read it
    "host_ns": _Kind(10.0, lambda thresholds: thresholds.host_relative_change, explain_host),
    # torch's smallest block
    "peak_allocated_bytes": _Kind(512.0, lambda thresholds: thresholds.memory_relative_change, explain_memory),
}
BESIDE_TIME = tuple(_KINDS)
"""The metrics."""


@dataclass(frozen=True)
class BesideTime:
    """One series, by all the ways in which its case was timed."""

    by_timing: Mapping[str, ValueSteps]
    """By timer and cache state; what gave the newest value comes first."""

    @classmethod
    def of(cls, series: Series, thresholds: Thresholds) -> BesideTime:
        """Take a series of one of `BESIDE_TIME` apart."""
        metric = series.key.metric
        find = partial(find_steps_beside, metric, thresholds=thresholds)
        return cls(
            {
                timing: ValueSteps(series.key, by_commit, find=find, explain=_KINDS[metric].explain)
                for timing, by_commit in points_by_timing(series).items()
            }
        )

    def findings(self, compiled: CompiledHistory) -> Iterator[TrendFinding]:
        """Every step. What two ways of timing show at one commit is told once, by the newer one."""
        told: set[CommitRef] = set()
        for steps in self.by_timing.values():
            findings = list(steps.findings(compiled))
            yield from (finding for finding in findings if finding.change.commit not in told)
            told.update(finding.change.commit for finding in findings)


def threshold_beside(metric: str, thresholds: Thresholds) -> float | None:
    """Smallest change that is worth telling; None of a metric that is none of `BESIDE_TIME`."""
    return _KINDS[metric].threshold(thresholds) if metric in _KINDS else None


def find_steps_beside(
    metric: str, values: Sequence[float] | NDArray[np.float64], thresholds: Thresholds
) -> list[detect.ChangePoint]:
    """Steps of one of `BESIDE_TIME`, a value for each commit."""
    kind = _KINDS[metric]
    return find_value_steps(values, min_relative_change=kind.threshold(thresholds), least=kind.least)
