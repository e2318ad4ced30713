"""Which kernels of two steps belong together: by their order, name, code and place."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from roofwatch.collector.profiling.steps import Slot, StepTimes, fold
from roofwatch.model.grouping import group_by

_MOST_IN_ONE_CHANGE = 16
"""Launches on one side; above, as many are paired in their order, others are listed as removed and
added.
"""
_MOST_AT_ONCE = 16_000
"""Launches on one side that are matched at once; the table of twice as many is four times as large.
"""


class SlotSides(NamedTuple):
    """Slots of the base and of the head that belong together."""

    base: Sequence[Slot]
    head: Sequence[Slot]

    @property
    def first(self) -> Slot:
        """The first slot of the base; of the head if the base has none."""
        if self.base:
            return self.base[0]
        return self.head[0]

    @property
    def base_names(self) -> tuple[str, ...]:
        """Names of the base's kernels, in the order of their launches."""
        return tuple(slot.name for slot in self.base)

    @property
    def head_names(self) -> tuple[str, ...]:
        """Names of the head's kernels, in the order of their launches."""
        return tuple(slot.name for slot in self.head)

    @property
    def is_one_change(self) -> bool:
        """Whether both sides have launches, and few enough to read as one replacement."""
        # launches of one side alone were added or removed
        if not self.base or not self.head:
            return False
        larger_count = max(len(self.base), len(self.head))
        return larger_count <= _MOST_IN_ONE_CHANGE

    def grouped(self, key: Callable[[Slot], Hashable]) -> list["SlotSides"]:
        """Group the slots by a key, in the order in which the keys first occur."""
        base_groups = group_by(self.base, key)
        head_groups = group_by(self.head, key)
        # a dictionary keeps the order, which a set does not
        keys = {**base_groups, **head_groups}
        return [
            SlotSides(base_groups.get(slot_key, []), head_groups.get(slot_key, []))
            for slot_key in keys
        ]

    def pairs(self, key: Callable[[Slot], Hashable]) -> Iterator["SlotSides"]:
        """Pair slots with an equal key, unless it is empty, in their order.

        Of a key that one side has more often, the last slots of that side stay alone.
        """
        groups = group_by(self.base, key)
        # each slot of the base is taken once, in their order
        waiting = {slot_key: iter(slots) for slot_key, slots in groups.items()}
        for slot in self.head:
            slot_key = key(slot)
            # an empty key is unknown code, which equals nothing
            if not slot_key or slot_key not in waiting:
                continue
            base_slot = next(waiting[slot_key], None)
            if base_slot is not None:
                yield SlotSides([base_slot], [slot])

    def without(self, pairs: Iterable["SlotSides"]) -> "SlotSides":
        """The slots that are in no pair."""
        # by identity: slots of different places may be equal
        paired_ids: set[int] = set()
        for pair in pairs:
            paired_ids.update(map(id, pair.base))
            paired_ids.update(map(id, pair.head))
        return SlotSides(
            base=[slot for slot in self.base if id(slot) not in paired_ids],
            head=[slot for slot in self.head if id(slot) not in paired_ids],
        )


def matched_slots(base: StepTimes, head: StepTimes) -> Iterator[SlotSides]:
    """Slots of both sides that belong together, over all steps."""
    # equally many steps are compared one by one, else the mean steps
    if base.step_count == head.step_count:
        sides = SlotSides(base.slots, head.slots)
        steps = sides.grouped(lambda slot: slot.step)
    else:
        mean_step = SlotSides(fold(base.slots), fold(head.slots))
        steps = [mean_step]
    for step in steps:
        # records know how often a kernel ran and not when
        if base.has_order:
            yield from _match(step)
        else:
            yield from _changes(step)


def _match(step: SlotSides) -> Iterator[SlotSides]:
    """Divide the slots of both sides into groups that belong together.

    1. Slots of the same place and name, in one order on both sides.
    2. Those of the same place and name that changed their order.
    3. What lies between two matches of the first kind, as one change.
    """
    base, head = step
    common = _common(
        base=list(map(_place_and_name, base)),
        head=list(map(_place_and_name, head)),
    )
    gaps: list[SlotSides] = []
    base_start = 0
    head_start = 0
    for base_index, head_index in common:
        gap = SlotSides(
            base=base[base_start:base_index],
            head=head[head_start:head_index],
        )
        gaps.append(gap)
        yield SlotSides([base[base_index]], [head[head_index]])
        base_start = base_index + 1
        head_start = head_index + 1
    behind_last = SlotSides(
        base=base[base_start:],
        head=head[head_start:],
    )
    gaps.append(behind_last)
    unmatched = SlotSides(
        base=list(chain.from_iterable(gap.base for gap in gaps)),
        head=list(chain.from_iterable(gap.head for gap in gaps)),
    )
    # the order of streams and threads may differ between the sides
    moved = list(unmatched.pairs(_place_and_name))
    yield from moved
    for gap in gaps:
        yield from _changes(gap.without(moved))


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


def _bounds(
    length: int,
    part: int,
    part_count: int,
) -> tuple[int, int]:
    """First and last position of one of several parts of equal length."""
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
    # from the ends to the beginning, which is why the result is reversed
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


def _changes(gap: SlotSides) -> Iterator[SlotSides]:
    """Group what lies between two matches: by name, code, then by the innermost places that both
    sides have.
    """
    same_name = list(gap.pairs(lambda slot: slot.name))
    # a kernel with another name and the same machine code was renamed
    rest = gap.without(same_name)
    renamed = list(rest.pairs(lambda slot: slot.code))
    pairs = [*same_name, *renamed]
    yield from pairs
    for sides in _by_innermost_place(gap.without(pairs)):
        # few launches on both sides read as one replacement
        if sides.is_one_change:
            yield sides
        else:
            yield from _one_by_one(sides)


def _one_by_one(sides: SlotSides) -> Iterator[SlotSides]:
    """Pair slots that are too many for one change by their order, else list each as removed or
    added.
    """
    # as many on both sides: the order is the best guess
    if len(sides.base) == len(sides.head):
        for base_slot, head_slot in zip(sides.base, sides.head, strict=True):
            yield SlotSides([base_slot], [head_slot])
        return
    for slot in sides.base:
        yield SlotSides([slot], [])
    for slot in sides.head:
        yield SlotSides([], [slot])


def _by_innermost_place(sides: SlotSides) -> Sequence[SlotSides]:
    """Group slots by the deepest module at which each group is one change; else by the deepest."""

    def groups_at(depth: int) -> Sequence[SlotSides]:
        return sides.grouped(lambda slot: slot.position[:depth])

    slots = chain(sides.base, sides.head)
    depths = (len(slot.position) for slot in slots)
    deepest = max(depths, default=0)
    # the innermost modules first: the smaller a group, the more it says
    for depth in range(deepest, -1, -1):
        groups = groups_at(depth)
        if all(group.is_one_change for group in groups):
            return groups
    return groups_at(deepest)
