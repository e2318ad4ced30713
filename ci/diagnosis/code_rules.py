"""Rules about machine code, whether it was run or only compiled."""

from collections.abc import Iterator, Sequence

from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight, share_in_words
from roofwatch.ci.messages import Remark, listed
from roofwatch.ci.static.facts import TensorPath, code_facts
from roofwatch.model.metrics import format_bytes
from roofwatch.model.results import StaticFacts

NARROW_BITS = 32
"""One instruction can load 128 bits."""
PRODUCT_INTENSITY = 20.0
"""FLOP per byte above which a kernel must be a matrix product; a square one of side 64 in half
precision has 21.
"""
FEW_BYTES = 2**20
"""Below it the launch takes longer than the bytes."""
LOW_OCCUPANCY = 0.25
"""Below it few kernels hide latency (Volkov, Better Performance at Lower Occupancy, 2010)."""

# float32 reaches tensor cores only as TF32, which changes results
_TENSOR_DTYPES = frozenset({"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"})
# more functions make the sentence unreadable
_MAX_NAMES = 3
_MAX_MESSAGE = 300
_REMEDIES = {
    "registers": "fewer registers per thread (a smaller tile, or more warps for the same tile)",
    "shared memory": "less shared memory per block (a smaller tile, or a smaller num_stages)",
    "warps": "smaller blocks (num_warps)",
    "blocks": "larger blocks (num_warps)",
}
"""By the resource that limits occupancy."""


def too_large_to_launch(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """No block of the kernel fits onto a multiprocessor."""
    facts = [fact for fact in evidence.compiled if fact.theoretical_occupancy == 0]
    # an occupancy of 0 means that not a single block fits
    if facts:
        where, words = _where(facts)
        yield DiagnosisFinding(
            title="it cannot be launched",
            text=f"A block of {where} needs more than a multiprocessor has.",
            words=words,
            advice="Use a smaller tile, or a smaller num_stages.",
            weight=_weight_of_failure(evidence),
        )


def failed_to_compile(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """The compiler refused the kernel for the target."""
    facts = [fact for fact in evidence.facts if fact.outcome.is_failure]
    if facts:
        where, words = _where(facts)
        # compilers write pages
        message = (facts[0].message or "")[:_MAX_MESSAGE]
        yield DiagnosisFinding(
            title="it does not compile",
            text=f"The compiler reports for {where}: {{}}",
            words=(*words, message),
            advice="See `roofwatch static` for the whole message.",
            weight=_weight_of_failure(evidence),
        )


def _weight_of_failure(evidence: Evidence) -> Weight:
    """A failure for the device itself puts the measurement in doubt; for another, it is a hint."""
    if evidence.has_own_facts:
        return Weight.DOUBT
    return Weight.HINT


def no_tensor_cores(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """A matrix product in a dtype of the tensor cores compiles to other instructions."""
    if evidence.case.dtype not in _TENSOR_DTYPES:
        return
    if (evidence.intensity or 0.0) < PRODUCT_INTENSITY:
        return
    facts = _without_tensor_cores(evidence.compiled)
    if not facts:
        return
    where, words = _where(facts)
    utilisation = evidence.utilisation
    is_measured = evidence.has_own_facts and utilisation is not None
    weight = _weight(evidence)
    if is_measured and evidence.limit is Limit.COMPUTE:
        weight = Weight.BINDING
    most_speedup = None
    # faster arithmetic does not help where memory binds
    if is_measured and evidence.limit is not Limit.MEMORY:
        most_speedup = 1 / (utilisation or 1.0)
    reached = ""
    if evidence.vector_share is not None:
        share = share_in_words(evidence.vector_share)
        reached = f" It reaches {share} of the ceiling without tensor cores."
    yield DiagnosisFinding(
        title="tensor cores are not used",
        text=f"At {evidence.intensity:.0f} FLOP/byte the case is a matrix product, but {where} "
        f"has no tensor core "
        f"instructions and runs on far slower units.{reached}",
        words=words,
        advice="Multiply with tl.dot, or with matrix instructions in CUDA C++. Every tile "
        "dimension must be at least "
        "16, and the tensor cores must support the type of both operands.",
        weight=weight,
        most_speedup=most_speedup,
    )


def _without_tensor_cores(compiled: Sequence[StaticFacts]) -> list[StaticFacts]:
    """Code that uses no tensor cores, of targets where no other function of the case does."""
    paths = [(fact, code_facts(fact).tensor_path) for fact in compiled]
    unused = [fact for fact, path in paths if path is TensorPath.NONE]
    without = {None, TensorPath.NONE}
    targets_with = {fact.target for fact, path in paths if path not in without}
    return [fact for fact in unused if fact.target not in targets_with]


def spills(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Registers do not suffice, so values are in local memory."""
    facts = [
        fact
        for fact in evidence.compiled
        if fact.local_bytes or fact.spill_store_count or fact.spilled_registers
    ]
    if facts:
        where, words = _where(facts)
        worst = max(
            facts,
            key=lambda fact: (fact.local_bytes or 0, fact.spill_store_count or 0),
        )
        yield DiagnosisFinding(
            title="register spills",
            text=f"In {where}, up to {format_bytes(worst.local_bytes or 0)} per thread are in "
            f"local memory, with "
            f"{worst.spill_store_count or 0} spill stores and {worst.spill_load_count or 0} spill "
            f"loads.",
            words=words,
            advice="Use fewer registers per thread: a smaller tile, the same tile with more "
            "warps, or fewer stages.",
            weight=_weight(evidence),
        )


def low_occupancy(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Few warps fit onto a multiprocessor, where that may cost time."""
    if evidence.limit not in {Limit.LATENCY, Limit.UNDETERMINED, Limit.MEMORY}:
        return
    facts = [
        fact
        for fact in evidence.compiled
        if 0 < (fact.theoretical_occupancy or 1.0) < LOW_OCCUPANCY
    ]
    # few warps suffice if loads run ahead of the tensor cores
    if evidence.limit is not Limit.LATENCY:
        facts = [fact for fact in facts if not code_facts(fact).tensor_counts]
    if facts:
        where, words = _where(facts)
        worst = min(facts, key=lambda fact: fact.theoretical_occupancy or 0.0)
        limits = [name for name in worst.occupancy_limits if name in _REMEDIES]
        known_remedies = [_REMEDIES[name] for name in limits]
        remedies = " or ".join(known_remedies) or "smaller blocks"
        yield DiagnosisFinding(
            title="low occupancy",
            text=f"In {where}, theoretical occupancy is only {worst.theoretical_occupancy:.0%} "
            f"(limited by "
            f"{' and '.join(limits) or 'its resources'}).",
            words=words,
            advice=f"Aim for {remedies}, or more independent loads per thread.",
            weight=_weight(evidence),
        )


def narrow_loads(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    """Half of the bytes or more are read with narrow instructions."""
    # wider loads help only where loads take the time
    other_limits = {Limit.COMPUTE, Limit.HOST, Limit.LINKS, Limit.LAUNCH}
    if evidence.limit in other_limits or evidence.case.memory_bytes < FEW_BYTES:
        return
    # bulk copies (TMA) load tiles as a whole
    without_tma = [fact for fact in evidence.compiled if not fact.instructions.get("tma")]
    narrow = [fact for fact in without_tma if 0 < _load_bits(fact) <= NARROW_BITS]
    if narrow:
        where, words = _where(narrow)
        widest = max(map(_load_bits, narrow))
        yield DiagnosisFinding(
            title="narrow loads",
            text=f"In {where}, at least half of the data is loaded {widest} bits per instruction; "
            f"128 are possible.",
            words=words,
            advice="Give each thread neighbouring elements: a contiguous innermost dimension, "
            "strides and pointers "
            "that the compiler knows to be multiples of 16 bytes, and masks on whole groups of "
            "elements.",
            weight=Weight.HINT,
        )


def _load_bits(fact: StaticFacts) -> int:
    """Width of the narrowest loads that fetch half of the data; 0 if unknown."""
    reads = code_facts(fact).reads
    halves = [
        width
        for width, count in reads.count_by_width.items()
        if 2 * width * count >= reads.total_bits
    ]
    return min(halves, default=reads.main_width)


CODE_RULES: tuple[Rule, ...] = (
    too_large_to_launch,
    failed_to_compile,
    no_tensor_cores,
    spills,
    low_occupancy,
    narrow_loads,
)


def summarise_code(evidence: Evidence) -> Remark | None:
    """Summarise the compiled code in a sentence; None if nothing was compiled."""
    compiled = evidence.compiled
    if not compiled:
        return None
    targets, words = _template_of([fact.target for fact in compiled])
    parts = ["no spills"]
    spill_count = sum(bool(fact.local_bytes) for fact in compiled)
    if spill_count:
        parts = [f"{spill_count} of {len(compiled)} functions spill"]
    shares = [
        fact.theoretical_occupancy for fact in compiled if fact.theoretical_occupancy is not None
    ]
    if shares:
        lowest = f"{min(shares):.0%}"
        highest = f"{max(shares):.0%}"
        occupancy = f"{lowest} to {highest}"
        # one number says it if all functions have the same
        if lowest == highest:
            occupancy = lowest
        parts.append(f"theoretical occupancy {occupancy}")
    load_bits = list(filter(None, map(_load_bits, compiled)))
    if load_bits:
        parts.append(f"most data in loads of {min(load_bits)} bits or more")
    if any(code_facts(fact).tensor_counts for fact in compiled):
        parts.append("tensor cores are used")
    return Remark(f"compiled for {targets}: {', '.join(parts)}", words)


def _weight(evidence: Evidence) -> Weight:
    """A fact about the code that was timed is a cause; about other code, a hint."""
    if evidence.has_own_facts and evidence.timing is not None:
        return Weight.CAUSE
    return Weight.HINT


def _where(facts: Sequence[StaticFacts]) -> tuple[str, tuple[str, ...]]:
    """Name the functions and targets as a template with its words."""
    functions, function_names = _template_of([fact.function for fact in facts])
    targets, target_names = _template_of([fact.target for fact in facts])
    return f"{functions} ({targets})", (*function_names, *target_names)


def _template_of(names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """List distinct names as a template with its words: `{}, {}, {} and 4 more`."""
    distinct = tuple(dict.fromkeys(names))
    template = listed(["{}"] * len(distinct), _MAX_NAMES)
    return template, distinct[:_MAX_NAMES]
