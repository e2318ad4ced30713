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
    steps: list[SlotSides] = [(fold(base.slots), fold(head.slots))]
    # equally many steps are compared one by one, else the mean steps
    if base.step_count == head.step_count:
        steps = _grouped(base=base.slots, head=head.slots, key=lambda slot: slot.step)
    # records know how often a kernel ran and not when
    match = _match if base.has_order else _changes
    for base_slots, head_slots in steps:
        yield from match(base_slots, head_slots)


def _grouped(
    base: Iterable[Slot], head: Iterable[Slot], key: Callable[[Slot], object]
) -> list[SlotSides]:
    """Group the slots of both sides by a key, in the order in which the keys first occur."""
    base_groups: defaultdict[object, list[Slot]] = defaultdict(list)
    head_groups: defaultdict[object, list[Slot]] = defaultdict(list)
    for slot in base:
        base_groups[key(slot)].append(slot)
    for slot in head:
        head_groups[key(slot)].append(slot)
    all_keys = dict.fromkeys((*base_groups, *head_groups))
    return [(base_groups[group], head_groups[group]) for group in all_keys]


def _match(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[SlotSides]:
    """Divide the slots of both sides into groups that belong together."""
    base_keys = list(map(_key, base))
    head_keys = list(map(_key, head))
    gaps: list[SlotSides] = []
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


def _single(pair: tuple[Slot, Slot]) -> SlotSides:
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


def _changes(base: Sequence[Slot], head: Sequence[Slot]) -> Iterator[SlotSides]:
    """Group what lies between two matches: by name, code, then by the innermost places that both
    sides have.
    """
    pairs = list(_pairs(base=base, head=head, key=lambda slot: slot.name))
    base_rest, head_rest = _without(pairs, base, head)
    pairs += _pairs(base=base_rest, head=head_rest, key=lambda slot: slot.code)
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


def _by_innermost_place(base: Sequence[Slot], head: Sequence[Slot]) -> Sequence[SlotSides]:
    """Group slots by the deepest module at which each group is one change; else by the deepest."""
    depths = [len(slot.position) for slot in (*base, *head)]
    deepest = max(depths, default=0)
    for depth in range(deepest, -1, -1):
        groups = _at_depth(base, head, depth)
        if all(map(_is_one_change, groups)):
            return groups
    return _at_depth(base, head, deepest)


def _at_depth(base: Sequence[Slot], head: Sequence[Slot], depth: int) -> Sequence[SlotSides]:
    return _grouped(base=base, head=head, key=lambda slot: slot.position[:depth])


def _is_one_change(sides: SlotSides) -> bool:
    return all(0 < len(side) <= _MOST_IN_ONE_CHANGE for side in sides)
