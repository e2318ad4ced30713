"""Explains a change of machine code in one sentence with numbers.

Names and values of a configuration come from a record, so they are kept as arguments of a `Remark`.
"""

from collections.abc import Iterator, Mapping

from roofwatch.ci.messages import Remark, count_of, join_remarks
from roofwatch.ci.static.facts import (
    DECISIVE_FACTS,
    Accesses,
    CodeFacts,
    TensorPath,
    code_facts,
    judge_facts,
    moved_facts,
)
from roofwatch.model.metrics import metric
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Verdict

_PHRASES = {
    "registers": "registers {} → {}",
    "spilled_registers": "spilled registers {} → {}",
    "spill_store_count": "spills {} → {} stores",
    "local_bytes": "memory per thread {} → {}",
    "shared_bytes": "shared memory {} → {}",
    "theoretical_occupancy": "occupancy {} → {}",
}
_MINOR_PHRASES = {
    "instruction_count": "instructions {} → {}",
    "code_bytes": "code {} → {}",
}
"""Shown if nothing else changed."""
_OPTIONS = frozenset(
    {
        "num_warps",
        "num_stages",
        "num_ctas",
        "waves_per_eu",
        "enable_fp_fusion",
        "template",
        "maxnreg",
    }
)
"""Launch options; the rest of a configuration are constexprs."""
_MAX_REGISTERS = 255
"""Per thread of an NVIDIA GPU. Source: CUDA C++ Programming Guide, technical specifications."""
_BLOCK_REGISTERS = 65_536
"""Of a block, and of a multiprocessor. Source: the same table."""
_MAX_INSTRUCTION_NAME = 16
_MAX_CHANGES = 6
_OCCUPANCY = "theoretical_occupancy"
_RESOURCES = {
    "warps": "resident warps",
    "blocks": "resident blocks",
}
_FACTORS = {
    2: "twice",
    3: "three times",
    4: "four times",
    8: "eight times",
}
_UNSET = frozenset({None, "", "none"})
"""Versions of Triton differ in how they write an option that is not set."""


def explain(base: StaticFacts, head: StaticFacts) -> Remark | None:
    """Describe what changed from base to head and why it matters; None if no fact changed. Both
    must have compiled.
    """
    base_facts = code_facts(base)
    head_facts = code_facts(head)
    changed = [
        *_changed_values(base_facts, head_facts, _PHRASES),
        *_changed_instructions(base_facts, head_facts),
    ]
    minor = _changed_values(base_facts, head_facts, _MINOR_PHRASES)
    numbers = ", ".join(changed or minor)
    # other machine code with the same facts and settings has nothing to explain
    if not numbers and base.configuration == head.configuration:
        return None
    reasons = [
        *_fit_reason(base_facts, head_facts, head),
        *_spill_reason(base_facts, head_facts, head),
        *_instruction_reasons(base_facts, head_facts),
        *_occupancy_reason(base_facts, head_facts, head),
    ]
    sentence = Remark(numbers or "the same facts")
    if reasons:
        sentence = join_remarks(": ", [sentence, join_remarks("; ", reasons)])
    return join_remarks("; ", [sentence, *_changed_configuration(base, head)])


def _changed_values(
    base: CodeFacts,
    head: CodeFacts,
    phrases: dict[str, str],
) -> Iterator[str]:
    """Both values of each fact that changed, by its phrase."""
    moved = moved_facts(base.values, head.values)
    for name, phrase in phrases.items():
        if name in moved:
            write = metric(name).format
            base_text = write(base.values[name])
            head_text = write(head.values[name])
            yield phrase.format(base_text, head_text)


def _changed_instructions(base: CodeFacts, head: CodeFacts) -> Iterator[str]:
    """Instructions that changed in kind or width."""
    # without a disassembly, an instruction that is not listed may occur all the same
    is_disassembled = base.is_disassembled and head.is_disassembled
    if is_disassembled and base.tensor_path != head.tensor_path:
        yield f"tensor-core instructions {_tensor_counts(base)} → {_tensor_counts(head)}"
    yield from _changed_width("loads", base.reads, head.reads)
    yield from _changed_width("stores", base.writes, head.writes)
    if is_disassembled:
        yield from _changed_use(
            name="asynchronous copies",
            base_count=_async_count(base),
            head_count=_async_count(head),
        )
        yield from _changed_use(
            name="TMA instructions",
            base_count=_tma_count(base),
            head_count=_tma_count(head),
        )


def _changed_width(
    name: str,
    base: Accesses,
    head: Accesses,
) -> Iterator[str]:
    """The width in bits that moves most bytes, if it changed."""
    base_bits = base.main_width
    head_bits = head.main_width
    # a side without accesses has no width
    if base_bits and head_bits and base_bits != head_bits:
        yield f"global {name} {base_bits} bit → {head_bits} bit"


def _changed_use(
    name: str,
    base_count: int,
    head_count: int,
) -> Iterator[str]:
    """A kind of instruction that began or ceased to be used."""
    # how many there are depends on unrolling; whether there are any does not
    if (base_count == 0) != (head_count == 0):
        yield f"{name} {base_count} → {head_count}"


def _fit_reason(
    base: CodeFacts,
    head: CodeFacts,
    function: StaticFacts,
) -> Iterator[Remark]:
    """Why a kernel that could be launched no longer can."""
    base_occupancy = base.values.get(_OCCUPANCY)
    # what did not fit before is no news
    if head.values.get(_OCCUPANCY) == 0 and base_occupancy != 0:
        text = "no block fits on a multiprocessor of {}: the kernel cannot be launched"
        yield Remark(text, (function.target,))


def _spill_reason(
    base: CodeFacts,
    head: CodeFacts,
    function: StaticFacts,
) -> Iterator[Remark]:
    """Why values went to local memory, or came back from it."""
    verdict = judge_facts(base.values, head.values)
    if verdict is Verdict.UNCHANGED:
        return
    is_worse = verdict is Verdict.REGRESSED
    better_side = base if is_worse else head
    do_both_spill = any(better_side.values.get(name) for name in DECISIVE_FACTS)
    lengths = tile_lengths(function)
    tile = _tile(lengths)
    match do_both_spill, is_worse:
        case True, True:
            template = f"less of {tile} fits"
        case True, False:
            template = f"more of {tile} fits"
        case False, True:
            template = f"{tile} no longer fits"
        case _:
            template = f"{tile} fits"
    template += f" into the registers of {_owner_of_tile(function)}"
    if is_worse:
        template += _register_limit(function)
    yield Remark(template, tuple(lengths))


def explain_spills(function: StaticFacts) -> Remark | None:
    """Say why a compiled function keeps values in local memory; None if it does not."""
    if not function.local_bytes:
        return None
    local_memory = metric("local_bytes").format(function.local_bytes)
    amount = f"{local_memory} per thread are in local memory"
    store_count = function.spill_store_count or 0
    load_count = function.spill_load_count or 0
    # an older compiler does not count them
    if store_count or load_count:
        amount += f", with {store_count} stores and {load_count} loads"
    # registers were free, so the size of the tile is not the reason
    if not _is_at_register_limit(function) and not function.spilled_registers:
        registers = function.registers or 0
        return Remark(
            f"spills with {registers} registers per thread: an array with a variable index, or a "
            f"limit that the launch sets; {amount}"
        )
    lengths = tile_lengths(function)
    owner = f"{_owner_of_tile(function)}{_register_limit(function)}"
    return Remark(
        f"spills: {_tile(lengths)} does not fit into the registers of {owner}; {amount}",
        tuple(lengths),
    )


def _register_limit(function: StaticFacts) -> str:
    """The limit of registers in parentheses; empty for a function below it."""
    if not _is_at_register_limit(function):
        return ""
    return f" (at most {_most_registers(function)} per thread)"


def _most_registers(function: StaticFacts) -> int:
    """Return how many registers a thread of an NVIDIA GPU can have in a block of this size."""
    thread_count = max(function.thread_count or 1, 1)
    return min(_MAX_REGISTERS, _BLOCK_REGISTERS // thread_count)


def _is_at_register_limit(function: StaticFacts) -> bool:
    # AMD's compiler has other limits
    if not function.target.startswith("sm_"):
        return False
    return (function.registers or 0) >= _most_registers(function)


def _tile(lengths: Mapping[str, int]) -> str:
    """Write a tile, with one `{}` for each name."""
    if not lengths:
        return "what a thread works on"
    sizes = " × ".join(map(str, lengths.values()))
    gaps = ["{}"] * len(lengths)
    names = ", ".join(gaps)
    return f"the tile of {sizes} ({names})"


def tile_lengths(function: StaticFacts) -> dict[str, int]:
    """Lengths of the tile by the name of the constexpr."""
    return {
        name: value
        for name, value in function.configuration.items()
        if name.startswith("BLOCK") and type(value) is int and value > 1
    }


def _owner_of_tile(function: StaticFacts) -> str:
    """The warps that share a tile."""
    warps = function.configuration.get("num_warps")
    if type(warps) is not int:
        return "a block"
    return count_of(warps, "warp")


def _instruction_reasons(base: CodeFacts, head: CodeFacts) -> Iterator[Remark]:
    """What other instructions mean for the time."""
    base_path = base.tensor_path
    head_path = head.tensor_path
    # of code that was not disassembled, the path is unknown
    if base_path is not None and head_path is not None and base_path != head_path:
        yield _tensor_reason(base_path, head_path)
    yield from _width_reason(base.reads, head.reads)
    yield from _width_reason(base.writes, head.writes)
    # without a disassembly, no count says that an instruction is gone
    if base.is_disassembled and head.is_disassembled:
        base_copy_count = _async_count(base) + _tma_count(base)
        head_copy_count = _async_count(head) + _tma_count(head)
        if base_copy_count and not head_copy_count:
            yield Remark("loads no longer overlap with arithmetic through shared memory")


def _tensor_reason(base: TensorPath, head: TensorPath) -> Remark:
    if head is TensorPath.NONE:
        return Remark("matrix products no longer use tensor cores and are many times slower")
    if head < base:
        return Remark(f"{head.title} use less of the tensor cores than {base.title}")
    return Remark(f"matrix products now use {head.title}")


def _width_reason(base: Accesses, head: Accesses) -> Iterator[Remark]:
    if head.is_narrower_than(base):
        factor = _factor(base.main_width // head.main_width)
        yield Remark(f"{factor} the instructions for the same bytes")
    elif base.is_narrower_than(head):
        factor = _factor(head.main_width // base.main_width)
        yield Remark(f"the same bytes with instructions {factor} as wide")


def _occupancy_reason(
    base: CodeFacts,
    head: CodeFacts,
    function: StaticFacts,
) -> Iterator[Remark]:
    """What limits an occupancy that fell."""
    base_occupancy = base.values.get(_OCCUPANCY)
    head_occupancy = head.values.get(_OCCUPANCY)
    limits = function.occupancy_limits
    if base_occupancy is None or head_occupancy is None or not limits:
        return
    # an occupancy of 0 has its own reason
    if 0 < head_occupancy < base_occupancy:
        names = tuple(_RESOURCES.get(limit, limit) for limit in limits)
        listed = " and ".join("{}" for _ in limits)
        yield Remark(f"occupancy is limited by {listed}", names)


def _tensor_counts(facts: CodeFacts) -> str:
    """Tensor-core instructions by name, as far as the names may be shown."""
    # names come from a record: show only what looks like an instruction
    named = [
        f"{count} {name}"
        for name, count in sorted(facts.tensor_counts.items())
        if name.isascii() and name.isalnum() and len(name) <= _MAX_INSTRUCTION_NAME
    ]
    total = sum(facts.tensor_counts.values())
    return " and ".join(named) or str(total)


def _async_count(facts: CodeFacts) -> int:
    return sum(
        count for kind, count in facts.instructions.items() if kind.startswith("async_copy.")
    )


def _tma_count(facts: CodeFacts) -> int:
    return facts.instructions.get("tma", 0)


def _factor(factor: int) -> str:
    return _FACTORS.get(factor, f"{factor} times")


def _changed_configuration(base: StaticFacts, head: StaticFacts) -> Iterator[Remark]:
    """Describe changed launch options and constexprs, options first."""
    names = {**base.configuration, **head.configuration}
    changed: list[Remark] = []
    # sorting is stable, so each kind keeps the order of the configuration
    for name in sorted(names, key=lambda name: name not in _OPTIONS):
        base_value = base.configuration.get(name)
        head_value = head.configuration.get(name)
        # two ways to write an option that is not set
        if {base_value, head_value} <= _UNSET:
            continue
        if base_value != head_value:
            words = (
                name,
                _setting(base_value),
                _setting(head_value),
            )
            changed.append(Remark("{} {} → {}", words))
    if not changed:
        return
    listed = changed[:_MAX_CHANGES]
    more_count = len(changed) - len(listed)
    if more_count:
        listed.append(Remark(f"{more_count} more"))
    settings = join_remarks(", ", listed)
    yield Remark(f"configuration: {settings.template}", settings.words)


def _setting(value: object) -> str:
    if value is None:
        return "–"
    return str(value)
