"""What made a step slower: the difference of two steps as a sum over kernels, gaps and overlap.

    Δstep = Σ Δbusy(matched) + added - removed + Δgap - Δoverlap + residual

Between two traces the sum is exact. Launches are matched in their order by place in the model and
name (longest common subsequence), step by step if both sides have as many steps, else in the mean
step. What is left between two matches at one place is one change, such as a fusion. Records have no
order: their kernels are matched by name, then by machine code.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from roofwatch.ci.ab.slot_matching import SlotSides, matched_slots
from roofwatch.ci.judge.pairing import CaseResults, Pairing
from roofwatch.ci.static.same_code import machine_code
from roofwatch.collector.profiling.steps import Slot, StepTimes, steps_of_profile
from roofwatch.collector.workload_values import function_name
from roofwatch.model.grouping import group_by
from roofwatch.model.machine import Environment
from roofwatch.model.record import RunRecord
from roofwatch.model.results import CaseProfile

NOT_EXPLAINED = 0.05
"""Residual above which a difference is not explained, as a share of it."""


class LedgerKind(StrEnum):
    """How launches of the head differ from those of the base."""

    MATCHED = "matched"
    CODE_CHANGED = "code changed"
    """The same kernel with other machine code."""
    SAME_CODE = "renamed, same code"
    RENAMED = "renamed"
    """One kernel in the place of another."""
    FUSED = "fused"
    """Fewer kernels at the same place."""
    SPLIT = "split"
    REPLACED = "replaced"
    """As many other kernels."""
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True)
class LedgerRow:
    """Launches that changed in the same way at the same kind of place. Counts and times are those
    of one step.
    """

    change: LedgerKind
    module_path: str
    """Modules and operator around the first of them."""
    base_names: tuple[str, ...]
    head_names: tuple[str, ...]
    place_count: int
    base_launches: float
    """Launches in a step."""
    head_launches: float
    base_ns: float
    """Busy time of these launches in a step."""
    head_ns: float
    gap_change_ns: float
    """Change of the time before these launches in which nothing ran."""

    @property
    def change_ns(self) -> float:
        """Time that these kernels add to a step; negative if they save it."""
        return self.head_ns - self.base_ns


@dataclass(frozen=True)
class StepLedger:
    """The difference of the steps of two sides. Times are ns of one step, on average over the steps
    of the side.
    """

    title: str
    """Device of the traces, or case and implementation of the records."""
    base: StepTimes
    head: StepTimes
    rows: tuple[LedgerRow, ...]
    """The largest change first."""
    base_step_ns: float
    head_step_ns: float
    matched_ns: float
    """Change of the busy time of all rows but the added and removed ones."""
    added_ns: float
    """Busy time of kernels that only the head launches."""
    removed_ns: float
    """Busy time of kernels that only the base launches."""
    gap_change_ns: float
    """Change of the time in which no kernel runs."""
    overlap_change_ns: float
    """Change of the time in which several kernels run at once."""

    @property
    def step_change_ns(self) -> float:
        """Time that a step takes longer; negative if it became shorter."""
        return self.head_step_ns - self.base_step_ns

    @property
    def residual_ns(self) -> float:
        """What the terms do not explain of the change."""
        busy_ns = self.matched_ns + self.added_ns - self.removed_ns
        return round(
            self.step_change_ns - (busy_ns + self.gap_change_ns - self.overlap_change_ns),
            3,
        )

    @property
    def is_explained(self) -> bool:
        return abs(self.residual_ns) <= NOT_EXPLAINED * abs(self.step_change_ns)


def find_ledger(
    base: StepTimes,
    head: StepTimes,
    *,
    title: str,
    measured_ns: tuple[float, float] | None = None,
) -> StepLedger:
    """Explain the difference of two steps.

    Args:
        base: Steps of the base.
        head: Steps of the head.
        title: Names what is compared.
        measured_ns: Steps of both sides measured without a profiler, if they were; the residual
            then shows what the profiles do not explain of their difference.
    """
    rows = _rows(matched_slots(base, head), base.step_count, head.step_count)
    matched_ns = added_ns = removed_ns = 0.0
    for row in rows:
        if row.change is LedgerKind.ADDED:
            added_ns += row.head_ns
        elif row.change is LedgerKind.REMOVED:
            removed_ns += row.base_ns
        else:
            matched_ns += row.change_ns
    # profilers slow a step down, so its measured time is the better one
    base_step_ns = base.step_ns / base.step_count
    head_step_ns = head.step_ns / head.step_count
    if measured_ns is not None:
        base_step_ns, head_step_ns = measured_ns
    return StepLedger(
        title=title,
        base=base,
        head=head,
        rows=tuple(sorted(rows, key=lambda row: -abs(row.change_ns))),
        base_step_ns=base_step_ns,
        head_step_ns=head_step_ns,
        matched_ns=matched_ns,
        added_ns=added_ns,
        removed_ns=removed_ns,
        gap_change_ns=head.gap_ns / head.step_count - base.gap_ns / base.step_count,
        overlap_change_ns=head.overlap_ns / head.step_count - base.overlap_ns / base.step_count,
    )


def ledgers_of_records(base: RunRecord, head: RunRecord) -> list[StepLedger]:
    """Explain the difference of each case and implementation that both records profiled, in the
    order of the head.
    """
    pairing = Pairing(base, head)
    ledgers: list[StepLedger] = []
    for profile in head.profiles:
        base_results, head_results = pairing.of(profile.case_key)
        if base_results.profile is None:
            continue
        measured_ns = None
        base_ns = base_results.median_ns
        head_ns = head_results.median_ns
        # only with both: the change of one side alone is no difference
        if base_ns is not None and head_ns is not None:
            measured_ns = base_ns, head_ns
        ledger = find_ledger(
            _steps_of(base.environment, base_results, base_results.profile),
            _steps_of(head.environment, head_results, profile),
            title=" ".join(profile.case_key),
            measured_ns=measured_ns,
        )
        ledgers.append(ledger)
    return ledgers


def _steps_of(
    environment: Environment,
    results: CaseResults,
    profile: CaseProfile,
) -> StepTimes:
    codes: defaultdict[str, str] = defaultdict(str)
    # several versions of a function may have been compiled: all of its code counts
    code_by_function = machine_code(environment, results.code)
    for (_, function), code in sorted(code_by_function.items()):
        codes[function_name(function)] += code or ""
    times = steps_of_profile(profile)
    slots: list[Slot] = []
    for slot in times.slots:
        code = codes[function_name(slot.name)]
        slots.append(replace(slot, code=code))
    return replace(times, slots=tuple(slots))


def _rows(
    groups: Iterable[SlotSides],
    base_steps: int,
    head_steps: int,
) -> list[LedgerRow]:
    by_kernels = group_by(groups, _kernels_at_place)
    return [_row(same_kernels, base_steps, head_steps) for same_kernels in by_kernels.values()]


def _kernels_at_place(sides: SlotSides) -> tuple[object, ...]:
    """What groups of one row have in common: the kind of place, and the kernels of both sides."""
    return sides.first.position, sides.base_names, sides.head_names


class _PerStep(NamedTuple):
    """Slots of one side, on average over its steps."""

    launches: float
    """Launches in a step."""
    busy_ns: float
    """Time in which its kernels run."""
    gap_ns: float

    @classmethod
    def of(cls, slots: Sequence[Slot], step_count: int) -> "_PerStep":
        """Divide the sums over all steps by their number."""
        return cls(
            launches=sum(slot.launch_count for slot in slots) / step_count,
            busy_ns=sum(slot.busy_ns for slot in slots) / step_count,
            gap_ns=sum(slot.gap_ns for slot in slots) / step_count,
        )


def _row(
    same_kernels: Sequence[SlotSides],
    base_steps: int,
    head_steps: int,
) -> LedgerRow:
    """Add up groups of the same kernels at the same kind of place."""
    example = same_kernels[0]
    base_slots = list(chain.from_iterable(sides.base for sides in same_kernels))
    head_slots = list(chain.from_iterable(sides.head for sides in same_kernels))
    base = _PerStep.of(base_slots, base_steps)
    head = _PerStep.of(head_slots, head_steps)
    return LedgerRow(
        change=_kind(example.base, example.head),
        module_path=example.first.module_path,
        base_names=example.base_names,
        head_names=example.head_names,
        place_count=len(same_kernels),
        base_launches=base.launches,
        head_launches=head.launches,
        base_ns=base.busy_ns,
        head_ns=head.busy_ns,
        gap_change_ns=head.gap_ns - base.gap_ns,
    )


def _kind(base: Sequence[Slot], head: Sequence[Slot]) -> LedgerKind:
    if not base:
        return LedgerKind.ADDED
    if not head:
        return LedgerKind.REMOVED
    if len(base) != len(head):
        if len(head) < len(base):
            return LedgerKind.FUSED
        return LedgerKind.SPLIT
    # the same number of kernels, so nothing was fused
    if len(base) > 1:
        return LedgerKind.REPLACED
    return _kind_of_one(base[0], head[0])


def _kind_of_one(base: Slot, head: Slot) -> LedgerKind:
    """Compare two matched launches by machine code where it is known, else by name."""
    is_code_known = bool(base.code and head.code)
    is_same_code = base.code == head.code
    if base.name == head.name:
        # without machine code on both sides, an equal name is all there is to go by
        if is_code_known and not is_same_code:
            return LedgerKind.CODE_CHANGED
        return LedgerKind.MATCHED
    if is_code_known and is_same_code:
        return LedgerKind.SAME_CODE
    return LedgerKind.RENAMED
