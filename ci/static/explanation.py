"""Explains a change of machine code in one sentence with numbers.

Names and values of a configuration come from a record, so they are kept as arguments of a `Remark`.
"""

from collections.abc import Iterator

from roofwatch.ci.messages import Remark
from roofwatch.ci.static.facts import (
    DECISIVE_FACTS,
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
_MINOR_PHRASES = {"instruction_count": "instructions {} → {}", "code_bytes": "code {} → {}"}
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
_MAX_INSTRUCTION_NAME = 16
_MAX_CHANGES = 6
_RESOURCES = {"warps": "resident warps", "blocks": "resident blocks"}
_FACTORS = {2: "twice", 3: "three times", 4: "four times", 8: "eight times"}
_UNSET = frozenset({None, "", "none"})
"""Versions of Triton differ in how they write an option that is not set."""


def explain(base: StaticFacts, head: StaticFacts) -> Remark | None:
    """Describe what changed from base to head and why it matters; None if no fact changed. Both
    must have compiled.
    """
    before, after = code_facts(base), code_facts(head)
    changed = [*_changed_values(before, after, _PHRASES), *_changed_instructions(before, after)]
    numbers = ", ".join(changed or _changed_values(before, after, _MINOR_PHRASES))
    if not numbers and base.configuration == head.configuration:
        return None
    reasons = [
        *_fit_reason(before, after, head),
        *_spill_reason(before, after, head),
        *_instruction_reasons(before, after),
        *_occupancy_reason(before, after, head),
    ]
    sentence = Remark(numbers or "the same facts")
    if reasons:
        sentence = _joined(": ", sentence, _joined("; ", *reasons))
    return _joined("; ", sentence, *_changed_configuration(base, head))


def _changed_values(before: CodeFacts, after: CodeFacts, phrases: dict[str, str]) -> Iterator[str]:
    moved = moved_facts(before.values, after.values)
    for name, phrase in phrases.items():
        if name in moved:
            yield phrase.format(
                *(metric(name).format(side.values[name]) for side in (before, after))
            )


def _changed_instructions(before: CodeFacts, after: CodeFacts) -> Iterator[str]:
    is_disassembled = before.is_disassembled and after.is_disassembled
    if is_disassembled and before.tensor_path != after.tensor_path:
        yield f"tensor-core instructions {_tensor_counts(before)} → {_tensor_counts(after)}"
    for name, old, new in (
        ("loads", before.reads, after.reads),
        ("stores", before.writes, after.writes),
    ):
        if old.main_width and new.main_width and old.main_width != new.main_width:
            yield f"global {name} {old.main_width} bit → {new.main_width} bit"
    for name, old_count, new_count in (
        ("asynchronous copies", _async_count(before), _async_count(after)),
        ("TMA instructions", _tma_count(before), _tma_count(after)),
    ):
        if is_disassembled and (old_count == 0) != (new_count == 0):
            yield f"{name} {old_count} → {new_count}"


def _fit_reason(before: CodeFacts, after: CodeFacts, head: StaticFacts) -> Iterator[Remark]:
    if after.values.get("theoretical_occupancy") == 0 != before.values.get("theoretical_occupancy"):
        yield Remark(
            "no block fits on a multiprocessor of {}: the kernel cannot be launched", (head.target,)
        )


def _spill_reason(before: CodeFacts, after: CodeFacts, head: StaticFacts) -> Iterator[Remark]:
    verdict = judge_facts(before.values, after.values)
    if verdict is Verdict.UNCHANGED:
        return
    is_worse = verdict is Verdict.REGRESSED
    lengths = {
        name: value
        for name, value in head.configuration.items()
        if name.startswith("BLOCK") and type(value) is int and value > 1
    }
    tile = "what a thread works on"
    if lengths:
        tile = (
            f"the tile of {' × '.join(map(str, lengths.values()))} "
            f"({', '.join('{}' for _ in lengths)})"
        )
    warps = head.configuration.get("num_warps")
    owner = "a block" if type(warps) is not int else "1 warp" if warps == 1 else f"{warps} warps"
    if any((before if is_worse else after).values.get(name) for name in DECISIVE_FACTS):
        template = f"{'less' if is_worse else 'more'} of {tile} fits into the registers of {owner}"
    else:
        template = (
            f"{tile} {'no longer fits' if is_worse else 'fits'} into the registers of {owner}"
        )
    if is_worse and head.target.startswith("sm_") and (head.registers or 0) >= _MAX_REGISTERS:
        template += f" (at most {_MAX_REGISTERS} per thread)"
    yield Remark(template, tuple(lengths))


def _instruction_reasons(before: CodeFacts, after: CodeFacts) -> Iterator[Remark]:
    old, new = before.tensor_path, after.tensor_path
    if old is not None and new is not None and old != new:
        if new is TensorPath.NONE:
            yield Remark("matrix products no longer use tensor cores and are many times slower")
        elif new < old:
            yield Remark(f"{new.title} use less of the tensor cores than {old.title}")
        else:
            yield Remark(f"matrix products now use {new.title}")
    for was, now in ((before.reads, after.reads), (before.writes, after.writes)):
        if now.is_narrower_than(was):
            yield Remark(
                f"{_factor(was.main_width // now.main_width)} the instructions for the same bytes"
            )
        elif was.is_narrower_than(now):
            yield Remark(
                f"the same bytes with instructions {_factor(now.main_width // was.main_width)} as "
                f"wide"
            )
    had_copies, has_copies = (_async_count(side) + _tma_count(side) > 0 for side in (before, after))
    if before.is_disassembled and after.is_disassembled and had_copies and not has_copies:
        yield Remark("loads no longer overlap with arithmetic through shared memory")


def _occupancy_reason(before: CodeFacts, after: CodeFacts, head: StaticFacts) -> Iterator[Remark]:
    old, new = (side.values.get("theoretical_occupancy") for side in (before, after))
    limits = head.occupancy_limits
    if old is not None and new is not None and 0 < new < old and limits:
        names = tuple(_RESOURCES.get(limit, limit) for limit in limits)
        yield Remark(f"occupancy is limited by {' and '.join('{}' for _ in limits)}", names)


def _tensor_counts(facts: CodeFacts) -> str:
    # names come from a record: show only what looks like an instruction
    named = [
        f"{count} {name}"
        for name, count in sorted(facts.tensor_counts.items())
        if name.isascii() and name.isalnum() and len(name) <= _MAX_INSTRUCTION_NAME
    ]
    return " and ".join(named) or str(sum(facts.tensor_counts.values()))


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
    old, new = base.configuration, head.configuration
    changed = [
        Remark(
            "{} {} → {}",
            (name, *("–" if side.get(name) is None else str(side[name]) for side in (old, new))),
        )
        for name in sorted({**old, **new}, key=lambda name: name not in _OPTIONS)
        if old.get(name) != new.get(name) and not {old.get(name), new.get(name)} <= _UNSET
    ]
    if len(changed) > _MAX_CHANGES:
        changed[_MAX_CHANGES:] = [Remark(f"{len(changed) - _MAX_CHANGES} more")]
    if changed:
        listed = _joined(", ", *changed)
        yield Remark(f"configuration: {listed.template}", listed.words)


def _joined(separator: str, *remarks: Remark) -> Remark:
    words = tuple(word for remark in remarks for word in remark.words)
    return Remark(separator.join(remark.template for remark in remarks), words)
