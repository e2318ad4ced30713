"""What made a step slower: the difference of two steps as a sum over kernels, gaps and overlap.

    Δstep = Σ Δbusy(matched) + added - removed + Δgap - Δoverlap + residual

Between two traces the sum is exact. Launches are matched in their order by place in the model and
name (longest common subsequence), step by step if both sides have as many steps, else in the mean
step. What is left between two matches at one place is one change, such as a fusion. Records have no
order: their kernels are matched by name, then by machine code.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from roofwatch.ci.judge.pairing import CaseResults, Pairing, key_of
from roofwatch.ci.static.comparison import machine_code
from roofwatch.collector.profiling.steps import Slot, StepTimes, fold, steps_of_profile
from roofwatch.collector.workload_values import function_name
from roofwatch.model.machine import Environment
from roofwatch.model.record import RunRecord
from roofwatch.model.results import CaseProfile

NOT_EXPLAINED = 0.05
"""Residual above which a difference is not explained, as a share of it."""
_MOST_IN_ONE_CHANGE = 16
"""Launches on one side; above, as many are paired in their order, others are listed as removed and
added.
"""
_MOST_AT_ONCE = 16_000
"""Launches on one side that are matched at once; the table of twice as many is four times as large.
"""


_Sides = tuple[Sequence[Slot], Sequence[Slot]]
"""Slots of the base and of the head that belong together."""


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
    place: str
    """Modules and operator around the first of them."""
    base_names: tuple[str, ...]
    head_names: tuple[str, ...]
    place_count: int
    base_launches: float
    head_launches: float
    base_ns: float
    head_ns: float
    gap_change_ns: float
    """Change of the time before these launches in which nothing ran."""

    @property
    def change_ns(self) -> float:
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
    removed_ns: float
    gap_change_ns: float
    overlap_change_ns: float

    @property
    def step_change_ns(self) -> float:
        return self.head_step_ns - self.base_step_ns

    @property
    def residual_ns(self) -> float:
        busy_ns = self.matched_ns + self.added_ns - self.removed_ns
        return round(
            self.step_change_ns - (busy_ns + self.gap_change_ns - self.overlap_change_ns), 3
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
    rows = _rows(_groups(base, head), base.step_count, head.step_count)
    matched_ns = added_ns = removed_ns = 0.0
    for row in rows:
        if row.change is LedgerKind.ADDED:
            added_ns += row.head_ns
        elif row.change is LedgerKind.REMOVED:
            removed_ns += row.base_ns
        else:
            matched_ns += row.change_ns
    # profilers slow a step down, so its measured time is the better one
    steps_ns = measured_ns or (base.step_ns / base.step_count, head.step_ns / head.step_count)
    return StepLedger(
        title=title,
        base=base,
        head=head,
        rows=tuple(sorted(rows, key=lambda row: -abs(row.change_ns))),
        base_step_ns=steps_ns[0],
        head_step_ns=steps_ns[1],
        matched_ns=matched_ns,
        added_ns=added_ns,
        removed_ns=removed_ns,
        gap_change_ns=head.gap_ns / head.step_count - base.gap_ns / base.step_count,
        overlap_change_ns=head.overlap_ns / head.step_count - base.overlap_ns / base.step_count,
    )


def _groups(base: StepTimes, head: StepTimes) -> Iterator[_Sides]:
    """Slots of both sides that belong together, over all steps."""
    steps: list[_Sides] = [(fold(base.slots), fold(head.slots))]
    # equally many steps are compared one by one, else the mean steps
    if base.step_count == head.step_count:
        steps = _grouped(base.slots, head.slots, lambda slot: slot.step)
    # records know how often a kernel ran and not when
    match = _match if base.has_order else _changes
    for base_slots, head_slots in steps:
        yield from match(base_slots, head_slots)


def ledgers_of_records(base: RunRecord, head: RunRecord) -> list[StepLedger]:
    """Explain the difference of each case and implementation that both records profiled, in the
    order of the head.
    """
    pairing = Pairing(base, head)
    ledgers: list[StepLedger] = []
    for profile in head.profiles:
        base_results, head_results = pairing.of(key_of(profile))
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
            title=" ".join(key_of(profile)),
            measured_ns=measured_ns,
        )
        ledgers.append(ledger)
    return ledgers


def _steps_of(environment: Environment, results: CaseResults, profile: CaseProfile) -> StepTimes:
    codes: defaultdict[str, str] = defaultdict(str)
    # several versions of a function may have been compiled: all of its code counts
    for (_, function), code in sorted(machine_code(environment, results.code).items()):
        codes[function_name(function)] += code or ""
    times = steps_of_profile(profile)
    slots: list[Slot] = []
    for slot in times.slots:
        code = codes[function_name(slot.name)]
        slots.append(replace(slot, code=code))
    return replace(times, slots=tuple(slots))


def _grouped(
    base: Iterable[Slot], head: Iterable[Slot], key: Callable[[Slot], object]
) -> list[_Sides]:
    """Group the slots of both sides by a key, in the order in which the keys first occur."""
    base_groups: defaultdict[object, list[Slot]] = defaultdict(list)
    head_groups: defaultdict[object, list[Slot]] = defaultdict(list)
    for slot in base:
        base_groups[key(slot)].append(slot)
    for slot in head:
        head_groups[key(slot)].append(slot)
    all_keys = dict.fromkeys((*base_groups, *head_groups))
    return [(base_groups[group], head_groups[group]) for group in all_keys]


def _match(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[_Sides]:
    """Divide the slots of both sides into groups that belong together."""
    base_keys = list(map(_key, base))
    head_keys = list(map(_key, head))
    gaps: list[_Sides] = []
    base_start = head_start = 0
    for base_index, head_index in _common(base_keys, head_keys):
        gaps.append((base[base_start:base_index], head[head_start:head_index]))
        yield [base[base_index]], [head[head_index]]
        base_start = base_index + 1
        head_start = head_index + 1
    gaps.append((base[base_start:], head[head_start:]))
    # the order of streams and threads may differ between the sides
    base_gaps = chain.from_iterable(base_slots for base_slots, _ in gaps)
    head_gaps = chain.from_iterable(head_slots for _, head_slots in gaps)
    moved = list(_pairs(base_gaps, head_gaps, _key))
    yield from map(_single, moved)
    for base_slots, head_slots in gaps:
        base_rest, head_rest = _without(moved, base_slots, head_slots)
        yield from _changes(base_rest, head_rest)


def _single(pair: tuple[Slot, Slot]) -> _Sides:
    base, head = pair
    return [base], [head]


def _key(slot: Slot) -> tuple[tuple[str, ...], str]:
    return slot.position, slot.name


def _common(base: Sequence[Hashable], head: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Indices in both sequences of a longest common subsequence; of long sequences, one for each
    part in turn.
    """
    part_count = max(len(base), len(head)) // _MOST_AT_ONCE + 1
    for part in range(part_count):
        base_start, base_end = _bounds(len(base), part, part_count)
        head_start, head_end = _bounds(len(head), part, part_count)
        base_part = base[base_start:base_end]
        head_part = head[head_start:head_end]
        for base_index, head_index in _longest_common(base_part, head_part):
            yield base_start + base_index, head_start + head_index


def _bounds(length: int, part: int, part_count: int) -> tuple[int, int]:
    start = length * part // part_count
    end = length * (part + 1) // part_count
    return start, end


def _longest_common(base: Sequence[Hashable], head: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Indices in both sequences of a longest common subsequence.

    A row of the table of lengths is one integer, in which a bit is 0 where the length grows.

    Source: Hyyrö, Bit-Parallel LCS-Length Computation Revisited, 2004.
    """
    positions: defaultdict[Hashable, int] = defaultdict(int)
    for index, entry in enumerate(base):
        positions[entry] |= 1 << index
    all_set = (1 << len(base)) - 1
    rows = [all_set]
    for entry in head:
        row = rows[-1]
        matching = row & positions[entry]
        # the sum carries a bit past the others up to the next match
        grown = (row + matching) | (row - matching)
        rows.append(grown & all_set)
    return _walk_back(base, head, rows)


def _walk_back(
    base: Sequence[Hashable], head: Sequence[Hashable], rows: Sequence[int]
) -> list[tuple[int, int]]:
    """Read a longest common subsequence from the table: a bit that is 0 belongs to it, or to a
    row above.
    """
    indices: list[tuple[int, int]] = []
    base_index = len(base) - 1
    head_index = len(head) - 1
    while base_index >= 0 and head_index >= 0:
        if base[base_index] == head[head_index]:
            indices.append((base_index, head_index))
            base_index -= 1
            head_index -= 1
        elif rows[head_index + 1] >> base_index & 1:
            base_index -= 1
        else:
            head_index -= 1
    return indices[::-1]


def _pairs(
    base: Iterable[Slot], head: Iterable[Slot], key: Callable[[Slot], Hashable]
) -> Iterator[tuple[Slot, Slot]]:
    """Pair slots with an equal key, unless it is empty, in their order."""
    waiting: defaultdict[Hashable, deque[Slot]] = defaultdict(deque)
    for slot in base:
        waiting[key(slot)].append(slot)
    for slot in head:
        slot_key = key(slot)
        # an empty key is unknown code, which equals nothing
        if slot_key and waiting[slot_key]:
            base_slot = waiting[slot_key].popleft()
            yield base_slot, slot


def _without(
    pairs: Sequence[tuple[Slot, Slot]], base: Iterable[Slot], head: Iterable[Slot]
) -> tuple[list[Slot], list[Slot]]:
    """Slots of both sides that are in no pair."""
    # by identity: slots of different places may be equal
    paired: set[int] = set()
    for base_slot, head_slot in pairs:
        paired.update((id(base_slot), id(head_slot)))
    base_rest = [slot for slot in base if id(slot) not in paired]
    head_rest = [slot for slot in head if id(slot) not in paired]
    return base_rest, head_rest


def _changes(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[_Sides]:
    """Group what lies between two matches: by name, code, then by the innermost places that both
    sides have.
    """
    pairs = list(_pairs(base, head, lambda slot: slot.name))
    base_rest, head_rest = _without(pairs, base, head)
    pairs += _pairs(base_rest, head_rest, lambda slot: slot.code)
    yield from map(_single, pairs)
    base_rest, head_rest = _without(pairs, base, head)
    for base_slots, head_slots in _by_innermost_place(base_rest, head_rest):
        if _is_one_change((base_slots, head_slots)):
            yield base_slots, head_slots
        elif len(base_slots) == len(head_slots):
            # too many for one change: the order is the best guess
            yield from map(_single, zip(base_slots, head_slots, strict=True))
        else:
            for slot in base_slots:
                yield [slot], []
            for slot in head_slots:
                yield [], [slot]


def _by_innermost_place(base: Sequence[Slot], head: Sequence[Slot]) -> Sequence[_Sides]:
    """Group slots by the deepest module at which each group is one change; else by the deepest."""
    depths = [len(slot.position) for slot in (*base, *head)]
    deepest = max(depths, default=0)
    for depth in range(deepest, -1, -1):
        groups = _at_depth(base, head, depth)
        if all(map(_is_one_change, groups)):
            return groups
    return _at_depth(base, head, deepest)


def _at_depth(base: Sequence[Slot], head: Sequence[Slot], depth: int) -> Sequence[_Sides]:
    return _grouped(base, head, lambda slot: slot.position[:depth])


def _is_one_change(sides: _Sides) -> bool:
    return all(0 < len(side) <= _MOST_IN_ONE_CHANGE for side in sides)


@dataclass
class _AlikeLaunches:
    """Groups of the same kernels at the same kind of place."""

    first: _Sides
    count: int = 0
    base: list[Slot] = field(default_factory=list)
    head: list[Slot] = field(default_factory=list)


def _rows(groups: Iterable[_Sides], base_steps: int, head_steps: int) -> list[LedgerRow]:
    alike: dict[object, _AlikeLaunches] = {}
    for base_slots, head_slots in groups:
        base_names = tuple(slot.name for slot in base_slots)
        head_names = tuple(slot.name for slot in head_slots)
        first_slot = (*base_slots, *head_slots)[0]
        kind_of_place = first_slot.position, base_names, head_names
        launches = alike.setdefault(kind_of_place, _AlikeLaunches((base_slots, head_slots)))
        launches.count += 1
        launches.base += base_slots
        launches.head += head_slots
    return [_row(launches, base_steps, head_steps) for launches in alike.values()]


class _PerStep(NamedTuple):
    """Slots of one side, on average over its steps."""

    launches: float
    busy_ns: float
    gap_ns: float

    @classmethod
    def of(cls, slots: Sequence[Slot], step_count: int) -> "_PerStep":
        return cls(
            launches=sum(slot.launch_count for slot in slots) / step_count,
            busy_ns=sum(slot.busy_ns for slot in slots) / step_count,
            gap_ns=sum(slot.gap_ns for slot in slots) / step_count,
        )


def _row(launches: _AlikeLaunches, base_steps: int, head_steps: int) -> LedgerRow:
    first_base, first_head = launches.first
    first_slot = (*first_base, *first_head)[0]
    base = _PerStep.of(launches.base, base_steps)
    head = _PerStep.of(launches.head, head_steps)
    return LedgerRow(
        change=_kind(first_base, first_head),
        place=first_slot.place,
        base_names=tuple(slot.name for slot in first_base),
        head_names=tuple(slot.name for slot in first_head),
        place_count=launches.count,
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
