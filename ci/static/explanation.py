"""Why a change of machine code matters, in one sentence with numbers.

Names and values of a configuration come from a record, so they stay apart as the words of a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

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
"""Facts in the order of telling; the rest are told where nothing else moved."""
_REST = {"instruction_count": "instructions {} → {}", "code_bytes": "code {} → {}"}
_OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "waves_per_eu", "enable_fp_fusion", "template", "maxnreg"})
"""Of a launch; whatever else is in a configuration is a constexpr of the kernel's."""
_MOST_REGISTERS = 255
"""That a thread of an NVIDIA GPU can have. Source: CUDA C++ Programming Guide, technical specifications."""
_MAX_INSTRUCTION = 16
_MAX_CHANGES = 6
_SLOTS = {"warps": "slots for warps", "blocks": "slots for blocks"}
_NUMBER_WORDS = {2: "twice", 3: "three times", 4: "four times", 8: "eight times"}
_NOT_SET = {None, "", "none"}
"""Versions of Triton have different words for an option that is not set."""


def explain(base: StaticFacts, head: StaticFacts) -> Remark | None:
    """What moved from base to head and why that matters; None where no fact did. Both must have compiled."""
    change = _Change(base, head)
    numbers = ", ".join([*change.told(_PHRASES), *change.instructions()]) or ", ".join(change.told(_REST))
    if not numbers and base.configuration == head.configuration:
        return None
    moved = Remark(numbers or "the same facts")
    reasons = _joined(change.reasons(), "; ")
    configuration = _changed_configuration(base, head)
    parts = [_joined([moved, reasons], ": ") if reasons.template else moved]
    return _joined(parts if configuration is None else [*parts, configuration], "; ")


@dataclass(frozen=True)
class _Change:
    base: StaticFacts
    head: StaticFacts

    @cached_property
    def before(self) -> CodeFacts:
        return code_facts(self.base)

    @cached_property
    def after(self) -> CodeFacts:
        return code_facts(self.head)

    @property
    def are_disassembled(self) -> bool:
        return self.before.is_disassembled and self.after.is_disassembled

    # --- what moved

    def told(self, phrases: dict[str, str]) -> Iterator[str]:
        moved = moved_facts(self.before.values, self.after.values)
        for name, phrase in phrases.items():
            if name in moved:
                yield phrase.format(*(metric(name).format(side.values[name]) for side in (self.before, self.after)))

    def instructions(self) -> Iterator[str]:
        before, after = self.before, self.after
        if self.are_disassembled and before.tensor_path != after.tensor_path:
            yield f"tensor-core instructions {_tensor_counts(before)} → {_tensor_counts(after)}"
        for what, there, here in (
            ("global loads", before.reads, after.reads),
            ("global stores", before.writes, after.writes),
        ):
            if there.main_width and here.main_width and there.main_width != here.main_width:
                yield f"{what} {there.main_width} bit → {here.main_width} bit"
        if self.are_disassembled:
            for what, count in (("asynchronous copies", _async_count), ("TMA instructions", _tma_count)):
                if (count(before) == 0) != (count(after) == 0):
                    yield f"{what} {count(before)} → {count(after)}"

    # --- why it matters

    def reasons(self) -> Iterator[Remark]:
        yield from self._room()
        yield from self._spills()
        yield from self._share_of_a_thread()
        yield from self._tensor_path()
        yield from self._widths()
        if self.are_disassembled and _copies_ahead(self.before) and not _copies_ahead(self.after):
            yield Remark("no load runs ahead of the arithmetic in shared memory any more")
        yield from self._occupancy()

    def _room(self) -> Iterator[Remark]:
        if self.after.values.get("theoretical_occupancy") == 0 != self.before.values.get("theoretical_occupancy"):
            yield Remark(
                "not one block fits on a multiprocessor of {} any more, so it cannot be launched", (self.head.target,)
            )

    def _spills(self) -> Iterator[Remark]:
        verdict = judge_facts(self.before.values, self.after.values)
        if verdict is Verdict.UNCHANGED:
            return
        is_worse = verdict is Verdict.REGRESSED
        # what does not fit, or fits again, is the tile of the head
        tile, warps = _tile(self.head), _warps(self.head)
        spilled = (self.before if is_worse else self.after).values
        if any(spilled.get(name) for name in DECISIVE_FACTS):
            template = f"{'less' if is_worse else 'more'} of {tile.template} fits into the registers of {warps}"
        else:
            template = f"{tile.template} {'no longer fits' if is_worse else 'fits'} into the registers of {warps}"
        if is_worse and self.head.target.startswith("sm_") and (self.head.registers or 0) >= _MOST_REGISTERS:
            template += f", of which a thread has {_MOST_REGISTERS} at most"
        yield Remark(template, tile.words)

    def _share_of_a_thread(self) -> Iterator[Remark]:
        """How much of a block's work each thread has, where the tile is the same and the warps are not."""
        there, here = (facts.configuration.get("num_warps") for facts in (self.base, self.head))
        if not isinstance(there, int) or not isinstance(here, int) or _lengths(self.base) != _lengths(self.head):
            return
        if there > here > 0 and there % here == 0:
            yield Remark(f"each thread holds {_times(there // here)} as much of what a block works on")

    def _tensor_path(self) -> Iterator[Remark]:
        there, here = self.before.tensor_path, self.after.tensor_path
        if there is None or here is None or there == here:
            return
        if here == NO_TENSOR_PATH:
            yield Remark("products run on ordinary arithmetic units now, many times slower than the tensor cores")
        elif here < there:
            yield Remark(f"{here.title} reach less of the tensor cores than {there.title}")
        else:
            yield Remark(f"products run as {here.title} now")

    def _widths(self) -> Iterator[Remark]:
        for there, here in ((self.before.reads, self.after.reads), (self.before.writes, self.after.writes)):
            if is_narrowed(there, here):
                yield Remark(f"{_times_as_wide(there, here)} the instructions for the same bytes")
            elif is_narrowed(here, there):
                yield Remark(f"the same bytes in instructions {_times_as_wide(here, there)} as wide")

    def _occupancy(self) -> Iterator[Remark]:
        there, here = (side.values.get("theoretical_occupancy") for side in (self.before, self.after))
        limits = self.head.occupancy_limits
        if there is not None and here is not None and 0 < here < there and limits:
            words = " and ".join("{}" for _ in limits)
            named = tuple(_SLOTS.get(limit, limit) for limit in limits)
            yield Remark(f"how many blocks run at once is limited by {words}", named)


def _tensor_counts(facts: CodeFacts) -> str:
    # the names are those of a record: only what looks like an instruction is repeated
    named = [
        f"{count} {name}"
        for name, count in sorted(facts.tensor_counts.items())
        if name.isascii() and name.isalnum() and len(name) <= _MAX_INSTRUCTION
    ]
    return " and ".join(named) or str(sum(facts.tensor_counts.values()))


def _async_count(facts: CodeFacts) -> int:
    return sum(count for kind, count in facts.instructions.items() if kind.startswith("async_copy."))


def _tma_count(facts: CodeFacts) -> int:
    return facts.instructions.get("tma", 0)


def _copies_ahead(facts: CodeFacts) -> bool:
    return bool(_async_count(facts) + _tma_count(facts))


def _tile(facts: StaticFacts) -> Remark:
    """What a block works on at once, by the constexprs that say so."""
    lengths = _lengths(facts)
    if not lengths:
        return Remark("what a thread works on")
    shape = " × ".join(map(str, lengths.values()))
    return Remark(f"the tile of {shape} ({', '.join('{}' for _ in lengths)})", tuple(lengths))


def _lengths(facts: StaticFacts) -> dict[str, int]:
    return {
        name: value
        for name, value in facts.configuration.items()
        if name.startswith("BLOCK") and isinstance(value, int) and not isinstance(value, bool) and value > 1
    }


def _warps(facts: StaticFacts) -> str:
    warps = facts.configuration.get("num_warps")
    if not isinstance(warps, int) or isinstance(warps, bool):
        return "a block"
    return f"{warps} warp" if warps == 1 else f"{warps} warps"


def _times_as_wide(wider: Accesses, narrower: Accesses) -> str:
    return _times(wider.main_width // narrower.main_width)


def _times(factor: int) -> str:
    return _NUMBER_WORDS.get(factor, f"{factor} times")


def _changed_configuration(base: StaticFacts, head: StaticFacts) -> Remark | None:
    """What differs in how the two were launched and specialised; options of the launch first."""
    there, here = base.configuration, head.configuration
    changed = [
        name
        for name in sorted({**there, **here}, key=lambda name: name not in _OPTIONS)
        if (name in there, there.get(name)) != (name in here, here.get(name))
        and not (there.get(name) in _NOT_SET and here.get(name) in _NOT_SET)
    ]
    if not changed:
        return None
    told = [
        Remark(
            "{} {} → {}", (name, *("–" if value is None else str(value) for value in (there.get(name), here.get(name))))
        )
        for name in changed[:_MAX_CHANGES]
    ]
    if len(changed) > _MAX_CHANGES:
        told.append(Remark(f"{len(changed) - _MAX_CHANGES} more"))
    listed = _joined(told)
    return Remark(f"in the configuration {listed.template}", listed.words)


def _setting(value: object) -> str:
    return "–" if value is None else str(value)


def _joined(remarks: Iterable[Remark], separator: str = ", ") -> Remark:
    every = list(remarks)
    return Remark(
        separator.join(remark.template for remark in every), tuple(word for remark in every for word in remark.words)
    )
