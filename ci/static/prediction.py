"""What the cycle model predicts for two versions of a kernel: an estimate that decides nothing by
default.

Both sides are predicted under the same assumptions, and each assumption gives one ratio of times.
The prediction counts if all of these ratios point in the same direction.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.messages import Remark
from roofwatch.model.results import CodeEstimate, StaticFacts
from roofwatch.model.verdict import Verdict

_MIN_PREDICTED = math.log(1.05)
"""Smallest predicted change: below it, code that only moved differs by as much."""
_MIN_OF_EACH = math.log(1.015)
"""Smallest change under every assumption."""
_MIN_OF_OTHER_WARPS = math.log(1.3)
"""Smallest predicted change if blocks have another number of warps: smaller ones were predicted for
the same code, whose measured times hardly differ."""
_MIN_WORK = 0.02
"""Smallest change of an amount of work. Without one, only the placement of blocks differs, and
whether more resident blocks are faster depends on the GPU."""
_LOCAL = "local_bytes"
_SERIAL = "serial_products"
_MODEL_ERROR = 0.25
"""Of a predicted log ratio, beyond the range over assumptions: how far predictions of changes that
were measured are off."""


@dataclass(frozen=True)
class TimePrediction:
    """Head over base, as logarithms."""

    log_ratio: float
    """ln(head / base) by the middle assumptions."""
    log_interval: tuple[float, float]
    """Lowest and highest ratio over all assumptions of the model."""
    more_work: frozenset[str]
    """Amounts that grew. Less overlap counts as more work."""
    less_work: frozenset[str]
    has_other_warps: bool = False
    has_other_trips: bool = False
    """Trips that depend on data differ, because an iteration has another tile."""

    @property
    def verdict(self) -> Verdict:
        """Slower or faster only where ratio, bounds and work agree."""
        # both sides were given the same number of trips, with unequal work in each
        if self.has_other_trips:
            return Verdict.UNCHANGED
        low, high = self.log_interval
        least = _MIN_PREDICTED
        if self.has_other_warps:
            least = _MIN_OF_OTHER_WARPS
        is_slower = self.log_ratio >= least and low >= _MIN_OF_EACH
        is_faster = self.log_ratio <= -least and high <= -_MIN_OF_EACH
        # a time that moves against the work comes from occupancy alone
        if is_slower and self.more_work:
            return Verdict.PREDICTED_SLOWER
        if is_faster and self.less_work:
            return Verdict.PREDICTED_FASTER
        return Verdict.UNCHANGED

    @property
    def outweighs_spills(self) -> bool:
        """Whether it is faster for another reason than spills, and by more than the model errs."""
        saved = self.less_work - {_LOCAL}
        least = _MIN_PREDICTED / (1 - _MODEL_ERROR)
        is_large = self.log_ratio <= -least
        # the model compares neither well
        is_comparable = not (self.has_other_warps or self.has_other_trips)
        return bool(saved) and is_large and is_comparable

    @property
    def in_words(self) -> str:
        """`predicted 1.9x slower (1.5 to 2.4)`."""
        word = "slower"
        sign = 1.0
        if self.log_ratio < 0:
            word = "faster"
            sign = -1.0
        factors = [math.exp(sign * log_ratio) for log_ratio in _ends(self.log_interval)]
        ratio = math.exp(abs(self.log_ratio))
        interval = f"{min(factors):.2g} to {max(factors):.2g}"
        return f"predicted {ratio:.2g}x {word} ({interval})"


def _ends(log_interval: tuple[float, float]) -> list[float]:
    """Ends of an interval of log ratios with the model's error in either direction."""
    ends: list[float] = []
    for log_ratio in log_interval:
        error = _MODEL_ERROR * log_ratio
        ends += (log_ratio - error, log_ratio + error)
    return ends


def compare_estimates(
    base: CodeEstimate,
    head: CodeEstimate,
    *,
    has_other_warps: bool = False,
    has_other_occupancy: bool = False,
    has_other_tiles: bool = False,
) -> TimePrediction:
    """Compare two launches."""
    prediction = compare_launches([base], [head], has_other_occupancy=has_other_occupancy)
    has_assumed_trips = any(
        side.has_unknown_trips and not side.has_trips_of_tiles for side in (base, head)
    )
    return replace(
        prediction,
        has_other_warps=has_other_warps,
        has_other_trips=has_other_tiles and has_assumed_trips,
    )


def compare_launches(
    base: Sequence[CodeEstimate],
    head: Sequence[CodeEstimate],
    *,
    has_other_occupancy: bool = False,
) -> TimePrediction:
    """Compare the sums of the launches of two calls."""
    # with unknown trips on one side only, the common assumptions remain
    times_ns = zip(_variants(base), _variants(head), strict=False)
    log_ratios = [math.log(head_ns / base_ns) for base_ns, head_ns in times_ns]
    base_work = _amounts(base)
    head_work = _amounts(head)
    # the waits of all waves also follow from the occupancy, which is no work
    if has_other_occupancy:
        del base_work[_SERIAL]
        del head_work[_SERIAL]
    changed = [name for name in base_work if _differs(base_work[name], head_work[name])]
    more_work = frozenset(name for name in changed if head_work[name] > base_work[name])
    return TimePrediction(
        log_ratio=log_ratios[0],
        log_interval=(min(log_ratios), max(log_ratios)),
        more_work=more_work,
        less_work=frozenset(changed) - more_work,
    )


def _variants(estimates: Sequence[CodeEstimate]) -> list[float]:
    """Add the times of several launches, under each assumption, in ns."""
    all_variants = [estimate.variants_ns for estimate in estimates]
    by_assumption = zip(*all_variants, strict=False)
    sums_ns = [sum(times_ns) for times_ns in by_assumption]
    # an older record has the one prediction only
    if not sums_ns:
        return [sum(estimate.predicted_ns for estimate in estimates)]
    return sums_ns


def _amounts(estimates: Sequence[CodeEstimate]) -> dict[str, float]:
    """Amounts of work, of all launches together."""
    amounts = dict.fromkeys(
        (
            "requested_bytes",
            "sector_bytes",
            _LOCAL,
            "instructions",
            "atomics",
            _SERIAL,
        ),
        0.0,
    )
    for estimate in estimates:
        elements = estimate.element_count
        amounts["requested_bytes"] += estimate.requested_bytes
        amounts["sector_bytes"] += _sector_bytes(estimate)
        amounts[_LOCAL] += estimate.local_bytes_moved
        amounts["instructions"] += estimate.instructions_per_element * elements
        amounts["atomics"] += estimate.atomics_per_element * elements
        # products that wait for each other cost time and no work
        amounts[_SERIAL] += _serial_ns(estimate)
    return amounts


def _serial_ns(estimate: CodeEstimate) -> float:
    # only products of tensor cores wait for each other
    if "tensor" not in estimate.bounds_ns:
        return 0.0
    return estimate.bounds_ns.get("waits", 0.0)


def _differs(base: float, head: float) -> bool:
    least = _MIN_WORK * max(base, head)
    return abs(head - base) > least


def describe(
    base: CodeEstimate,
    head: CodeEstimate,
    change: TimePrediction,
) -> str:
    """Say what changed per element, what binds, and what follows for the time."""
    parts: list[str] = []
    amounts = [
        ("instructions", base.instructions_per_element, head.instructions_per_element),
        ("atomics", base.atomics_per_element, head.atomics_per_element),
        ("bytes", _bytes_per_element(base), _bytes_per_element(head)),
        ("bytes of local memory", _local_per_element(base), _local_per_element(head)),
    ]
    # sectors that are used as well as before say the same as the bytes
    if _differs(_sectors_per_byte(base), _sectors_per_byte(head)):
        name = "bytes in whole sectors"
        amounts.append((name, _sectors_per_element(base), _sectors_per_element(head)))
    for name, base_amount, head_amount in amounts:
        if _differs(base_amount, head_amount):
            both_amounts = f"{base_amount:.3g} to {head_amount:.3g}"
            parts.append(f"{both_amounts} {name} an element")
    if not parts:
        parts.append("the same work")
    clauses = [", ".join(parts)]
    if base.limit == head.limit:
        clauses.append(f"bound by {head.limit}")
    else:
        clauses.append(f"bound by {base.limit}, then {head.limit}")
    clauses.append(change.in_words)
    # the model then assumed a number of trips
    if base.has_unknown_trips or head.has_unknown_trips:
        clauses.append("trips of a loop unknown")
    # the model then assumed neighbours in one case, and distant elements in another
    if base.has_unknown_strides or head.has_unknown_strides:
        clauses.append("strides of an access unknown")
    return "; ".join(clauses)


def _bytes_per_element(estimate: CodeEstimate) -> float:
    return estimate.requested_bytes / max(estimate.element_count, 1)


def _sector_bytes(estimate: CodeEstimate) -> float:
    # an older record has no sectors
    return estimate.sector_bytes or estimate.requested_bytes


def _sectors_per_byte(estimate: CodeEstimate) -> float:
    return _sector_bytes(estimate) / max(estimate.requested_bytes, 1)


def _sectors_per_element(estimate: CodeEstimate) -> float:
    return _sector_bytes(estimate) / max(estimate.element_count, 1)


def _local_per_element(estimate: CodeEstimate) -> float:
    return estimate.local_bytes_moved / max(estimate.element_count, 1)


# --- a whole call


@dataclass(frozen=True)
class PredictedCall:
    """All launches of one call, where the two sides launch other functions."""

    change: TimePrediction
    detail: Remark


def compare_calls(
    base: Mapping[str, StaticFacts],
    head: Mapping[str, StaticFacts],
) -> PredictedCall | None:
    """Compare the sums over all functions of a call; None if a launch has no estimate."""
    base_estimates = estimates_of_call(base)
    head_estimates = estimates_of_call(head)
    if not base_estimates or not head_estimates:
        return None
    change = compare_launches(base_estimates, head_estimates)
    counts = f"{len(base_estimates)} to {len(head_estimates)} functions"
    detail = Remark(f"all launches of a call, {counts}: {change.in_words}")
    return PredictedCall(change, detail)


def estimates_of_call(functions: Mapping[str, StaticFacts]) -> list[CodeEstimate]:
    """Return the estimate of each launched function: of an autotuned one, the fastest.

    Empty if one of them has none.
    """
    fastest: dict[str, CodeEstimate] = {}
    for name, facts in functions.items():
        if facts.estimate is None:
            return []
        launched = name.partition("[")[0]
        fastest_yet = fastest.get(launched)
        if fastest_yet is None or facts.estimate.predicted_ns < fastest_yet.predicted_ns:
            fastest[launched] = facts.estimate
    return list(fastest.values())
