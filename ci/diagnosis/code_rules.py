"""What machine code shows that costs time on a GPU, whether it was run there or not. Pure; one function a rule.

A fact that several functions or targets share is told once. docs/how-to/diagnose.md lists the rules with their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.ci.diagnosis.finding import Finding, Limit, Weight, share_in_words
from roofwatch.ci.message import Remark
from roofwatch.ci.static.facts import NO_TENSOR_PATH, code_facts
from roofwatch.collector.record.metrics import format_bytes
from roofwatch.collector.record.results import StaticFacts

NARROW_BITS = 32
"""What a thread loads at once, up to which wider loads are worth a try: one instruction can load 128 bits."""
PRODUCT_INTENSITY = 20.0
"""FLOP per byte from which on a kernel must be a product of matrices. Of two square ones in half precision it is a
third of their side: 64 gives 21. What works element by element, or adds up rows, stays below 10.
"""
FEW_BYTES = 2**20
"""Below it no device waits for bytes: it waits for the launch."""
LOW_OCCUPANCY = 0.25
"""Share of the places for warps that are taken. With a quarter, a scheduler of four to choose from, most kernels can
still hide their waiting by doing several independent things in each thread (Volkov, Better Performance at Lower
Occupancy, 2010); with less, few can.
"""
CLOSE_SECOND = 1.02
"""Two configurations closer than this are chosen between by noise."""

_TENSOR_DTYPES = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"})
_MAX_NAMED = 3
_WAYS_OUT = {
    "registers": "fewer registers for each thread (a smaller tile, or more warps for the same tile)",
    "shared memory": "less shared memory for each block (a smaller tile, or a smaller num_stages)",
    "warps": "smaller blocks (num_warps)",
    "blocks": "larger blocks (num_warps)",
}


def no_room(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """A block that fits on no multiprocessor.

    Source: CUDA C++ Programming Guide, technical specifications per compute capability.
    """
    del limit
    found = [fact for fact in evidence.compiled if fact.theoretical_occupancy == 0]
    if not found:
        return
    where = _where(found)
    yield Finding(
        rule="no_room",
        limit=None,
        weight=Weight.DOUBT if evidence.has_own_facts else Weight.HINT,
        title="it cannot be launched",
        evidence=Remark(
            f"Not one block of {where.template}, fits: it takes more than a multiprocessor has.", where.words
        ),
        advice="A smaller tile, or a smaller num_stages.",
    )


def spills(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Values that do not fit into registers.

    Source: NVIDIA CUDA C++ Best Practices Guide, "Local memory" and "Register pressure".
    """
    del limit
    found = [fact for fact in evidence.compiled if fact.local_bytes or fact.spill_store_count or fact.spilled_registers]
    if not found:
        return
    where = _where(found)
    worst = max(found, key=lambda fact: (fact.local_bytes or 0, fact.spill_store_count or 0))
    yield Finding(
        rule="spills",
        limit=Limit.MEMORY,
        weight=_weight(evidence),
        title="values that do not fit into registers",
        evidence=Remark(
            f"In {where.template}, up to {format_bytes(worst.local_bytes or 0)} for each thread lie in device memory "
            "instead, "
            f"a hundred times further away; the code has {worst.spill_store_count or 0} stores and "
            f"{worst.spill_load_count or 0} loads for them.",
            where.words,
        ),
        advice="Give each thread less to hold: a smaller tile, the same tile with more warps, or fewer stages.",
    )


def no_tensor_cores(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """A product of matrices on ordinary arithmetic units.

    Source: NVIDIA, Matrix Multiplication Background User's Guide, "Math and memory bounds".
    """
    case, compiled = evidence.case, evidence.compiled
    if case.dtype not in _TENSOR_DTYPES or (evidence.intensity or 0.0) < PRODUCT_INTENSITY:
        return
    targets = {fact.target for fact in compiled}
    using = {fact.target for fact in compiled if code_facts(fact).tensor_path not in {None, NO_TENSOR_PATH}}
    without = [
        fact for fact in compiled if fact.target in targets - using and code_facts(fact).tensor_path == NO_TENSOR_PATH
    ]
    if not without:
        return
    where = _where(without)
    is_measured = evidence.has_own_facts and evidence.utilisation is not None
    share = evidence.vector_share
    reached = "" if share is None else f" It reaches {share_in_words(share)} of what this device does without them."
    yield Finding(
        rule="no_tensor_cores",
        limit=Limit.COMPUTE,
        weight=Weight.BINDING if limit is Limit.COMPUTE and is_measured else _weight(evidence),
        title="tensor cores are not used",
        evidence=Remark(
            f"The case does {evidence.intensity:.0f} FLOP for each byte that it needs, so it multiplies matrices, yet "
            f"in {where.template}, no instruction of the tensor cores is in the code: it runs on units that are many "
            "times "
            f"slower.{reached}",
            where.words,
        ),
        advice="Multiply with tl.dot, or the matrix instructions in CUDA C++; every dimension of a tile must be 16 or "
        "more, and both operands of a type that the tensor cores take.",
        most_speedup=max(1 / (evidence.utilisation or 1.0), 1.0) if is_measured and limit is not Limit.MEMORY else None,
    )


def narrow_loads(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Loads of a few bytes each.

    Source: NVIDIA developer blog, "CUDA Pro Tip: Increase Performance with Vectorized Memory Access".
    """
    if limit in {Limit.COMPUTE, Limit.HOST, Limit.LINKS, Limit.LAUNCH} or evidence.case.memory_bytes < FEW_BYTES:
        return
    found = [fact for fact in evidence.compiled if 0 < code_facts(fact).reads.main_width <= NARROW_BITS]
    found = [fact for fact in found if not fact.instructions.get("tma")]
    if not found:
        return
    where = _where(found)
    widest = max(code_facts(fact).reads.main_width for fact in found)
    yield Finding(
        rule="narrow_loads",
        limit=Limit.MEMORY,
        weight=Weight.HINT,
        title="narrow loads",
        evidence=Remark(
            f"In {where.template}, most data is loaded {widest} bits at a time; one instruction can load 128, so up to "
            f"{128 // widest} times as many are needed.",
            where.words,
        ),
        advice="Let neighbouring elements go to one thread: a contiguous innermost dimension, strides and pointers "
        "that "
        "the compiler knows to be multiples of 16 bytes, masks on whole groups of elements.",
    )


def low_occupancy(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Few warps at once.

    Source: NVIDIA CUDA C++ Best Practices Guide, "Occupancy"; Volkov, Better Performance at Lower Occupancy (2010),
    for when it does not matter: not where loads run ahead of the tensor cores.
    """
    if limit not in {Limit.LATENCY, Limit.UNDETERMINED, Limit.MEMORY}:
        return
    found = [fact for fact in evidence.compiled if 0 < (fact.theoretical_occupancy or 1.0) < LOW_OCCUPANCY]
    if limit is not Limit.LATENCY:
        found = [fact for fact in found if not code_facts(fact).tensor_counts]
    if not found:
        return
    where = _where(found)
    worst = min(found, key=lambda fact: fact.theoretical_occupancy or 0.0)
    ways_out = [_WAYS_OUT[name] for name in worst.occupancy_limits if name in _WAYS_OUT]
    yield Finding(
        rule="low_occupancy",
        limit=Limit.LATENCY,
        weight=_weight(evidence),
        title="few warps at once",
        evidence=Remark(
            f"In {where.template}, at most {worst.theoretical_occupancy:.0%} of the places for warps can be taken "
            f"(limited by {_limits(worst)}), so that little is under way while others wait.",
            where.words,
        ),
        advice=f"Aim for {' or '.join(ways_out) or 'smaller blocks'}; more independent loads for each thread do the "
        "same.",
    )


def failed_to_compile(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """Code that does not compile for a target."""
    del limit
    found = [fact for fact in evidence.facts if fact.outcome not in {"ok", "unsupported"}]
    if not found:
        return
    where = _where(found)
    yield Finding(
        rule="failed_to_compile",
        limit=None,
        weight=Weight.DOUBT if evidence.has_own_facts else Weight.HINT,
        title="it does not compile",
        evidence=Remark(
            f"For {where.template}, the compiler says: {{}}", (*where.words, (found[0].message or "")[:300])
        ),
        advice="See `roofwatch static` for the whole message.",
    )


def autotuning(evidence: Evidence, limit: Limit) -> Iterator[Finding]:
    """What the autotuner chose, and how clearly.

    Source: triton-lang/triton#1679, on choices that a cache made.
    """
    del limit
    tunings = () if evidence.measurement is None else evidence.measurement.autotuning
    for tuning in tunings:
        times = {str(each.configuration): each.time_ns for each in tuning.timings if each.time_ns}
        chosen = times.get(str(tuning.chosen))
        if chosen is None or len(times) < 2:
            continue
        second = min(time for configuration, time in times.items() if configuration != str(tuning.chosen))
        words = (tuning.function,)
        if chosen > second * CLOSE_SECOND:
            yield Finding(
                rule="autotuning",
                limit=None,
                weight=Weight.CAUSE,
                title="the autotuner did not choose the fastest",
                evidence=Remark(
                    f"For {{}} it chose a configuration that it had timed {chosen / second - 1:.1%} slower than "
                    "another.",
                    words,
                ),
                advice="Clear its cache and tune again while nothing else uses the device.",
                most_speedup=chosen / second,
                is_measured=True,
            )
        elif second <= chosen * CLOSE_SECOND:
            yield Finding(
                rule="autotuning",
                limit=None,
                weight=Weight.HINT,
                title="a close second in the autotuner",
                evidence=Remark(
                    f"For {{}} its second choice is within {abs(second / chosen - 1):.1%} of its first: another run "
                    "may "
                    "choose otherwise, and move the time with it.",
                    words,
                ),
                advice="Fix the configuration where runs must compare.",
            )


# --- words


def code_in_words(evidence: Evidence) -> Remark | None:
    """The facts of compiled code in a sentence, whether they are good or bad; None where nothing was compiled."""
    compiled = evidence.compiled
    if not compiled:
        return None
    targets = _distinct(compiled, lambda fact: fact.target)
    spilling = sum(bool(fact.local_bytes) for fact in compiled)
    parts = ["nothing spills" if not spilling else f"{spilling} of {len(compiled)} functions spill"]
    shares = [fact.theoretical_occupancy for fact in compiled if fact.theoretical_occupancy is not None]
    if shares:
        least, most = f"{min(shares):.0%}", f"{max(shares):.0%}"
        parts.append(f"{least if least == most else f'{least} to {most}'} of the places for warps can be taken")
    widths = [width for fact in compiled if (width := code_facts(fact).reads.main_width)]
    if widths:
        parts.append(f"most data is loaded {min(widths)} bits at a time or more")
    if any(code_facts(fact).tensor_counts for fact in compiled):
        parts.append("tensor cores are used")
    return Remark(f"compiled for {_slots(targets)}: {', '.join(parts)}", tuple(_named(targets)))


def _weight(evidence: Evidence) -> Weight:
    """What the timed device itself runs is a cause; what another one would run, a hint."""
    return Weight.CAUSE if evidence.has_own_facts and evidence.timing is not None else Weight.HINT


def _limits(fact: StaticFacts) -> str:
    known = [name for name in fact.occupancy_limits if name in _WAYS_OUT]
    named = {"warps": "slots for warps", "blocks": "slots for blocks"}
    return " and ".join(named.get(name, name) for name in known) or "its resources"


def _where(facts: Sequence[StaticFacts]) -> Remark:
    """`f and g, compiled for sm_80 and sm_90`, with the names of a record as words."""
    functions, targets = _distinct(facts, lambda fact: fact.function), _distinct(facts, lambda fact: fact.target)
    return Remark(f"{_slots(functions)}, compiled for {_slots(targets)}", (*_named(functions), *_named(targets)))


def _distinct(facts: Sequence[StaticFacts], name_of: Callable[[StaticFacts], str]) -> list[str]:
    return list(dict.fromkeys(map(name_of, facts)))


def _named(names: Sequence[str]) -> list[str]:
    return list(names[: _MAX_NAMED if len(names) > _MAX_NAMED + 1 else len(names)])


def _slots(names: Sequence[str]) -> str:
    shown = len(_named(names))
    parts = ["{}"] * shown
    if len(names) > shown:
        return f"{', '.join(parts)} and {len(names) - shown} more"
    return parts[0] if shown == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
