"""Rules about machine code: what costs time on a GPU, whether it was run there or not.

What several functions or targets share is told once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.diagnosis.finding import Observation, Rule, Weight, share_in_words
from roofwatch.ci.message import Remark
from roofwatch.ci.static.facts import NO_TENSOR_PATH, code_facts
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import format_bytes
from roofwatch.collector.record.results import StaticFacts

NARROW_BITS = 32
"""Loads of up to this many bits are worth widening: one instruction can load 128."""
PRODUCT_INTENSITY = 20.0
"""FLOP per byte from which on a kernel must be a matrix product. Of two square ones in half precision it is a third of
their side: 64 gives 21. What works element by element, or adds up rows, stays below 10.
"""
FEW_BYTES = 2**20
"""Below it a device waits for the launch, not for bytes."""
LOW_OCCUPANCY = 0.25
"""With a quarter of the warps, a scheduler of four to choose from, most kernels can still hide their waiting by doing
several independent things in each thread (Volkov, Better Performance at Lower Occupancy, 2010); with less, few can.
"""

_TENSOR_DTYPES = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"})
_MAX_NAMED = 3
_MAX_MESSAGE = 300
_REMEDIES = {
    "registers": "fewer registers for each thread (a smaller tile, or more warps for the same tile)",
    "shared memory": "less shared memory for each block (a smaller tile, or a smaller num_stages)",
    "warps": "smaller blocks (num_warps)",
    "blocks": "larger blocks (num_warps)",
}
_LIMIT_NAMES = {"warps": "slots for warps", "blocks": "slots for blocks"}


def _no_room(evidence: Evidence) -> Iterator[Observation]:
    found = [fact for fact in evidence.compiled if fact.theoretical_occupancy == 0]
    if found:
        where, words = _where(found)
        text = f"Not one block of {where}, fits: it takes more than a multiprocessor has."
        yield Observation(text, words, weight=_doubt(evidence))


def _failed_to_compile(evidence: Evidence) -> Iterator[Observation]:
    found = [fact for fact in evidence.facts if fact.outcome not in {Outcome.OK, Outcome.UNSUPPORTED}]
    if found:
        where, words = _where(found)
        message = (found[0].message or "")[:_MAX_MESSAGE]
        yield Observation(f"For {where}, the compiler says: {{}}", (*words, message), weight=_doubt(evidence))


def _no_tensor_cores(evidence: Evidence) -> Iterator[Observation]:
    if evidence.case.dtype not in _TENSOR_DTYPES or (evidence.intensity or 0.0) < PRODUCT_INTENSITY:
        return
    paths = [(fact, code_facts(fact).tensor_path) for fact in evidence.compiled]
    using = {fact.target for fact, path in paths if path not in {None, NO_TENSOR_PATH}}
    without = [fact for fact, path in paths if path == NO_TENSOR_PATH and fact.target not in using]
    if not without:
        return
    where, words = _where(without)
    limit, share = evidence.limit, evidence.vector_share
    is_measured = evidence.has_own_facts and evidence.utilisation is not None
    reached = "" if share is None else f" It reaches {share_in_words(share)} of what this device does without them."
    yield Observation(
        f"The case does {evidence.intensity:.0f} FLOP for each byte that it needs, so it multiplies matrices, yet in "
        f"{where}, no instruction of the tensor cores is in the code: it runs on units that are many times slower."
        f"{reached}",
        words,
        most_speedup=1 / (evidence.utilisation or 1.0) if is_measured and limit is not Limit.MEMORY else None,
        weight=Weight.BINDING if limit is Limit.COMPUTE and is_measured else _cause(evidence),
    )


def _spills(evidence: Evidence) -> Iterator[Observation]:
    found = [fact for fact in evidence.compiled if fact.local_bytes or fact.spill_store_count or fact.spilled_registers]
    if found:
        where, words = _where(found)
        worst = max(found, key=lambda fact: (fact.local_bytes or 0, fact.spill_store_count or 0))
        yield Observation(
            f"In {where}, up to {format_bytes(worst.local_bytes or 0)} for each thread lie in device memory instead, a "
            f"hundred times further away; the code has {worst.spill_store_count or 0} stores and "
            f"{worst.spill_load_count or 0} loads for them.",
            words,
            weight=_cause(evidence),
        )


def _low_occupancy(evidence: Evidence) -> Iterator[Observation]:
    if evidence.limit not in {Limit.LATENCY, Limit.UNDETERMINED, Limit.MEMORY}:
        return
    found = [fact for fact in evidence.compiled if 0 < (fact.theoretical_occupancy or 1.0) < LOW_OCCUPANCY]
    if evidence.limit is not Limit.LATENCY:
        # where loads run ahead of the tensor cores, few warps are enough
        found = [fact for fact in found if not code_facts(fact).tensor_counts]
    if found:
        where, words = _where(found)
        worst = min(found, key=lambda fact: fact.theoretical_occupancy or 0.0)
        limits = [name for name in worst.occupancy_limits if name in _REMEDIES]
        named = " and ".join(_LIMIT_NAMES.get(name, name) for name in limits) or "its resources"
        remedies = " or ".join(_REMEDIES[name] for name in limits) or "smaller blocks"
        yield Observation(
            f"In {where}, at most {worst.theoretical_occupancy:.0%} of the places for warps can be taken (limited by "
            f"{named}), so that little is under way while others wait.",
            words,
            weight=_cause(evidence),
            advice=f"Aim for {remedies}; more independent loads for each thread do the same.",
        )


def _narrow_loads(evidence: Evidence) -> Iterator[Observation]:
    others = {Limit.COMPUTE, Limit.HOST, Limit.LINKS, Limit.LAUNCH}
    if evidence.limit in others or evidence.case.memory_bytes < FEW_BYTES:
        return
    widths = [(fact, code_facts(fact).reads.main_width) for fact in evidence.compiled]
    found = [fact for fact, width in widths if 0 < width <= NARROW_BITS and not fact.instructions.get("tma")]
    if found:
        where, words = _where(found)
        widest = max(width for fact, width in widths if fact in found)
        yield Observation(
            f"In {where}, most data is loaded {widest} bits at a time; one instruction can load 128, so up to "
            f"{128 // widest} times as many are needed.",
            words,
        )


CODE_RULES = (
    Rule(
        name="no_room",
        title="it cannot be launched",
        advice="A smaller tile, or a smaller num_stages.",
        observe=_no_room,
    ),
    Rule(
        name="failed_to_compile",
        title="it does not compile",
        advice="See `roofwatch static` for the whole message.",
        observe=_failed_to_compile,
    ),
    Rule(
        name="no_tensor_cores",
        limit=Limit.COMPUTE,
        title="tensor cores are not used",
        advice="Multiply with tl.dot, or the matrix instructions in CUDA C++; every dimension of a tile must be 16 or "
        "more, and both operands of a type that the tensor cores take.",
        observe=_no_tensor_cores,
    ),
    Rule(
        name="spills",
        limit=Limit.MEMORY,
        title="values that do not fit into registers",
        advice="Give each thread less to hold: a smaller tile, the same tile with more warps, or fewer stages.",
        observe=_spills,
    ),
    Rule(
        name="low_occupancy",
        limit=Limit.LATENCY,
        title="few warps at once",
        advice="Aim for smaller blocks.",
        observe=_low_occupancy,
    ),
    Rule(
        name="narrow_loads",
        limit=Limit.MEMORY,
        weight=Weight.HINT,
        title="narrow loads",
        advice="Let neighbouring elements go to one thread: a contiguous innermost dimension, strides and pointers "
        "that the compiler knows to be multiples of 16 bytes, masks on whole groups of elements.",
        observe=_narrow_loads,
    ),
)


def _cause(evidence: Evidence) -> Weight:
    """What the timed device itself runs is a cause; what another one would run, a hint."""
    return Weight.CAUSE if evidence.has_own_facts and evidence.timing is not None else Weight.HINT


def _doubt(evidence: Evidence) -> Weight:
    return Weight.DOUBT if evidence.has_own_facts else Weight.HINT


# --- words


def code_in_words(evidence: Evidence) -> Remark | None:
    """The facts of compiled code in a sentence, whether they are good or bad; None where nothing was compiled."""
    compiled = evidence.compiled
    if not compiled:
        return None
    targets, words = _listed([fact.target for fact in compiled])
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
    return Remark(f"compiled for {targets}: {', '.join(parts)}", words)


def _where(facts: Sequence[StaticFacts]) -> tuple[str, tuple[str, ...]]:
    """`{} and {}, compiled for {}`, and the names for it."""
    functions, function_names = _listed([fact.function for fact in facts])
    targets, target_names = _listed([fact.target for fact in facts])
    return f"{functions}, compiled for {targets}", (*function_names, *target_names)


def _listed(names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """`{}, {} and {}`, or `{}, {}, {} and 4 more`, and the names that are shown, each once."""
    distinct = tuple(dict.fromkeys(names))
    if len(distinct) > _MAX_NAMED + 1:
        slots = ", ".join("{}" for _ in range(_MAX_NAMED))
        return f"{slots} and {len(distinct) - _MAX_NAMED} more", distinct[:_MAX_NAMED]
    *first, last = ["{}" for _ in distinct]
    return f"{', '.join(first)} and {last}" if first else last, distinct
