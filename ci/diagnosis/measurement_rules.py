"""Rules about the measurement itself: whether its times can be trusted."""

import statistics
from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight
from roofwatch.model.metrics import metric

ABOVE_ROOF = 1.1
"""Share of the roof from which on it is reported; ceilings repeat to a few per cent."""
_MAX_MESSAGE = 300


def failed(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The case has no time, because it failed."""
    measurement = evidence.measurement
    if measurement is not None and measurement.outcome.is_failure:
        yield DiagnosisFinding(
            title=f"not timed: {str(measurement.outcome).replace('_', ' ')}",
            text="The record reports: {}",
            words=((measurement.message or "no message")[:_MAX_MESSAGE],),
            advice="Fix that first: `roofwatch check` shows what is wrong with a result and where.",
            weight=Weight.DOUBT,
        )


def throttled(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Some blocks ran on a device that was throttled or shared."""
    degraded_ns: list[float] = []
    clean_ns: list[float] = []
    reasons: set[str] = set()
    for block in evidence.blocks:
        state = block.device_state
        if state is not None and state.degraded_by:
            degraded_ns.append(block.median_ns)
            reasons.update(state.degraded_by)
        else:
            clean_ns.append(block.median_ns)
    if not degraded_ns:
        return
    slowdown_ratio = None
    slower = ""
    if clean_ns:
        slowdown_ratio = statistics.median(degraded_ns) / statistics.median(clean_ns)
        slower = f" They took {slowdown_ratio:.2f} times as long as the others."
    if slowdown_ratio is not None and slowdown_ratio <= 1:
        slowdown_ratio = None  # nothing to gain
    names = ", ".join(["{}"] * len(reasons))
    yield DiagnosisFinding(
        title="the device was throttled or shared",
        text=(
            f"{len(degraded_ns)} of {len(evidence.blocks)} blocks were affected by {names}.{slower}"
        ),
        words=tuple(sorted(reasons)),
        advice="Measure again on a cool and idle device; raise the power limit, or lock the "
        "clocks at a sustainable "
        "value.",
        weight=Weight.DOUBT,
        most_speedup=slowdown_ratio,
        is_measured=True,
    )


def implausible_ceilings(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """A ceiling was measured above what the datasheet allows."""
    for published in evidence.published:
        if published.is_suspicious:
            measured = published.measured
            allowed_per_s = max(published.published_per_s, published.at_clock_per_s)
            write = metric("memory_bytes_per_s").format
            resource = "memory"
            words: tuple[str, ...] = ()
            if measured.resource == "compute":
                write = metric("flop_per_s").format
            if measured.dtype is not None:
                resource = "arithmetic in {}"
                words = (measured.dtype,)
            yield DiagnosisFinding(
                title="a measured ceiling above the datasheet",
                text=f"This run measured {write(measured.per_s)} for {resource}; the datasheet "
                f"allows {write(allowed_per_s)}."
                " Shares of that ceiling are too low.",
                words=words,
                advice="Measure again; if it persists, the timer or the reported device is wrong.",
                weight=Weight.DOUBT,
            )


def above_the_roof(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The kernel is faster than the ceilings of the same run allow."""
    share = evidence.utilisation
    if share is not None and share > ABOVE_ROOF:
        yield DiagnosisFinding(
            title="faster than the roof",
            text=f"{share:.0%} of the roofline: either the device was slower while its ceilings "
            f"were measured, "
            "or the cost model counts work that is not done.",
            advice="Measure again on an idle device; if it persists, check flop_count and "
            "memory_bytes of the case.",
            weight=Weight.DOUBT,
        )


def varying_kernels(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Launches of one call ran different kernels."""
    blocks = evidence.blocks
    varying_count = sum(block.is_kernel_set_varying for block in blocks)
    if varying_count:
        yield DiagnosisFinding(
            title="launches ran different kernels",
            text=f"In {varying_count} of {len(blocks)} blocks launches ran different kernels.",
            advice="Look for a choice at run time: autotuning, a plan cache, a changing shape.",
            weight=Weight.DOUBT,
        )


MEASUREMENT_RULES: tuple[Rule, ...] = (
    failed,
    throttled,
    implausible_ceilings,
    above_the_roof,
    varying_kernels,
)
