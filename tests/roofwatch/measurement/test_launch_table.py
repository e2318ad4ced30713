from typing import Any

from rich.table import Table

from roofwatch.collector.record.measurement import Block, CacheState, Measurement, MemoryUse, Timer
from roofwatch.tables import launches, memory_use, profiles
from tests.builders import CASE_ID, NOON, make_activity, make_measurement, make_profile, make_record


def on_a_gpu(*, busy_ns: float = 3_000, host_ns: float | None = 9_000, **fields: Any) -> Measurement:
    block = Block(
        started_at=NOON,
        samples_ns=(busy_ns,),
        span_ns=(busy_ns + 500,),
        host_ns=host_ns,
        launch_delay_ns=6_000,
        kernel_count=2,
    )
    return make_measurement(timer=Timer.CUPTI, cache=CacheState.COLD, blocks=(block,), **fields)


def cells(table: Table | None) -> dict[str, str]:
    assert table is not None
    return {str(column.header): str(next(iter(column.cells))) for column in table.columns}


def test_a_launch_has_busy_gap_delay_and_host_times() -> None:
    shown = cells(launches(make_record(measurements=[on_a_gpu()])))

    assert launches(make_record(measurements=[make_measurement()])) is None
    assert (shown["timer"], shown["cache"], shown["kernels"]) == ("cupti", "cold", "2")
    assert (shown["busy"], shown["gaps"], shown["delay"], shown["host"]) == ("3 µs", "500 ns", "6 µs", "9 µs")


def test_memory_is_shown_if_it_was_counted() -> None:
    memory = MemoryUse(
        peak_allocated_bytes=2**20, peak_reserved_bytes=2**21, allocation_count=1_234, fragmentation=0.125
    )

    shown = cells(
        memory_use(make_record(measurements=[make_measurement(implementation="triton"), on_a_gpu(memory=memory)]))
    )

    assert (shown["allocated"], shown["reserved"]) == ("1 MiB", "2 MiB")
    assert (shown["allocations"], shown["fragmentation"]) == ("1,234", "12.5%")
    unshared = memory.model_copy(update={"fragmentation": None})
    assert cells(memory_use(make_record(measurements=[on_a_gpu(memory=unshared)])))["fragmentation"] == ""
    assert memory_use(make_record(measurements=[on_a_gpu()])) is None


def test_the_longest_profiled_kernels_are_shown() -> None:
    rows = [
        make_activity(f"k{at} [red]", count=6, total_ns=total) for at, total in enumerate((5_000, 3_000, 1_000, 500))
    ]
    profile = make_profile(CASE_ID, *rows, busy_ns=10_000, span_ns=12_000, left_out_count=2, left_out_ns=500)

    table = profiles(make_record(profiles=[profile]))

    shown = {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    assert shown["name"] == ["k0 [red]", "k1 [red]", "k2 [red]", "and 3 more"]
    assert shown["per call"] == ["2", "2", "2", ""]
    assert shown["total"] == ["5 µs", "3 µs", "1 µs", "1 µs"]
    assert shown["share of busy"] == ["50.0%", "30.0%", "10.0%", "10.0%"]
