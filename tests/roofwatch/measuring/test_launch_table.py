from typing import Any

from rich.table import Table

from collector.measurement import Block, CacheState, Measurement, MemoryUse, Timer
from roofwatch.measuring.launch_table import launches
from roofwatch.measuring.memory_table import memory_of_launches
from tests.builders import NOON, make_measurement, make_record


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


def test_a_launch_is_told_apart_from_its_kernels() -> None:
    shown = cells(launches(make_record(measurements=[on_a_gpu()])))

    assert (shown["timer"], shown["cache"], shown["kernels"]) == ("cupti", "cold", "2")
    assert (shown["busy"], shown["gaps"], shown["delay"], shown["host"]) == ("3 µs", "500 ns", "6 µs", "9 µs")


def test_a_launch_that_is_shorter_than_issuing_it_is_called_host_bound_and_one_that_is_not_is_not() -> None:
    assert cells(launches(make_record(measurements=[on_a_gpu(busy_ns=13_400)])))[""] == "host-bound"
    assert cells(launches(make_record(measurements=[on_a_gpu(busy_ns=13_600)])))[""] == ""


def test_kernels_that_vary_are_counted_at_their_most() -> None:
    measured = on_a_gpu()
    varying = measured.model_copy(
        update={"blocks": (measured.blocks[0].model_copy(update={"is_kernel_set_varying": True}),)}
    )

    assert cells(launches(make_record(measurements=[varying])))["kernels"] == "up to 2"


def test_memory_is_shown_where_it_was_counted() -> None:
    memory = MemoryUse(
        peak_allocated_bytes=2**20, peak_reserved_bytes=2**21, allocation_count=1_234, fragmentation=0.125
    )

    shown = cells(
        memory_of_launches(
            make_record(measurements=[make_measurement(implementation="triton"), on_a_gpu(memory=memory)])
        )
    )

    assert (shown["allocated"], shown["reserved"]) == ("1 MiB", "2 MiB")
    assert (shown["allocations"], shown["fragmentation"]) == ("1,234", "12.5%")
    unshared = memory.model_copy(update={"fragmentation": None})
    assert cells(memory_of_launches(make_record(measurements=[on_a_gpu(memory=unshared)])))["fragmentation"] == ""
    assert memory_of_launches(make_record(measurements=[on_a_gpu()])) is None


def test_a_cpu_has_nothing_to_launch() -> None:
    assert launches(make_record(measurements=[make_measurement()])) is None
