"""Device state of a block, from readings."""

from typing import Any

import pytest

from roofwatch.collector.device.device_state import BlockWindow, device_state, energy_between
from roofwatch.model.machine import DeviceState
from roofwatch.model.measurement import measured_values
from tests.builders import make_blocks, make_case, make_measurement
from tests.collector.nvml import MS, make_reading

WINDOW = BlockWindow(100 * MS, 300 * MS)
BUSY = [make_reading(at_ms) for at_ms in range(0, 500, 50)]


def state_of(*changes: tuple[float, dict[str, Any]], **arguments: Any) -> DeviceState:
    """Of readings every 50 ms, some of them changed, in the window from 100 to 300 ms."""
    changed = dict(changes)
    readings = [make_reading(at_ms, **changed.get(at_ms, {})) for at_ms in range(0, 500, 50)]
    return device_state(readings, WINDOW, **{"launch_count": 1_000} | arguments)


def test_the_state_of_a_block_sums_up_its_readings() -> None:
    state = state_of((150, {"sm_clock_mhz": 1965, "power_w": 500.0, "temperature_c": 61}))

    assert state.reading_count == 5
    assert (state.sm_clock_mhz, state.memory_clock_mhz) == (1980, 2619)
    assert (state.power_w, state.temperature_c) == (420, 61)
    assert state.energy_per_launch_j == pytest.approx(0.08)  # 400 W for 200 ms over 1000 launches
    assert state.clock_event_reasons == state.degraded_by == ()


@pytest.mark.parametrize(
    ("at_ms", "changed", "degraded_by"),
    [
        (200, {"clock_event_reasons": ("hw_thermal_slowdown",)}, ("hw_thermal_slowdown",)),
        (200, {"clock_event_reasons": ("sw_power_cap",)}, ()),
        (350, {"clock_event_reasons": ("hw_slowdown",)}, ()),  # after the block
        (200, {"foreign_process_count": 2}, ("foreign_process",)),
        (200, {"foreign_process_count": None}, ()),
    ],
)
def test_a_disturbance_during_a_block_degrades_it(
    at_ms: float, changed: dict[str, Any], degraded_by: tuple[str, ...]
) -> None:
    assert state_of((at_ms, changed)).degraded_by == degraded_by


def test_a_clock_that_ranges_over_a_tenth_degrades_a_block() -> None:
    clocks_mhz = [1980, 1970, 1950, 1940, 1900, 1880, 1860, 1850, 1840]
    falling = [
        make_reading(100 + 25 * place, sm_clock_mhz=mhz) for place, mhz in enumerate(clocks_mhz)
    ]
    low = [make_reading(125 + 25 * place, sm_clock_mhz=1500) for place in range(8)]

    assert device_state(falling, WINDOW, launch_count=1).degraded_by == ()
    assert device_state([*falling[:4], *low[4:]], WINDOW, launch_count=1).degraded_by == (
        "unsteady_sm_clock",
    )
    assert state_of((200, {"sm_clock_mhz": 345})).degraded_by == (), "one late reading among few"


def test_a_clock_that_leaves_its_lock_degrades_a_block() -> None:
    assert state_of(locked_sm_clock_mhz=1935.0).degraded_by == ()
    assert state_of(locked_sm_clock_mhz=1500.0).degraded_by == ("clock_lock_lost",)


def test_a_short_block_takes_the_nearest_reading() -> None:
    state = device_state(BUSY, BlockWindow(110 * MS, 120 * MS), launch_count=10)

    assert state.reading_count == 1
    assert state.sm_clock_mhz == 1980
    assert device_state([], WINDOW, launch_count=10) == DeviceState(reading_count=0)


def test_energy_is_interpolated_between_readings() -> None:
    assert energy_between(BUSY, BlockWindow(110 * MS, 290 * MS)) == pytest.approx(0.4 * 180)


@pytest.mark.parametrize(
    "window",
    [BlockWindow(-10 * MS, 300 * MS), BlockWindow(100 * MS, 460 * MS)],
    ids=["begins before", "ends after"],
)
def test_energy_outside_of_the_readings_is_unknown(window: BlockWindow) -> None:
    assert energy_between(BUSY, window) is None


def test_energy_of_a_counter_that_went_back_is_unknown() -> None:
    went_back = [
        make_reading(at_ms, energy_j=1_000.0 if at_ms < 200 else 5.0 + at_ms)
        for at_ms in range(0, 500, 50)
    ]

    assert energy_between(went_back, WINDOW) is None


def test_energy_of_a_counter_that_moved_once_is_unknown() -> None:
    moved_once = [
        make_reading(at_ms, energy_j=1_000.0 if at_ms < 200 else 1_040.0)
        for at_ms in range(0, 500, 50)
    ]

    assert energy_between(moved_once, WINDOW) is None


def joules_of(*energies_j: float | None) -> float | None:
    blocks = tuple(
        block.model_copy(
            update={"device_state": DeviceState(reading_count=2, energy_per_launch_j=energy_j)}
        )
        for block, energy_j in zip(
            make_blocks([1_000.0] * len(energies_j)), energies_j, strict=True
        )
    )
    return measured_values(make_measurement(blocks=blocks), make_case()).get("joules_per_launch")


def test_the_energy_of_a_launch_is_the_median_over_blocks_with_energy() -> None:
    assert joules_of(0.01, 0.03, 0.02) == 0.02
    assert joules_of(0.01, None, 0.03) == pytest.approx(0.02)
    assert joules_of(None, None) is None
