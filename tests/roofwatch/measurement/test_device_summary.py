from pathlib import Path
from typing import Any

from roofwatch.collector.record.machine import DeviceState, Telemetry
from roofwatch.collector.record.record import RunRecord
from roofwatch.measurement.run_tables import device_summary
from tests.builders import NOON, make_blocks, make_measurement, make_record
from tests.roofwatch.command import SUITES, roofwatch

READINGS = Telemetry(status="ok", started_at=NOON, offset_ms=tuple(range(0, 500, 50)))


def record_with(*states: DeviceState, telemetry: Telemetry | None = READINGS) -> RunRecord:
    blocks = tuple(
        block.model_copy(update={"device_state": state})
        for block, state in zip(make_blocks([1_000.0] * len(states)), states, strict=True)
    )
    return make_record(measurements=[make_measurement(blocks=blocks)], telemetry=telemetry)


def state(**fields: Any) -> DeviceState:
    defaults: dict[str, Any] = {"reading_count": 2, "sm_clock_mhz": 1_980, "power_w": 412, "temperature_c": 52}
    return DeviceState(**defaults | fields)


def test_a_quiet_device_is_described_in_one_line() -> None:
    assert device_summary(record_with(state(), state(sm_clock_mhz=1_965, temperature_c=55))) == [
        "device: 10 readings, SM clock 1965 to 1980 MHz, median 1972, 412 W, up to 55 °C"
    ]


def test_what_spoils_times_comes_first_with_its_number_of_blocks() -> None:
    record = record_with(
        state(),
        state(degraded_by=("hw_thermal_slowdown", "foreign_process"), clock_event_reasons=("sw_power_cap",)),
        state(degraded_by=("foreign_process",)),
    )

    first, second = device_summary(record)

    assert first == ("device: 2 of 3 blocks are not reliable: foreign_process in 2, hw_thermal_slowdown in 1")
    assert second.endswith("at the power limit in 1 of 3 blocks")


def test_the_blocks_of_both_sides_of_a_pair_are_counted_together() -> None:
    assert "1 of 2 blocks" in device_summary(record_with(state()), record_with(state(degraded_by=("hw_slowdown",))))[0]


def test_a_device_that_could_not_be_watched_says_why() -> None:
    refused = Telemetry(status="not_permitted", started_at=NOON, message="this user may not")

    assert device_summary(make_record(telemetry=refused)) == ["device: no telemetry (not_permitted): this user may not"]


def test_what_is_missing_among_the_readings_is_said() -> None:
    partial = READINGS.model_copy(update={"message": "not offered here: the energy counter"})

    assert device_summary(record_with(state(), telemetry=partial))[-1] == "device: not offered here: the energy counter"


def test_where_nobody_watched_there_is_nothing_to_say() -> None:
    assert device_summary(make_record()) == []


def test_a_clock_is_refused_before_anything_is_measured() -> None:
    done = roofwatch("run", SUITES / "bench_good.py", "--device", "cpu", "--lock-clocks", "fast")

    assert done.status == 2
    assert "give the SM clock in MHz" in done.error
    assert "Traceback" not in done.error


def test_a_clock_cannot_be_locked_where_there_is_no_gpu(tmp_path: Path) -> None:
    done = roofwatch("run", SUITES / "bench_good.py", "--device", "cpu", "--lock-clocks", "1500", "-o", tmp_path)

    assert done.status == 2
    assert "a CPU has no clock to lock; leave it out" in done.error
    assert not list(tmp_path.glob("*.json*"))
