"""Why a change of machine code matters, in one sentence with numbers. Pure.

Numbers are ours and written out; names and values of a configuration come from a record and stay apart as the words of
a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from roofwatch.ci.message import Remark
from roofwatch.ci.static.facts import (
    DECISIVE_FACTS,
    NO_TENSOR_PATH,
    Accesses,
    CodeFacts,
    code_facts,
    is_narrowed,
    judge_facts,
    moved_facts,
)
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Verdict

_PHRASES = {
    "registers": "registers {} → {}",
    "spilled_registers": "spilled registers {} → {}",
    "spill_store_count": "spills {} → {} stores",
    "local_bytes": "memory per thread {} → {}",
    "shared_bytes": "shared memory {} → {}",
    "theoretical_occupancy": "occupancy {} → {}",
}
"""Facts in the order of telling; the rest are told where none of these moved."""
_REST = {"instruction_count": "instructions {} → {}", "code_bytes": "code {} → {}"}
_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "waves_per_eu", "enable_fp_fusion", "template", "maxnreg"})
"""Of a launch; whatever else is in a configuration is a constexpr of the kernel's."""
_MOST_REGISTERS = 255
"""That a thread of an NVIDIA GPU can have. Source: CUDA C++ Programming Guide, technical specifications."""
_MAX_INSTRUCTION = 16
_MAX_CHANGES = 6
_SLOTS = {"warps": "slots for warps", "blocks": "slots for blocks"}
_NUMBER_WORDS = {2: "twice", 3: "three times", 4: "four times", 8: "eight times"}


def explain(base: StaticFacts, head: StaticFacts) -> Remark | None:
    """What moved from base to head and why that matters; None where no fact did.

    Both must have compiled.
    """
    before, after = code_facts(base), code_facts(head)
    numbers = list(_moves(before, after))
    if not numbers and base.configuration == head.configuration:
        return None
    reasons = list(_reasons(_Sides(base, head, before, after)))
    changed = _changed_configuration(base, head)
    parts = [Remark(", ".join(numbers) or "the same facts")]
    if reasons:
        parts = [_joined([*parts, _joined(reasons, "; ")], ": ")]
    if changed is not None:
        parts.append(changed)
    return _joined(parts, "; ")


@dataclass(frozen=True)
class _Sides:
    base: StaticFacts
    head: StaticFacts
    before: CodeFacts
    after: CodeFacts

    def change_of(self, name: str) -> float:
        """Head minus base of a fact; 0 where one side does not know it."""
        if name not in self.before.values or name not in self.after.values:
            return 0.0
        return self.after.values[name] - self.before.values[name]


# --- what moved


def _moves(before: CodeFacts, after: CodeFacts) -> Iterator[str]:
    moved = moved_facts(before.values, after.values)

    def told(phrases: dict[str, str]) -> Iterator[str]:
        for name, phrase in phrases.items():
            if name in moved:
                yield phrase.format(*(metric(name).format(side.values[name]) for side in (before, after)))

    others = [*_tensor_moves(before, after), *_access_moves(before, after), *_copy_moves(before, after)]
    important = [*told(_PHRASES), *others]
    yield from important or told(_REST)


def _tensor_moves(before: CodeFacts, after: CodeFacts) -> Iterator[str]:
    if before.tensor_path is not None and after.tensor_path is not None and before.tensor_path != after.tensor_path:
        yield f"tensor-core instructions {_counted(before)} → {_counted(after)}"


def _counted(facts: CodeFacts) -> str:
    # the names are those of a record: only what looks like an instruction is repeated
    named = [
        f"{count} {name}"
        for name, count in sorted(facts.tensor_counts.items())
        if name.isascii() and name.isalnum() and len(name) <= _MAX_INSTRUCTION
    ]
    return " and ".join(named) or str(sum(facts.tensor_counts.values()))


def _access_moves(before: CodeFacts, after: CodeFacts) -> Iterator[str]:
    for what, there, here in (
        ("global loads", before.reads, after.reads),
        ("global stores", before.writes, after.writes),
    ):
        if there.main_width and here.main_width and there.main_width != here.main_width:
            yield f"{what} {there.main_width} bit → {here.main_width} bit"


def _copy_moves(before: CodeFacts, after: CodeFacts) -> Iterator[str]:
    if not (before.is_disassembled and after.is_disassembled):
        return
    for what, count in (("asynchronous copies", _async_count), ("TMA instructions", _tma_count)):
        there, here = count(before), count(after)
        if (there == 0) != (here == 0):
            yield f"{what} {there} → {here}"


def _async_count(facts: CodeFacts) -> int:
    return sum(count for kind, count in facts.instructions.items() if kind.startswith("async_copy."))


def _tma_count(facts: CodeFacts) -> int:
    return facts.instructions.get("tma", 0)


# --- why it matters


def _reasons(sides: _Sides) -> Iterator[Remark]:
    for find in (_room, _spills, _share, _tensor_path, _widths, _copies, _occupancy):
        yield from find(sides)


def _room(sides: _Sides) -> Iterator[Remark]:
    if sides.after.values.get("theoretical_occupancy") == 0 != sides.before.values.get("theoretical_occupancy"):
        yield Remark(
            "not one block fits on a multiprocessor of {} any more, so it cannot be launched", (sides.head.target,)
        )


def _spills(sides: _Sides) -> Iterator[Remark]:
    verdict = judge_facts(sides.before.values, sides.after.values)
    if verdict is Verdict.UNCHANGED:
        return
    is_worse = verdict is Verdict.REGRESSED
    # what does not fit, or fits again, is the tile of the head
    tile, warps = _tile(sides.head), _warps(sides.head)
    if _has_spills(sides.before if is_worse else sides.after):
        template = f"{'less' if is_worse else 'more'} of {tile.template} fits into the registers of {warps}"
    else:
        template = f"{tile.template} {'no longer fits' if is_worse else 'fits'} into the registers of {warps}"
    if is_worse and sides.head.target.startswith("sm_") and (sides.head.registers or 0) >= _MOST_REGISTERS:
        template += f", of which a thread has {_MOST_REGISTERS} at most"
    yield Remark(template, tile.words)


def _share(sides: _Sides) -> Iterator[Remark]:
    """How much of a block's work each thread has, where the tile is the same and the warps are not."""
    there, here = (facts.configuration.get("num_warps") for facts in (sides.base, sides.head))
    if not isinstance(there, int) or not isinstance(here, int) or _lengths(sides.base) != _lengths(sides.head):
        return
    if there > here > 0 and there % here == 0:
        yield Remark(f"each thread holds {_in_words(there // here)} as much of what a block works on")


def _has_spills(facts: CodeFacts) -> bool:
    return any(facts.values.get(name) for name in DECISIVE_FACTS)


def _tile(facts: StaticFacts) -> Remark:
    """What a block works on at once, by the constexprs that say so."""
    lengths = _lengths(facts)
    if not lengths:
        return Remark("what a thread works on")
    shape = " × ".join(str(value) for _, value in lengths)
    return Remark(f"the tile of {shape} ({', '.join('{}' for _ in lengths)})", tuple(name for name, _ in lengths))


def _lengths(facts: StaticFacts) -> list[tuple[str, int]]:
    return [
        (name, value)
        for name, value in facts.configuration.items()
        if name.startswith("BLOCK") and isinstance(value, int) and not isinstance(value, bool) and value > 1
    ]


def _warps(facts: StaticFacts) -> str:
    warps = facts.configuration.get("num_warps")
    if not isinstance(warps, int) or isinstance(warps, bool):
        return "a block"
    return f"{warps} warp" if warps == 1 else f"{warps} warps"


def _tensor_path(sides: _Sides) -> Iterator[Remark]:
    there, here = sides.before.tensor_path, sides.after.tensor_path
    if there is None or here is None or there == here:
        return
    if here == NO_TENSOR_PATH:
        yield Remark("products run on ordinary arithmetic units now, many times slower than the tensor cores")
    elif here < there:
        yield Remark(f"{here.title} reach less of the tensor cores than {there.title}")
    else:
        yield Remark(f"products run as {here.title} now")


def _widths(sides: _Sides) -> Iterator[Remark]:
    for there, here in ((sides.before.reads, sides.after.reads), (sides.before.writes, sides.after.writes)):
        if is_narrowed(there, here):
            yield Remark(f"{_times(there, here)} the instructions for the same bytes")
        elif is_narrowed(here, there):
            yield Remark(f"the same bytes in instructions {_times(here, there)} as wide")


def _times(wider: Accesses, narrower: Accesses) -> str:
    return _in_words(wider.main_width // narrower.main_width)


def _in_words(factor: int) -> str:
    return _NUMBER_WORDS.get(factor, f"{factor} times")


def _copies(sides: _Sides) -> Iterator[Remark]:
    if not (sides.before.is_disassembled and sides.after.is_disassembled):
        return
    ahead = [_async_count(facts) + _tma_count(facts) for facts in (sides.before, sides.after)]
    if ahead[0] and not ahead[1]:
        yield Remark("no load runs ahead of the arithmetic in shared memory any more")


def _occupancy(sides: _Sides) -> Iterator[Remark]:
    change = sides.change_of("theoretical_occupancy")
    if change == 0 or sides.after.values["theoretical_occupancy"] == 0:
        return
    limits = sides.head.occupancy_limits
    if change < 0 and limits:
        words = " and ".join("{}" for _ in limits)
        named = tuple(_SLOTS.get(limit, limit) for limit in limits)
        yield Remark(f"how many blocks run at once is limited by {words}", named)


def _changed_configuration(base: StaticFacts, head: StaticFacts) -> Remark | None:
    """What differs in how the two were launched and specialised."""
    names = [*base.configuration, *(name for name in head.configuration if name not in base.configuration)]
    changed = [
        (name, base.configuration.get(name), head.configuration.get(name))
        for name in sorted(names, key=lambda name: (name not in _OPTIONS, names.index(name)))
        if (name in base.configuration, base.configuration.get(name))
        != (name in head.configuration, head.configuration.get(name))
        and not (_says_nothing(base.configuration.get(name)) and _says_nothing(head.configuration.get(name)))
    ]
    if not changed:
        return None
    told = [
        Remark("{} {} → {}", (name, *("–" if value is None else str(value) for value in (there, here))))
        for name, there, here in changed[:_MAX_CHANGES]
    ]
    left = len(changed) - len(told)
    more = [Remark(f"{left} more")] if left else []
    listed = _joined([*told, *more])
    return Remark(f"in the configuration {listed.template}", listed.words)


def _joined(remarks: Iterable[Remark], separator: str = ", ") -> Remark:
    every = list(remarks)
    return Remark(
        separator.join(remark.template for remark in every), tuple(word for remark in every for word in remark.words)
    )


def _says_nothing(value: object) -> bool:
    """Versions of Triton have different words for an option that is not set."""
    return value in {None, "", "none"}
