"""Memory of one launch, from the allocator's statistics in the form of torch.cuda.memory_stats."""

from roofwatch.collector.timing.memory import MemoryFloor, memory_floor, memory_use

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


def test_peaks_are_counted_from_what_was_held_before_the_case_was_there() -> None:
    use = memory_use(MemoryFloor(allocated_bytes=32 * MIB, reserved_bytes=40 * MIB), BEFORE, AFTER)

    assert use.peak_allocated_bytes == 128 * MIB
    assert use.peak_reserved_bytes == 180 * MIB


def test_requests_are_those_of_one_launch() -> None:
    assert memory_use(MemoryFloor(0, 0), BEFORE, AFTER).allocation_count == 3


def test_fragmentation_is_what_lies_free_beside_memory_in_use() -> None:
    assert memory_use(MemoryFloor(0, 0), BEFORE, AFTER).fragmentation == 0.25


def test_nothing_reserved_is_not_fragmented() -> None:
    empty = dict.fromkeys(BEFORE, 0)

    assert memory_use(MemoryFloor(0, 0), empty, empty).fragmentation is None


def test_a_cpu_s_memory_is_not_counted() -> None:
    assert memory_floor("cpu") is None
