"""What compiled facts amount to: which of them decide, and which are evidence. Pure.

docs/how-to/static.md lists the rules. A fact decides if no kernel gets faster by its getting worse. Registers,
shared memory, occupancy and code size are budgets, of which more or less often buys speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roofwatch.ci.reason import Reason
from roofwatch.collector.record.metrics import METRICS, Layer, metric
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Verdict

FACTS = tuple(key for key, row in METRICS.items() if row.layer is Layer.STATIC)
DECISIVE_FACTS = ("local_bytes", "spilled_registers", "spill_store_count", "spill_load_count")
"""Single numbers that decide by themselves, the more telling first: what every thread keeps in device memory, which is
a hundred times further away than a register.
"""
LEAST_FACTOR = {"spill_store_count": 2.0, "spill_load_count": 2.0}
"""A number with an entry decides if it changed by that factor at least: how many instructions reach the same bytes
changes with every unrolled loop. Of the others any move counts, since compiling is deterministic.
"""
SAME_WORK = 0.75
"""Accesses that move this share of the bytes of before at least are taken to do the same work."""

_READS = ("global_load", "async_copy")
_WRITES = ("global_store",)


@dataclass(frozen=True)
class Accesses:
    """Instructions that reach global memory, by width in bits."""

    count_by_width: Mapping[int, int]

    @property
    def total_bits(self) -> int:
        """What one thread moves if it runs every instruction once."""
        return sum(width * count for width, count in self.count_by_width.items())

    @property
    def main_width(self) -> int:
        """The width that most bits are moved at, the wider where two are even; 0 without accesses."""
        return max(self.count_by_width, key=lambda width: (width * self.count_by_width[width], width), default=0)


@dataclass(frozen=True)
class CodeFacts:
    """What is judged of one function's machine code."""

    values: Mapping[str, float]
    """Those that are known, by metric key."""
    instructions: Mapping[str, int]
    """Count by kind."""

    @property
    def reads(self) -> Accesses:
        return self._accesses(_READS)

    @property
    def writes(self) -> Accesses:
        return self._accesses(_WRITES)

    @property
    def tensor_path(self) -> TensorPath | None:
        """The best that the code uses; None where that is not known."""
        return max(map(_path_of, self.tensor_counts), default=NO_TENSOR_PATH) if self.is_disassembled else None

    @property
    def is_disassembled(self) -> bool:
        """Whether a kind of instruction that is not listed is not there."""
        return bool(self.instructions) or "instruction_count" in self.values

    @property
    def tensor_counts(self) -> dict[str, int]:
        """Tensor-core instructions by name."""
        return {
            kind.removeprefix("tensor."): count
            for kind, count in self.instructions.items()
            if kind.startswith("tensor.") and count
        }

    def _accesses(self, kinds: tuple[str, ...]) -> Accesses:
        counts: dict[int, int] = {}
        for kind, count in self.instructions.items():
            name, _, width = kind.partition(".")
            if name in kinds and width.isdigit() and count:
                counts[int(width)] = counts.get(int(width), 0) + count
        return Accesses(counts)


@dataclass(frozen=True, order=True)
class TensorPath:
    """A generation of tensor-core instructions; ordered by how much of the tensor cores it can use."""

    rank: int
    title: str


NO_TENSOR_PATH = TensorPath(0, "no tensor cores")
_WARP = TensorPath(1, "instructions of one warp or wavefront")
_WARPGROUP = TensorPath(2, "warpgroup instructions")
_TENSOR_MEMORY = TensorPath(3, "tensor-memory instructions")


def _path_of(instruction: str) -> TensorPath:
    if instruction.startswith("UTC"):
        return _TENSOR_MEMORY
    return _WARPGROUP if instruction.endswith("GMMA") else _WARP


def code_facts(facts: StaticFacts) -> CodeFacts:
    """What is judged of a compiled function."""
    return CodeFacts(fact_values(facts), facts.instructions)


def fact_values(facts: StaticFacts) -> dict[str, float]:
    """The facts that are known, by metric key."""
    return {name: float(value) for name in FACTS if (value := getattr(facts, name)) is not None}


def moved_facts(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[str, ...]:
    """Facts known on both sides that differ, the decisive ones first."""
    names = (*DECISIVE_FACTS, *(name for name in FACTS if name not in DECISIVE_FACTS))
    return tuple(name for name in names if name in before and name in after and before[name] != after[name])


def facts_in_words(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """What moved, as a list with units; empty if nothing did."""
    return ", ".join(
        f"{metric(name).title} {metric(name).format(before[name])} to {metric(name).format(after[name])}"
        for name in moved_facts(before, after)
    )


def judge_facts(before: Mapping[str, float], after: Mapping[str, float]) -> Verdict:
    """`regressed` or `improved` if a decisive fact moved, else `unchanged`. Where two contradict each other, the first
    in the order of `DECISIVE_FACTS` decides.
    """
    for name in DECISIVE_FACTS:
        if name in moved_facts(before, after) and _is_decisive(before[name], after[name], LEAST_FACTOR.get(name, 1.0)):
            is_worse = metric(name).is_worse(base=before[name], head=after[name])
            return Verdict.REGRESSED if is_worse else Verdict.IMPROVED
    return Verdict.UNCHANGED


def _is_decisive(before: float, after: float, least_factor: float) -> bool:
    return max(before, after) >= least_factor * min(before, after)


# --- the rules


@dataclass(frozen=True)
class Rule:
    """One thing that is a regression by itself, and whose opposite is an improvement."""

    reason: Reason
    judge: Callable[[CodeFacts, CodeFacts], Verdict]


def _judge_room(base: CodeFacts, head: CodeFacts) -> Verdict:
    fits = [facts.values.get("theoretical_occupancy", 1.0) > 0 for facts in (base, head)]
    return _verdict_of(is_worse=fits == [True, False], is_better=fits == [False, True])


def _judge_tensor_path(base: CodeFacts, head: CodeFacts) -> Verdict:
    there, here = base.tensor_path, head.tensor_path
    if there is None or here is None:
        return Verdict.UNCHANGED
    return _verdict_of(is_worse=here < there, is_better=here > there)


def _judge_reads(base: CodeFacts, head: CodeFacts) -> Verdict:
    return _verdict_of(is_worse=is_narrowed(base.reads, head.reads), is_better=is_narrowed(head.reads, base.reads))


def _judge_writes(base: CodeFacts, head: CodeFacts) -> Verdict:
    return _verdict_of(is_worse=is_narrowed(base.writes, head.writes), is_better=is_narrowed(head.writes, base.writes))


def is_narrowed(before: Accesses, after: Accesses) -> bool:
    """Whether no fewer bytes are now moved by narrower instructions, and so by more of them.

    A thread that was given less work may well reach it by a narrower access; it then moves fewer bytes.
    """
    return 0 < after.main_width < before.main_width and after.total_bits >= SAME_WORK * before.total_bits


def _verdict_of(*, is_worse: bool, is_better: bool) -> Verdict:
    if is_worse:
        return Verdict.REGRESSED
    return Verdict.IMPROVED if is_better else Verdict.UNCHANGED


RULES = (
    Rule(Reason.ROOM_MOVED, _judge_room),
    Rule(Reason.SPILLS_MOVED, lambda base, head: judge_facts(base.values, head.values)),
    Rule(Reason.TENSOR_CORES_MOVED, _judge_tensor_path),
    Rule(Reason.ACCESS_WIDTH_MOVED, _judge_reads),
    Rule(Reason.ACCESS_WIDTH_MOVED, _judge_writes),
)
"""The gravest first."""


def judge_code(base: CodeFacts, head: CodeFacts) -> tuple[Verdict, Reason]:
    """What a change of machine code amounts to, and by which rule: one thing that got worse is a regression whatever
    else got better.
    """
    judged = [(rule.judge(base, head), rule.reason) for rule in RULES]
    for wanted in (Verdict.REGRESSED, Verdict.IMPROVED):
        for verdict, reason in judged:
            if verdict is wanted:
                return verdict, reason
    return Verdict.UNCHANGED, Reason.CODE_MOVED
