from collections.abc import Sequence
from datetime import timedelta

import pytest

from roofwatch.collector.device.telemetry import (
    MAX_STORED_READINGS,
    EnergyMeter,
    Reading,
    TelemetryPart,
    joined,
    no_telemetry,
)
from roofwatch.collector.record.machine import Telemetry
from tests.builders import NOON
from tests.collector.nvml import after, make_reading, telemetry_of


def seen(readings: Sequence[Reading], *, days_later: float = 0) -> Telemetry:
    return TelemetryPart(NOON + timedelta(days=days_later)).columns(readings)


def test_the_record_has_a_column_a_quantity_and_none_of_what_is_not_offered() -> None:
    telemetry = telemetry_of(after(3, "older_driver").readings, started_at=NOON, message="some are missing")

    assert (telemetry.status, telemetry.message) == ("ok", "some are missing")
    assert list(telemetry.offset_ms) == [0, 50, 100]
    assert list(telemetry.sm_clock_mhz) == [1350] * 3
    assert list(telemetry.clock_event_reasons) == [("sw_power_cap",)] * 3
    assert not telemetry.energy_j
    assert not telemetry.foreign_process_count


def test_energy_counts_from_the_first_reading_and_is_unknown_once_the_counter_went_back() -> None:
    meter = EnergyMeter()

    energy = [meter.since_first(reading.energy_j) for reading in after(8, "counter_reset").readings]

    assert energy[:6] == pytest.approx([0, 20.6, 41.2, 61.8, 82.4, 103])
    assert energy[6:] == [None, None]


def test_of_very_many_readings_every_so_many_is_kept() -> None:
    readings = [make_reading(50 * step) for step in range(MAX_STORED_READINGS + 1)]

    telemetry = telemetry_of(readings, started_at=NOON)

    assert len(telemetry.offset_ms) == MAX_STORED_READINGS // 2 + 1
    assert telemetry.offset_ms[1] == 100
    assert telemetry.energy_j[1] == pytest.approx(40)


@pytest.mark.parametrize("cut", range(1, 9))
def test_bit_by_bit_the_columns_of_a_process_are_those_of_all_its_readings(cut: int) -> None:
    readings = after(9, "foreign_process").readings
    part = TelemetryPart(NOON)

    bits = [part.columns(readings[:cut]), part.columns(readings[cut:])]

    assert joined(bits) == telemetry_of(readings, started_at=NOON)


def test_what_two_processes_saw_lies_as_far_apart_as_they_began() -> None:
    first = [make_reading(at_ms) for at_ms in (7_000, 7_050)]
    second = [make_reading(at_ms, sm_clock_mhz=1200) for at_ms in (20, 70)]  # the machine was started anew

    telemetry = joined([seen(first), seen(second, days_later=1)])

    day_ms = 24 * 3_600_000
    assert telemetry.started_at == NOON
    assert list(telemetry.offset_ms) == [0, 50, 100, day_ms, day_ms + 50]
    assert list(telemetry.sm_clock_mhz) == [1980, 1980, None, 1200, 1200]
    assert telemetry.reading_count == 4


def test_however_few_readings_are_kept_the_gap_between_two_processes_is_seen() -> None:
    count = MAX_STORED_READINGS // 2 + 1  # the gap is at an odd place: of every two readings the second one
    parts = [seen([make_reading(50 * step) for step in range(count)]), seen([make_reading(0)] * count, days_later=1)]

    clocks = joined(parts).sm_clock_mhz

    assert len(clocks) < count + 3
    assert list(clocks).count(None) == 1


def test_the_energy_between_two_processes_is_not_the_run_s() -> None:
    first = [make_reading(at_ms) for at_ms in (0, 50)]
    second = [make_reading(at_ms) for at_ms in (900_000, 900_050)]

    assert list(joined([seen(first), seen(second, days_later=1)]).energy_j) == [0, 20, None, 20, 40]


def test_a_wall_clock_that_was_set_back_does_not_turn_the_readings_round() -> None:
    first = [make_reading(at_ms) for at_ms in (0, 50, 100)]

    telemetry = joined([seen(first), seen([make_reading(0)], days_later=-1)])

    assert list(telemetry.offset_ms) == [0, 50, 100, 150, 200]


def test_a_quantity_that_one_process_could_not_read_is_empty_in_its_part() -> None:
    first = [make_reading(0, power_w=None, clock_event_reasons=None)]
    second = [make_reading(0, clock_event_reasons=("sw_power_cap",))]

    telemetry = joined([seen(first), seen(second, days_later=1)])

    assert list(telemetry.power_w) == [None, None, 400.0]
    assert list(telemetry.clock_event_reasons) == [(), (), ("sw_power_cap",)]


def test_a_process_that_could_not_watch_takes_nothing_from_those_that_could() -> None:
    refused = no_telemetry("not_permitted", "this user may not")

    telemetry = joined([seen([make_reading(0)]), refused])

    assert (telemetry.status, telemetry.message) == ("ok", "this user may not")
    assert list(telemetry.offset_ms) == [0]


def test_where_nobody_could_watch_the_last_says_why() -> None:
    parts = [no_telemetry("unavailable", "no driver"), no_telemetry("not_permitted", "this user may not")]

    telemetry = joined(parts)

    assert (telemetry.status, telemetry.message) == ("not_permitted", "no driver; this user may not")
    assert telemetry.offset_ms == ()
