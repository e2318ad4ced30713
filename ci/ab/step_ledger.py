"""What made a step slower: the difference of two steps as a sum over kernels, gaps and overlap.

    Δstep = Σ Δbusy(matched) + added - removed + Δgap - Δoverlap + residual

Between two traces the sum is exact. Launches are matched in their order by place in the model and
name (longest common subsequence), step by step if both sides have as many steps, else in the mean
step. What is left between two matches at one place is one change, such as a fusion. Records have no
order: their kernels are matched by name, then by machine code.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

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


class Change(StrEnum):
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

    change: Change
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
    base: StepTimes, head: StepTimes, *, title: str, measured_ns: tuple[float, float] | None = None
) -> StepLedger:
    """Explain the difference of two steps.

    Args:
        base: Steps of the base.
        head: Steps of the head.
        title: Names what is compared.
        measured_ns: Steps of both sides measured without a profiler, if they were; the residual
            then shows what the profiles do not explain of their difference.
    """
    if base.step_count == head.step_count:
        steps = _grouped(base.slots, head.slots, lambda slot: slot.step)
    else:
        steps = [(fold(base.slots), fold(head.slots))]
    match = _match if base.has_order else _changes
    groups = (group for before, after in steps for group in match(before, after))
    rows = _rows(groups, base.step_count, head.step_count)
    by_change = {change: [row for row in rows if row.change is change] for change in Change}
    added, removed = by_change.pop(Change.ADDED), by_change.pop(Change.REMOVED)

    steps_ns = measured_ns or (base.step_ns / base.step_count, head.step_ns / head.step_count)

    def change_of(name: str) -> float:
        return float(getattr(head, name) / head.step_count - getattr(base, name) / base.step_count)

    return StepLedger(
        title=title,
        base=base,
        head=head,
        rows=tuple(sorted(rows, key=lambda row: -abs(row.change_ns))),
        base_step_ns=steps_ns[0],
        head_step_ns=steps_ns[1],
        matched_ns=sum(row.change_ns for rows in by_change.values() for row in rows),
        added_ns=sum(row.head_ns for row in added),
        removed_ns=sum(row.base_ns for row in removed),
        gap_change_ns=change_of("gap_ns"),
        overlap_change_ns=change_of("overlap_ns"),
    )


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
        base_ns, head_ns = base_results.median_ns, head_results.median_ns
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
    for (_, function), code in sorted(machine_code(environment, results.code).items()):
        codes[function_name(function)] += code or ""
    times = steps_of_profile(profile)
    slots = [replace(slot, code=codes[function_name(slot.name)]) for slot in times.slots]
    return replace(times, slots=tuple(slots))


_Sides = tuple[Sequence[Slot], Sequence[Slot]]
"""Slots of the base and of the head that belong together."""


def _grouped(
    base: Iterable[Slot], head: Iterable[Slot], key: Callable[[Slot], object]
) -> list[_Sides]:
    groups: defaultdict[object, tuple[list[Slot], list[Slot]]] = defaultdict(lambda: ([], []))
    for at, side in enumerate((base, head)):
        for slot in side:
            groups[key(slot)][at].append(slot)
    return list(groups.values())


def _match(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[_Sides]:
    """Divide the slots of both sides into groups that belong together."""
    blocks: list[_Sides] = []
    start = other_start = 0
    for at, other_at in [
        *_common(list(map(_key, base)), list(map(_key, head))),
        (len(base), len(head)),
    ]:
        blocks.append((base[start:at], head[other_start:other_at]))
        start, other_start = at + 1, other_at + 1
        if at < len(base):
            yield [base[at]], [head[other_at]]
    # the order of streams and threads may differ between the sides
    unmatched = (
        [slot for before, _ in blocks for slot in before],
        [slot for _, after in blocks for slot in after],
    )
    moved = list(_pairs(*unmatched, _key))
    yield from (([one], [other]) for one, other in moved)
    for before, after in blocks:
        yield from _changes(*_without(moved, before, after))


def _key(slot: Slot) -> tuple[tuple[str, ...], str]:
    return slot.position, slot.name


def _common(base: Sequence[Hashable], head: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Indices in both sequences of a longest common subsequence; of long sequences, one for each
    part in turn.
    """
    part_count = max(len(base), len(head)) // _MOST_AT_ONCE + 1
    for part in range(part_count):
        start, end = (len(base) * at // part_count for at in (part, part + 1))
        other_start, other_end = (len(head) * at // part_count for at in (part, part + 1))
        for at, other_at in _longest_common(base[start:end], head[other_start:other_end]):
            yield start + at, other_start + other_at


def _longest_common(base: Sequence[Hashable], head: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Indices in both sequences of a longest common subsequence.

    A row of the table of lengths is one integer, in which a bit is 0 where the length grows.

    Source: Hyyrö, Bit-Parallel LCS-Length Computation Revisited, 2004.
    """
    places: defaultdict[Hashable, int] = defaultdict(int)
    for at, one in enumerate(base):
        places[one] |= 1 << at
    rows = [(1 << len(base)) - 1]
    for one in head:
        both = rows[-1] & places[one]
        rows.append(((rows[-1] + both) | (rows[-1] - both)) & rows[0])
    found = []
    at, other_at = len(base) - 1, len(head) - 1
    while at >= 0 and other_at >= 0:
        if base[at] == head[other_at]:
            found.append((at, other_at))
            at, other_at = at - 1, other_at - 1
        elif rows[other_at + 1] >> at & 1:
            at -= 1
        else:
            other_at -= 1
    return found[::-1]


def _pairs(
    base: Iterable[Slot], head: Iterable[Slot], key: Callable[[Slot], Hashable]
) -> Iterator[tuple[Slot, Slot]]:
    """Pair slots with an equal key, unless it is empty, in their order."""
    waiting: defaultdict[object, list[Slot]] = defaultdict(list)
    for slot in reversed(list(base)):
        waiting[key(slot)].append(slot)
    for slot in head:
        if key(slot) and (same := waiting[key(slot)]):
            yield same.pop(), slot


def _without(
    pairs: Sequence[tuple[Slot, Slot]], base: Iterable[Slot], head: Iterable[Slot]
) -> tuple[list[Slot], list[Slot]]:
    """Slots of both sides that are in no pair; slots of different places may be equal."""
    paired = {id(one) for one, _ in pairs}, {id(other) for _, other in pairs}
    return [slot for slot in base if id(slot) not in paired[0]], [
        slot for slot in head if id(slot) not in paired[1]
    ]


def _changes(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[_Sides]:
    """Group what lies between two matches: by name, code, then by the innermost places that both
    sides have.
    """
    pairs = list(_pairs(base, head, lambda slot: slot.name))
    pairs += _pairs(*_without(pairs, base, head), lambda slot: slot.code)
    yield from (([one], [other]) for one, other in pairs)
    left, right = _without(pairs, base, head)
    deepest = max((len(slot.position) for slot in (*left, *right)), default=0)

    def groups_at(depth: int) -> list[_Sides]:
        return _grouped(left, right, lambda slot: slot.position[:depth])

    innermost_first = map(groups_at, range(deepest, -1, -1))
    groups = next(
        (groups for groups in innermost_first if all(map(_is_one_change, groups))),
        groups_at(deepest),
    )
    for before, after in groups:
        if _is_one_change((before, after)):
            yield before, after
        elif len(before) == len(after):
            yield from (([one], [other]) for one, other in zip(before, after, strict=True))
        else:
            yield from (([slot], []) for slot in before)
            yield from (([], [slot]) for slot in after)


def _is_one_change(sides: _Sides) -> bool:
    return all(0 < len(side) <= _MOST_IN_ONE_CHANGE for side in sides)


def _rows(groups: Iterable[_Sides], base_steps: int, head_steps: int) -> list[LedgerRow]:
    grouped: defaultdict[object, list[_Sides]] = defaultdict(list)
    for before, after in groups:
        names = tuple(slot.name for slot in before), tuple(slot.name for slot in after)
        grouped[(*before, *after)[0].position, names].append((before, after))
    rows = []
    for same in grouped.values():
        before, after = (
            [slot for each, _ in same for slot in each],
            [slot for _, each in same for slot in each],
        )
        rows.append(
            LedgerRow(
                change=_change(*same[0]),
                place=(*before, *after)[0].place,
                base_names=tuple(slot.name for slot in same[0][0]),
                head_names=tuple(slot.name for slot in same[0][1]),
                place_count=len(same),
                base_launches=sum(slot.launch_count for slot in before) / base_steps,
                head_launches=sum(slot.launch_count for slot in after) / head_steps,
                base_ns=sum(slot.busy_ns for slot in before) / base_steps,
                head_ns=sum(slot.busy_ns for slot in after) / head_steps,
                gap_change_ns=sum(slot.gap_ns for slot in after) / head_steps
                - sum(slot.gap_ns for slot in before) / base_steps,
            )
        )
    return rows


def _change(before: Sequence[Slot], after: Sequence[Slot]) -> Change:
    if not before or not after:
        return Change.ADDED if after else Change.REMOVED
    if len(before) != len(after):
        return Change.FUSED if len(after) < len(before) else Change.SPLIT
    if len(before) > 1:
        return Change.REPLACED
    (old,), (new,) = before, after
    if old.name == new.name:
        return (
            Change.CODE_CHANGED
            if old.code and new.code and old.code != new.code
            else Change.MATCHED
        )
    return Change.SAME_CODE if old.code and old.code == new.code else Change.RENAMED
