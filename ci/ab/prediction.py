"""Predict what a change of a kernel costs a step of a workload. Pure.

    change of the step = share of the kernel's functions in the step * change of the kernel

This assumes that the kernel changes in the step as it does alone, and that it overlaps with other
work as before. The cases of a kernel may change differently, and which is like the step is not
known: the estimate is their median, and the interval reaches from the lowest to the highest bound
of their intervals. The share is taken within the 95 % of a normal distribution that has the
quartiles of the recorded steps.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.collector.workload_values import function_name
from roofwatch.model.history import ChangePoint
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.results import ImportedValue, StaticFacts
from roofwatch.model.stored_results import KernelFunction, StepShare

Subject = tuple[str, str]
"""Case id and implementation."""
_Z_95 = 1.959964
_QUARTILE_TO_95 = _Z_95 / 0.67449
"""Half a 95 % interval of a normal distribution / distance of a quartile from its centre."""
_CASE_PARTS = 4
"""Kernel, shape, dtype, direction; other cases have no prediction."""


@dataclass(frozen=True)
class KernelChange:
    """Relative change of a kernel's time in one case, with its 95 % interval."""

    case_id: str
    implementation: str
    relative_change: float
    low: float
    high: float
    is_reported: bool = True
    """The change is beyond the threshold. A kernel without such a case has no prediction."""


@dataclass(frozen=True)
class StepPrediction:
    """What the change of one kernel, implementation, dtype and direction costs a step. Changes are
    fractions.
    """

    kernel: str
    implementation: str
    direction: str
    workload_case_id: str
    workload_implementation: str
    share: float
    """Of the kernel's functions in the step."""
    kernel_change: float
    """Median over the cases."""
    step_change: float
    low: float
    high: float


def shares_of(values: Iterable[ImportedValue]) -> list[StepShare]:
    """Find the shares of steps among the values of a record."""
    return [
        StepShare(
            one.case_id,
            one.implementation,
            one.metric.removeprefix(SHARE_OF_STEP),
            one.value,
            one.low,
            one.high,
        )
        for one in values
        if one.metric.startswith(SHARE_OF_STEP) and one.value is not None
    ]


def functions_of(facts: Iterable[StaticFacts | KernelFunction]) -> dict[Subject, set[str]]:
    """Names of the compiled functions of each case and implementation, as in a profile."""
    found: dict[Subject, set[str]] = defaultdict(set)
    for one in facts:
        found[one.case_id, one.implementation].add(function_name(one.function))
    return found


def changes_of(points: Iterable[ChangePoint]) -> Iterator[KernelChange]:
    """Steps of times in a history as changes; a drift has no interval and is left out."""
    for point in points:
        if (
            point.series.metric == "median_ns"
            and point.before
            and point.after
            and point.standard_errors
        ):
            log_ratio = math.log(point.after / point.before)
            half = _Z_95 * abs(log_ratio) / point.standard_errors
            change, low, high = map(math.expm1, (log_ratio, log_ratio - half, log_ratio + half))
            yield KernelChange(point.series.case_id, point.series.implementation, change, low, high)


def predict_steps(
    changes: Iterable[KernelChange],
    functions: Mapping[Subject, Collection[str]],
    shares: Sequence[StepShare],
) -> tuple[StepPrediction, ...]:
    """Predict the change of each step with functions of a changed kernel, the largest first.

    Args:
        changes: Of kernels; those of workloads are left out.
        functions: Compiled functions of each case and implementation.
        shares: Of functions in steps; of several for one function and step the first counts.
    """
    workloads = {one.case_id.partition("/")[0] for one in shares}
    groups: dict[tuple[str, str, str, str], list[KernelChange]] = defaultdict(list)
    for change in changes:
        parts = change.case_id.split("/")
        if len(parts) == _CASE_PARTS and parts[0] not in workloads:
            groups[parts[0], change.implementation, parts[2], parts[3]].append(change)
    found = []
    for (kernel, implementation, dtype, direction), own in groups.items():
        names = {
            name for one in own for name in functions.get((one.case_id, one.implementation), ())
        }
        if any(one.is_reported for one in own):
            median = statistics.median(one.relative_change for one in own)
            for subject, (least, share, most) in _shares_of_steps(shares, names, dtype).items():
                bounds = [
                    part * bound
                    for part in (least, most)
                    for one in own
                    for bound in (one.low, one.high)
                ]
                found.append(
                    StepPrediction(
                        kernel,
                        implementation,
                        direction,
                        *subject,
                        share=share,
                        kernel_change=median,
                        step_change=share * median,
                        low=min(bounds),
                        high=max(bounds),
                    )
                )
    return tuple(
        sorted(found, key=lambda one: (-abs(one.step_change), one.kernel, one.workload_case_id))
    )


def _shares_of_steps(
    shares: Sequence[StepShare], names: Collection[str], dtype: str
) -> dict[Subject, tuple[float, float, float]]:
    """Share of some functions in each step with a dtype: lower bound, estimate and upper bound."""
    found: dict[Subject, list[StepShare]] = defaultdict(list)
    for one in {
        (one.case_id, one.implementation, one.function): one for one in reversed(shares)
    }.values():
        if one.function in names and dtype in one.case_id.split("/"):
            found[one.case_id, one.implementation].append(one)
    bounds = {}
    for subject, own in found.items():
        share = sum(one.share for one in own)
        spread = sum(_QUARTILE_TO_95 / 2 * ((one.high or 0.0) - (one.low or 0.0)) for one in own)
        bounds[subject] = max(share - spread, 0.0), min(share, 1.0), min(share + spread, 1.0)
    return bounds
