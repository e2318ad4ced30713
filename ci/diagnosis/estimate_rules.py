"""The rule about estimates of the cycle model, for code whose work was not counted."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from roofwatch.ci.diagnosis.counter_rules import FEWER_INSTRUCTIONS
from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight
from roofwatch.ci.static.prediction import estimates_of_call
from roofwatch.model.metrics import format_ns
from roofwatch.model.results import CodeEstimate, StaticFacts

_MAX_TARGETS = 3
_MAX_BOUNDS = 2
_FEWER_BYTES = (
    "Load and store fewer bytes: a narrower type, or a fused kernel in place of one that stores "
    "what the next one loads."
)
_ADVICE = {
    "issue": FEWER_INSTRUCTIONS,
    "fma": FEWER_INSTRUCTIONS,
    "alu": "Move index arithmetic and conversions out of the loop, and pack narrow types.",
    "special functions": "Compute fewer exp, log, division and conversions per element: exp2 with "
    "a folded factor, one reciprocal a row, or a polynomial for a part of them.",
    "float64": "Compute in float32; most GPUs have few float64 units.",
    "load/store": "Use wider loads, so that fewer instructions move the same bytes.",
    "shared memory": "Keep operands in registers for longer: larger tiles for each warp, fewer "
    "layout conversions.",
    "tensor": "Use a narrower type, or products with the largest shapes that the target has.",
    "memory": _FEWER_BYTES,
    "L2": "Reuse what a block loads: larger tiles, or an order of blocks that share operands.",
    "atomics": "Add up within a block first, or store parts and add them in a second kernel.",
    "waits": "Overlap: load the next tile during the products of this one (num_stages), issue "
    "products before waiting for the last ones, and use fewer barriers.",
}
"""By the limit that the model names."""


def estimated_limit(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """What the cycle model names as the limit, where no measurement says it."""
    # what was counted or measured says more than an estimate
    if evidence.counters or evidence.limit not in {Limit.LATENCY, Limit.UNDETERMINED}:
        return
    facts_by_target: defaultdict[str, dict[str, StaticFacts]] = defaultdict(dict)
    for fact in evidence.compiled:
        facts_by_target[fact.target][fact.function] = fact
    sentences: list[str] = []
    targets: list[str] = []
    limits: Counter[str] = Counter()
    for target, facts in facts_by_target.items():
        estimates = estimates_of_call(facts)
        if estimates:
            bounds_ns = _bounds_ns(estimates)
            limits[next(iter(bounds_ns))] += 1
            # the targets of one vendor mostly agree
            if len(targets) < _MAX_TARGETS:
                targets.append(target)
                sentences.append(_in_words(estimates, bounds_ns))
    if not sentences:
        return
    limit = limits.most_common(1)[0][0]
    yield DiagnosisFinding(
        title=f"bound by {limit} (estimate)",
        text=f"The cycle model estimates {'; '.join(sentences)}. Nothing was counted.",
        words=tuple(targets),
        advice=_ADVICE.get(limit, "Count it: `roofwatch ncu`."),
        weight=Weight.HINT,
    )


ESTIMATE_RULES: tuple[Rule, ...] = (estimated_limit,)


def _bounds_ns(estimates: Sequence[CodeEstimate]) -> dict[str, float]:
    """Add up the bounds of all launches of a call, the largest first."""
    totals: Counter[str] = Counter()
    for estimate in estimates:
        totals.update(estimate.bounds_ns or {estimate.limit: estimate.predicted_ns})
    return dict(totals.most_common())


def _in_words(estimates: Sequence[CodeEstimate], bounds_ns: dict[str, float]) -> str:
    """Write the time and the largest bounds, with `{}` for the target."""
    low = format_ns(sum(estimate.low_ns for estimate in estimates))
    high = format_ns(sum(estimate.high_ns for estimate in estimates))
    time = format_ns(sum(estimate.predicted_ns for estimate in estimates))
    largest = list(bounds_ns.items())[:_MAX_BOUNDS]
    bound_texts = [f"{format_ns(bound_ns)} of {name}" for name, bound_ns in largest]
    bounds = " and ".join(bound_texts)
    return f"{time} ({low} to {high}) on {{}}: {bounds}"
