"""Rotation through copies, and memory of a launch from allocator statistics."""

import weakref

import pytest

from roofwatch.collector.timing.memory import Rotation, copy_count, memory_floor, memory_use

MIB = 2**20
BEFORE = {
    "allocation.all.allocated": 120,
    "allocated_bytes.all.current": 96 * MIB,
    "allocated_bytes.all.peak": 96 * MIB,
    "reserved_bytes.all.current": 100 * MIB,
    "reserved_bytes.all.peak": 100 * MIB,
    "inactive_split_bytes.all.current": 4 * MIB,
}
AFTER = BEFORE | {
    "allocation.all.allocated": 123,
    "allocated_bytes.all.current": 128 * MIB,
    "allocated_bytes.all.peak": 160 * MIB,
    "reserved_bytes.all.current": 200 * MIB,
    "reserved_bytes.all.peak": 220 * MIB,
    "inactive_split_bytes.all.current": 50 * MIB,
}


@pytest.mark.parametrize(
    ("touched_bytes", "count"),
    [(200 * MIB, 2), (100 * MIB, 2), (99 * MIB, 3), (50 * MIB, 4), (MIB, 200), (0, 2)],
)
def test_copies_together_exceed_twice_the_cache(touched_bytes: int, count: int) -> None:
    assert copy_count(touched_bytes, cache_bytes=100 * MIB) == count


def test_launches_take_turns() -> None:
    called: list[int] = []
    rotation = Rotation([lambda number=number: called.append(number) for number in range(3)])  # type: ignore[misc]

    for _ in range(7):
        rotation()

    assert called == [0, 1, 2, 0, 1, 2, 0]
    assert rotation.count == 3


def test_a_result_is_kept_until_its_launch_is_called_again() -> None:
    made: list[weakref.ref[set[int]]] = []

    def launch() -> set[int]:
        result = {1}
        made.append(weakref.ref(result))
        return result

    rotation = Rotation([launch, launch, launch])
    for _ in range(4):
        rotation()

    assert [result() is not None for result in made] == [False, False, True, True]


def test_memory_counts_from_the_floor() -> None:
    floor = {"allocated_bytes.all.current": 32 * MIB, "reserved_bytes.all.current": 40 * MIB}
    use = memory_use(floor, BEFORE, AFTER)

    assert (use.peak_allocated_bytes, use.peak_reserved_bytes) == (128 * MIB, 180 * MIB)
    assert (use.allocation_count, use.fragmentation) == (3, 0.25)
    empty = dict.fromkeys(BEFORE, 0)
    assert memory_use(empty, empty, empty).fragmentation is None
    assert memory_floor("cpu") is None
