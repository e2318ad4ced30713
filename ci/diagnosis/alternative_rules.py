"""Rules about alternatives that ran too: other implementations and configurations."""

from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight
from roofwatch.model.metrics import format_ns

# less may be the noise of two separate measurements
FASTER_BY = 1.05
CLOSE_SECOND = 1.02
"""Noise decides between two configurations that are closer."""


def faster_implementation(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Another implementation of the case took clearly less time in the same run."""
    if evidence.timing is None or not evidence.others:
        return
    name, median_ns = min(evidence.others.items(), key=lambda item: item[1])
    speedup = evidence.timing.median_ns / median_ns
    # less may be noise between two implementations
    if speedup >= FASTER_BY:
        yield DiagnosisFinding(
            title="another implementation is faster",
            text=f"In the same run {{}} takes {format_ns(median_ns)}, this takes "
            f"{format_ns(evidence.timing.median_ns)}: {speedup:.2f} times as long.",
            words=(name,),
            advice="Use that implementation, or find out what it does differently.",
            most_speedup=speedup,
            is_measured=True,
        )


def autotuning(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The autotuner's own timings show a faster configuration, or one that is nearly as fast."""
    if evidence.measurement is None:
        return
    for tuning in evidence.measurement.autotuning:
        times_ns: dict[str, float] = {}
        for timing in tuning.timings:
            if timing.time_ns:
                times_ns[str(timing.configuration)] = timing.time_ns
        chosen_ns = times_ns.pop(str(tuning.chosen), None)
        # without a second configuration there was no choice
        if chosen_ns is None or not times_ns:
            continue
        other_ns = min(times_ns.values())
        if chosen_ns > other_ns * CLOSE_SECOND:
            slower = f"{chosen_ns / other_ns - 1:.1%} slower than another one"
            yield DiagnosisFinding(
                title="the autotuner did not choose the fastest configuration",
                text=f"For {{}} the chosen configuration is {slower}.",
                words=(tuning.function,),
                advice="Clear its cache and tune again on an idle device.",
                most_speedup=chosen_ns / other_ns,
                is_measured=True,
            )
        elif other_ns <= chosen_ns * CLOSE_SECOND:
            yield DiagnosisFinding(
                title="the autotuner has a close second",
                text=f"For {{}} the two fastest configurations differ by "
                f"{abs(other_ns / chosen_ns - 1):.1%}: another "
                "run may choose the other one.",
                words=(tuning.function,),
                advice="Fix the configuration if runs must be comparable.",
                weight=Weight.HINT,
            )


ALTERNATIVE_RULES: tuple[Rule, ...] = (faster_implementation, autotuning)
