"""Which kernels of two steps belong together: by their order, name, code and place."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain

from roofwatch.collector.profiling.steps import Slot, StepTimes, fold

_MOST_IN_ONE_CHANGE = 16
"""Launches on one side; above, as many are paired in their order, others are listed as removed and
added.
"""
_MOST_AT_ONCE = 16_000
"""Launches on one side that are matched at once; the table of twice as many is four times as large.
"""
SlotSides = tuple[Sequence[Slot], Sequence[Slot]]
"""Slots of the base and of the head that belong together."""


def matched_slots(base: StepTimes, head: StepTimes) -> Iterator[SlotSides]:
    """Slots of both sides that belong together, over all steps."""
    # equally many steps are compared one by one, else the mean steps
    if base.step_count == head.step_count:
        steps = _grouped(base=base.slots, head=head.slots, key=lambda slot: slot.step)
    else:
        steps = [(fold(base.slots), fold(head.slots))]
    for base_slots, head_slots in steps:
        # records know how often a kernel ran and not when
        if base.has_order:
            yield from _match(base_slots, head_slots)
        else:
            yield from _changes(base_slots, head_slots)


def _grouped(
    base: Iterable[Slot],
    head: Iterable[Slot],
    key: Callable[[Slot], object],
) -> list[SlotSides]:
    """Group the slots of both sides by a key, in the order in which the keys first occur."""
    groups: dict[object, tuple[list[Slot], list[Slot]]] = {}
    for slot in base:
        base_slots, _ = groups.setdefault(key(slot), ([], []))
        base_slots.append(slot)
    for slot in head:
        _, head_slots = groups.setdefault(key(slot), ([], []))
        head_slots.append(slot)
    return list(groups.values())


def _match(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[SlotSides]:
    """Divide the slots of both sides into groups that belong together.

    1. Slots of the same place and name, in one order on both sides.
    2. Those of the same place and name that changed their order.
    3. What lies between two matches of the first kind, as one change.
    """
    common = _common(
        base=list(map(_place_and_name, base)),
        head=list(map(_place_and_name, head)),
    )
    gaps: list[SlotSides] = []
    base_start = 0
    head_start = 0
    for base_index, head_index in common:
        base_gap = base[base_start:base_index]
        head_gap = head[head_start:head_index]
        gaps.append((base_gap, head_gap))
        yield [base[base_index]], [head[head_index]]
        base_start = base_index + 1
        head_start = head_index + 1
    gaps.append((base[base_start:], head[head_start:]))
    # the order of streams and threads may differ between the sides
    moved = list(
        _pairs(
            base=chain.from_iterable(base_gap for base_gap, _ in gaps),
            head=chain.from_iterable(head_gap for _, head_gap in gaps),
            key=_place_and_name,
        )
    )
    yield from map(_single, moved)
    for base_gap, head_gap in gaps:
        base_rest, head_rest = _without(moved, base_gap, head_gap)
        yield from _changes(base_rest, head_rest)


def _single(pair: tuple[Slot, Slot]) -> SlotSides:
    base, head = pair
    return [base], [head]


def _place_and_name(slot: Slot) -> tuple[tuple[str, ...], str]:
    return slot.position, slot.name


def _common(base: Sequence[Hashable], head: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Indices in both sequences of a longest common subsequence; of long sequences, one for each
    part in turn.

    Yields:
        Position in the base and position in the head, both ascending.
    """
    longest = max(len(base), len(head))
    part_count = longest // _MOST_AT_ONCE + 1
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
    # bit i is set where entry i of the base is this one
    positions: defaultdict[Hashable, int] = defaultdict(int)
    for index, entry in enumerate(base):
        positions[entry] |= 1 << index
    all_set = (1 << len(base)) - 1
    # row 0 has no entry of the head, so no length grows
    rows = [all_set]
    for entry in head:
        row = rows[-1]
        matching = row & positions[entry]
        # the sum carries a bit past the others up to the next match
        carried = row + matching
        without_matches = row - matching
        rows.append((carried | without_matches) & all_set)
    return _walk_back(base, head, rows)


def _walk_back(
    base: Sequence[Hashable],
    head: Sequence[Hashable],
    rows: Sequence[int],
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
            continue
        row = rows[head_index + 1]
        has_grown = not row >> base_index & 1
        # without this entry of the base the length is the same
        if not has_grown:
            base_index -= 1
        else:
            head_index -= 1
    indices.reverse()
    return indices


def _pairs(
    base: Iterable[Slot],
    head: Iterable[Slot],
    key: Callable[[Slot], Hashable],
) -> Iterator[tuple[Slot, Slot]]:
    """Pair slots with an equal key, unless it is empty, in their order.

    Of a key that one side has more often, the last slots of that side stay alone.
    """
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
    pairs: Sequence[tuple[Slot, Slot]],
    base: Iterable[Slot],
    head: Iterable[Slot],
) -> tuple[list[Slot], list[Slot]]:
    """Slots of both sides that are in no pair."""
    # by identity: slots of different places may be equal
    paired_ids: set[int] = set()
    for base_slot, head_slot in pairs:
        paired_ids.add(id(base_slot))
        paired_ids.add(id(head_slot))
    base_rest = [slot for slot in base if id(slot) not in paired_ids]
    head_rest = [slot for slot in head if id(slot) not in paired_ids]
    return base_rest, head_rest


def _changes(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[SlotSides]:
    """Group what lies between two matches: by name, code, then by the innermost places that both
    sides have.
    """
    same_name = list(_pairs(base=base, head=head, key=lambda slot: slot.name))
    base_rest, head_rest = _without(same_name, base, head)
    # a kernel with another name and the same machine code was renamed
    renamed = list(_pairs(base=base_rest, head=head_rest, key=lambda slot: slot.code))
    pairs = [*same_name, *renamed]
    yield from map(_single, pairs)
    base_rest, head_rest = _without(pairs, base, head)
    for sides in _by_innermost_place(base_rest, head_rest):
        if _is_one_change(sides):
            yield sides
        else:
            yield from _one_by_one(*sides)


def _one_by_one(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[SlotSides]:
    """Pair slots that are too many for one change by their order, else list each as removed or
    added.
    """
    # as many on both sides: the order is the best guess
    if len(base) == len(head):
        yield from map(_single, zip(base, head, strict=True))
        return
    for slot in base:
        yield [slot], []
    for slot in head:
        yield [], [slot]


def _by_innermost_place(base: Sequence[Slot], head: Sequence[Slot]) -> Sequence[SlotSides]:
    """Group slots by the deepest module at which each group is one change; else by the deepest."""

    def groups_at(depth: int) -> Sequence[SlotSides]:
        return _grouped(base=base, head=head, key=lambda slot: slot.position[:depth])

    deepest = max((len(slot.position) for slot in (*base, *head)), default=0)
    for depth in range(deepest, -1, -1):
        groups = groups_at(depth)
        if all(map(_is_one_change, groups)):
            return groups
    return groups_at(deepest)


def _is_one_change(sides: SlotSides) -> bool:
    """Whether both sides have launches, and few enough to read as one replacement."""
    base, head = sides
    # launches of one side alone were added or removed
    if not base or not head:
        return False
    return max(len(base), len(head)) <= _MOST_IN_ONE_CHANGE
