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
from typing import Any

from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.collector.workload_values import function_name
from roofwatch.model.case_key import CaseKey, kernel_of
from roofwatch.model.grouping import group_by
from roofwatch.model.history import ChangePoint
from roofwatch.model.metrics import SHARE_OF_STEP, TIME
from roofwatch.model.results import ImportedValue, StaticFacts
from roofwatch.model.stored_results import KernelFunction, StepShare
from roofwatch.model.verdict import Reason, Verdict

# 97.5 % quantile of the normal distribution
_Z_95 = 1.959964
_QUARTILE_TO_95 = _Z_95 / 0.67449
"""Half a 95 % interval of a normal distribution / distance of a quartile from its centre."""
_CASE_PARTS = 4
"""Kernel, shape, dtype, direction; other cases have no prediction."""


@dataclass(frozen=True)
class StepEvidence:
    """The kernel whose change a step is predicted from: its cases of one dtype and direction."""

    kernel: str
    implementation: str
    direction: str
    share: float
    """Of the kernel's functions in the step."""
    kernel_change: float
    """Fraction; median over the cases."""


StepChange = Change[StepEvidence]
"""Predicted change of a workload's step, which is its subject."""


def shares_of(values: Iterable[ImportedValue]) -> list[StepShare]:
    """Find the shares of steps among the values of a record."""
    return [
        StepShare(
            case_id=value.case_id,
            implementation=value.implementation,
            function=value.metric.removeprefix(SHARE_OF_STEP),
            share=value.value,
            low=value.low,
            high=value.high,
        )
        for value in values
        if value.metric.startswith(SHARE_OF_STEP) and value.value is not None
    ]


def functions_of(facts: Iterable[StaticFacts | KernelFunction]) -> dict[CaseKey, set[str]]:
    """Names of the compiled functions of each case and implementation, as in a profile."""
    names: dict[CaseKey, set[str]] = defaultdict(set)
    for compiled in facts:
        names[compiled.case_key].add(function_name(compiled.function))
    return names


def changes_of(points: Iterable[ChangePoint]) -> Iterator[Change[None]]:
    """Steps of times in a history as changes; a drift has no interval and is left out."""
    for point in points:
        series = point.series
        if series.metric != TIME.key:
            continue
        if not (point.before and point.after and point.standard_errors):
            continue
        log_ratio = math.log(point.after / point.before)
        half = _Z_95 * abs(log_ratio) / point.standard_errors
        yield Change(
            subject=ChangeSubject(series.case_id, series.implementation),
            metric=series.metric,
            base=point.before,
            head=point.after,
            log_ratio=log_ratio,
            log_interval=(log_ratio - half, log_ratio + half),
            verdict=Verdict.of_change(is_worse=log_ratio > 0),
            reason=Reason.BEYOND_THRESHOLD,
            evidence=None,
        )


def predict_steps(
    changes: Iterable[Change[Any]],
    functions: Mapping[CaseKey, Collection[str]],
    shares: Sequence[StepShare],
) -> tuple[StepChange, ...]:
    """Predict the change of each step with functions of a changed kernel, the largest first.

    Args:
        changes: Of the times of kernels; those of workloads are left out. A kernel without a case
            that changed beyond the threshold has no prediction.
        functions: Compiled functions of each case and implementation.
        shares: Of functions in steps; of several for one function and step the first counts.
    """
    workloads = {kernel_of(share.case_id) for share in shares}
    groups: dict[_Group, list[Change[Any]]] = defaultdict(list)
    for change in changes:
        parts = change.case_id.split("/")
        # ids of other tools have other parts
        has_all_parts = len(parts) == _CASE_PARTS
        # a workload's own case is the step, not a kernel in it
        is_kernel = has_all_parts and parts[0] not in workloads
        interval = change.log_interval
        if is_kernel and interval is not None and math.isfinite(interval[1]):
            group = _Group(
                kernel=parts[0],
                implementation=change.implementation,
                dtype=parts[2],
                direction=parts[3],
            )
            groups[group].append(change)
    predictions: list[StepChange] = []
    for group, cases in groups.items():
        if any(case.reason is Reason.BEYOND_THRESHOLD for case in cases):
            predictions += _predictions_of(
                group,
                cases,
                functions,
                shares,
            )
    return tuple(sorted(predictions, key=_largest_first))


@dataclass(frozen=True)
class _Group:
    """Cases that share one prediction."""

    kernel: str
    implementation: str
    dtype: str
    direction: str


def _predictions_of(
    group: _Group,
    cases: Sequence[Change[Any]],
    functions: Mapping[CaseKey, Collection[str]],
    shares: Sequence[StepShare],
) -> Iterator[StepChange]:
    names: set[str] = set()
    bounds: list[float] = []
    for case in cases:
        names.update(functions.get(case.case_key, ()))
        bounds += case.relative_interval or ()
    median = statistics.median(case.relative_change for case in cases)
    for workload, share in _shares_of_steps(shares, names, group.dtype).items():
        # the step's interval spans both uncertainties: of the share and of the kernel's change
        products: list[float] = []
        for bound in bounds:
            products += (share.low * bound, share.high * bound)
        lowest = math.log1p(min(products))
        highest = math.log1p(max(products))
        evidence = StepEvidence(
            kernel=group.kernel,
            implementation=group.implementation,
            direction=group.direction,
            share=share.estimate,
            kernel_change=median,
        )
        yield Change(
            subject=ChangeSubject(*workload),
            metric=TIME.key,
            log_ratio=math.log1p(share.estimate * median),
            log_interval=(lowest, highest),
            reason=Reason.STEP_PREDICTED,
            evidence=evidence,
        )


def _largest_first(prediction: StepChange) -> tuple[float, str, str]:
    return (
        -abs(prediction.relative_change),
        prediction.evidence.kernel,
        prediction.case_id,
    )


@dataclass(frozen=True)
class _Share:
    """Share of some functions in a step, with its bounds."""

    low: float
    """Share of the step's time, at least."""
    estimate: float
    """Share of the step's time, most likely."""
    high: float
    """Share of the step's time, at most."""


def _shares_of_steps(
    shares: Sequence[StepShare],
    names: Collection[str],
    dtype: str,
) -> dict[CaseKey, _Share]:
    """Share of some functions in each step with a dtype."""
    # shares come newest first, and only the newest of a function counts
    newest: dict[tuple[str, str, str], StepShare] = {}
    for share in shares:
        key = share.case_id, share.implementation, share.function
        newest.setdefault(key, share)
    of_functions = [
        share
        for share in newest.values()
        if share.function in names and dtype in share.case_id.split("/")
    ]
    by_step = group_by(of_functions, lambda share: (share.case_id, share.implementation))
    return {step: _sum_of(step_shares) for step, step_shares in by_step.items()}


def _sum_of(shares: Iterable[StepShare]) -> _Share:
    """Add shares of one step, with 95 % bounds from their quartiles, within 0 and 1."""
    total = spread = 0.0
    for share in shares:
        total += share.share
        quartile_range = (share.high or 0.0) - (share.low or 0.0)
        spread += _QUARTILE_TO_95 / 2 * quartile_range
    return _Share(
        low=max(total - spread, 0.0),
        estimate=min(total, 1.0),
        high=min(total + spread, 1.0),
    )
