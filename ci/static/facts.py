"""Rules that decide whether compiled code got worse.

docs/how-to/static.md lists the rules. A fact decides only if no kernel gets faster when it gets
worse. Registers, shared memory, occupancy and code size are budgets: using more of them often makes
a kernel faster.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from roofwatch.model.metrics import METRICS, Layer, metric
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Reason, Verdict

FACTS = tuple(key for key, row in METRICS.items() if row.layer is Layer.STATIC)
DECISIVE_FACTS = (
    "local_bytes",
    "spilled_registers",
    "spill_store_count",
    "spill_load_count",
)
"""Facts that decide alone, in order of priority: data that each thread keeps in device memory."""
_MIN_FACTORS = {
    "local_bytes": 1.01,
    "spill_store_count": 2.0,
    "spill_load_count": 2.0,
}
"""Smallest decisive change where both sides spill. Counts also change with loop unrolling. A change
of existing spills below 1 % moves a time by less than any measurement shows.
"""
_ONLY_WITH_MEMORY = frozenset({"spilled_registers", "spill_store_count", "spill_load_count"})
"""AMD's compiler also spills scalar registers into lanes of vector registers: that takes no memory,
and one move instead of a load."""
_MIN_SAME_WORK = 0.75
"""Accesses do the same work if they move at least this share of the bytes."""


@dataclass(frozen=True)
class Accesses:
    """Counts of global memory instructions by width in bits."""

    count_by_width: Mapping[int, int]
    """Number of instructions by the bits that each moves."""

    @property
    def total_bits(self) -> int:
        """Bits that all of them move."""
        return sum(width * count for width, count in self.count_by_width.items())

    @property
    def main_width(self) -> int:
        """The width that moves most bits; 0 without accesses."""

        def bits_and_width(width: int) -> tuple[int, int]:
            # of two that move as much, the wider one counts
            return width * self.count_by_width[width], width

        return max(self.count_by_width, key=bits_and_width, default=0)

    def is_narrower_than(self, accesses: "Accesses") -> bool:
        """Return whether narrower instructions move the same bytes; less work per thread does not
        count.
        """
        is_narrower = 0 < self.main_width < accesses.main_width
        is_same_work = self.total_bits >= _MIN_SAME_WORK * accesses.total_bits
        return is_narrower and is_same_work


class TensorPath(IntEnum):
    """Kinds of tensor-core instructions, ordered by how much of the tensor cores they can use."""

    NONE = 0
    WARP = 1
    WARPGROUP = 2
    TENSOR_MEMORY = 3

    @property
    def title(self) -> str:
        return _TENSOR_PATH_TITLES[self]


_TENSOR_PATH_TITLES = {
    TensorPath.NONE: "no tensor cores",
    TensorPath.WARP: "instructions of one warp or wavefront",
    TensorPath.WARPGROUP: "warpgroup instructions",
    TensorPath.TENSOR_MEMORY: "tensor-memory instructions",
}


@dataclass(frozen=True)
class CodeFacts:
    """Facts of one function's machine code: known values by metric key, and instruction counts by
    kind.
    """

    values: Mapping[str, float]
    """By metric."""
    instructions: Mapping[str, int]
    """Number by kind."""

    @property
    def reads(self) -> Accesses:
        """Loads from global memory."""
        return self._accesses("global_load", "async_copy")

    @property
    def writes(self) -> Accesses:
        """Stores to global memory."""
        return self._accesses("global_store")

    @property
    def is_disassembled(self) -> bool:
        """Whether a kind of instruction that is not listed does not occur."""
        return bool(self.instructions) or "instruction_count" in self.values

    @property
    def tensor_counts(self) -> dict[str, int]:
        """Tensor-core instructions by name."""
        kinds = self.instructions.items()
        return {
            kind.removeprefix("tensor."): count
            for kind, count in kinds
            if kind.startswith("tensor.") and count
        }

    @property
    def tensor_path(self) -> TensorPath | None:
        """The best path that the code uses; None if unknown."""
        if not self.is_disassembled:
            return None
        names = self.tensor_counts
        # UTCHMMA and its kin of Blackwell; HGMMA and its kin of Hopper
        if any(name.startswith("UTC") for name in names):
            return TensorPath.TENSOR_MEMORY
        if any(name.endswith("GMMA") for name in names):
            return TensorPath.WARPGROUP
        if names:
            return TensorPath.WARP
        return TensorPath.NONE

    def _accesses(self, *kinds: str) -> Accesses:
        """Count instructions of some kinds by the bits that each moves."""
        counts: Counter[int] = Counter()
        for kind, count in self.instructions.items():
            name, _, width = kind.partition(".")
            if name in kinds and width.isdigit() and count:
                counts[int(width)] += count
        return Accesses(counts)


def code_facts(facts: StaticFacts) -> CodeFacts:
    return CodeFacts(fact_values(facts), facts.instructions)


def fact_values(facts: StaticFacts) -> dict[str, float]:
    """Return the known facts by metric key."""
    values: dict[str, float] = {}
    for name in FACTS:
        value = getattr(facts, name)
        if value is not None:
            values[name] = float(value)
    return values


def moved_facts(base: Mapping[str, float], head: Mapping[str, float]) -> tuple[str, ...]:
    """Return the facts known on both sides that differ, decisive ones first."""
    names = dict.fromkeys((*DECISIVE_FACTS, *FACTS))
    moved: list[str] = []
    for name in names:
        is_known = name in base and name in head
        if is_known and base[name] != head[name]:
            moved.append(name)
    return tuple(moved)


def facts_in_words(base: Mapping[str, float], head: Mapping[str, float]) -> str:
    """Describe the facts that differ, with units."""
    texts: list[str] = []
    for name in moved_facts(base, head):
        definition = metric(name)
        base_text = definition.format(base[name])
        head_text = definition.format(head[name])
        values = f"{base_text} to {head_text}"
        texts.append(f"{definition.title} {values}")
    return ", ".join(texts)


def judge_facts(base: Mapping[str, float], head: Mapping[str, float]) -> Verdict:
    """Judge by the first decisive fact that differs; `unchanged` if none does."""
    # an unknown amount may be any
    has_memory = bool(base.get("local_bytes", 1) or head.get("local_bytes", 1))
    for name in moved_facts(base, head):
        if name not in DECISIVE_FACTS:
            continue
        # such registers went into other registers, not into memory
        if name in _ONLY_WITH_MEMORY and not has_memory:
            continue
        both_values = (base[name], head[name])
        smaller, larger = sorted(both_values)
        # from none to any amount is always enough
        if larger >= _MIN_FACTORS.get(name, 1.0) * smaller:
            is_worse = metric(name).is_worse(base=base[name], head=head[name])
            return Verdict.of_change(is_worse=is_worse)
    return Verdict.UNCHANGED


def judge_code(base: CodeFacts, head: CodeFacts) -> tuple[Verdict, Reason]:
    """Judge a change of machine code by all rules; one regression outweighs any improvement."""
    judged = [
        (_fit_verdict(base, head), Reason.FIT_CHANGED),
        (judge_facts(base.values, head.values), Reason.SPILLS_CHANGED),
        (_tensor_verdict(base, head), Reason.TENSOR_CORES_CHANGED),
        (_access_verdict(base.reads, head.reads), Reason.ACCESS_WIDTH_CHANGED),
        (_access_verdict(base.writes, head.writes), Reason.ACCESS_WIDTH_CHANGED),
    ]
    # an improvement must not hide a regression, so that is looked for first
    for deciding in (Verdict.REGRESSED, Verdict.IMPROVED):
        for verdict, reason in judged:
            if verdict is deciding:
                return verdict, reason
    return Verdict.UNCHANGED, Reason.CODE_CHANGED


def _fit_verdict(base: CodeFacts, head: CodeFacts) -> Verdict:
    """Judge whether a block fits on a multiprocessor."""
    base_fits = _fits(base)
    head_fits = _fits(head)
    return _verdict(
        is_worse=base_fits and not head_fits,
        is_better=head_fits and not base_fits,
    )


def _fits(facts: CodeFacts) -> bool:
    """Whether a block of it fits on a multiprocessor."""
    # without an occupancy, nothing says that it does not fit
    return facts.values.get("theoretical_occupancy", 1.0) > 0


def _tensor_verdict(base: CodeFacts, head: CodeFacts) -> Verdict:
    """Judge whether matrix products use more or less of the tensor cores."""
    base_path = base.tensor_path
    head_path = head.tensor_path
    # without a disassembly, nothing is known of the instructions
    if base_path is None or head_path is None:
        return Verdict.UNCHANGED
    return _verdict(
        is_worse=head_path < base_path,
        is_better=head_path > base_path,
    )


def _access_verdict(base: Accesses, head: Accesses) -> Verdict:
    """Judge whether the same bytes take more or fewer instructions."""
    return _verdict(
        is_worse=head.is_narrower_than(base),
        is_better=base.is_narrower_than(head),
    )


def _verdict(*, is_worse: bool, is_better: bool) -> Verdict:
    """Regressed or improved; unchanged if neither."""
    if is_worse:
        return Verdict.REGRESSED
    if is_better:
        return Verdict.IMPROVED
    return Verdict.UNCHANGED
