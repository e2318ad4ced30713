"""Readings of the device, and the columns that a record has of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count

import pytest

from roofwatch.collector.device.nvml import NvmlDevice
from roofwatch.collector.device.telemetry import (
    MAX_STORED_READINGS,
    EnergyMeter,
    OwnProcesses,
    Reading,
    Sampler,
    TelemetryPart,
    foreign_process_count,
    joined,
    no_telemetry,
    parent_pid,
)
from roofwatch.collector.record.machine import Telemetry
from tests.builders import NOON
from tests.collector.nvml import MS, OTHER_UUID, UUID, after, make_reading, replayed, sampler_of, telemetry_of


def test_a_reading_holds_what_the_device_says() -> None:
    reading = after(2, "normal").readings[1]

    assert reading.at_ns == 50 * MS
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz) == (1980, 2619)
    assert (reading.power_w, reading.temperature_c) == (412.5, 52)
    assert reading.energy_j == pytest.approx(8_812_366.278)
    assert reading.clock_event_reasons == ()
    assert reading.foreign_process_count == 0


def test_the_device_with_the_uuid_is_read_and_no_other() -> None:
    readings = after(3, "two_gpus", OTHER_UUID).readings

    assert {reading.sm_clock_mhz for reading in readings} == {1755}
    assert {reading.clock_event_reasons for reading in readings} == {("sw_power_cap",)}


def test_heat_shows_as_lower_clocks_with_their_reasons() -> None:
    readings = after(6, "thermal").readings

    assert readings[-1].sm_clock_mhz == 1905
    assert readings[-1].clock_event_reasons == ("hw_slowdown", "hw_thermal_slowdown")
    assert readings[-2].clock_event_reasons == ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown")


def test_a_foreign_process_is_counted_while_it_is_there() -> None:
    counts = [reading.foreign_process_count for reading in after(9, "foreign_process").readings]

    assert counts == [0, 0, 0, 0, 1, 1, 1, 1, 0]


def test_in_a_container_nobody_is_called_foreign() -> None:
    assert after(1, "other_pid_namespace").readings[0].foreign_process_count is None


def test_a_device_that_is_lost_ends_the_readings_and_keeps_those_there_are() -> None:
    sampler = after(6, "lost")

    assert len(sampler.readings) == 3
    assert sampler.failure is not None
    assert "GPU is lost" in sampler.failure


def test_the_thread_reads_by_itself_until_it_is_stopped() -> None:
    enough = threading.Event()
    times = count(0, 50 * MS)

    def now_ns() -> int:
        now = next(times)
        if now >= 500 * MS:
            enough.set()
        return now

    device = NvmlDevice(UUID, replayed("normal"))
    sampler = Sampler(device, is_own=OwnProcesses().__contains__, period_s=0.0, now_ns=now_ns)
    sampler.start()
    assert enough.wait(60)
    sampler.stop()
    taken = len(sampler.readings)

    assert taken >= 11
    assert not any(thread.name == "roofwatch-telemetry" for thread in threading.enumerate())


def test_the_thread_of_a_lost_device_ends() -> None:
    sampler = sampler_of("lost")
    sampler.start()
    sampler._thread.join(60)

    assert not sampler._thread.is_alive()
    assert sampler.failure is not None


def test_readings_since_a_moment_come_with_the_one_before_it() -> None:
    sampler = after(4, "normal")

    assert [reading.at_ns for reading in sampler.since(100 * MS)] == [50 * MS, 100 * MS, 150 * MS]
    assert [reading.at_ns for reading in sampler.since(0)] == [0, 50 * MS, 100 * MS, 150 * MS]


FAMILY = {30: 20, 20: 10, 10: 1, 99: 1}


def test_processes_are_the_run_s_own_if_the_collector_is_an_ancestor() -> None:
    own = OwnProcesses(10, FAMILY.get)

    assert [pid for pid in (10, 20, 30, 99, 1, 7) if pid in own] == [10, 20, 30]


def test_a_worker_that_has_ended_stays_the_run_s_own() -> None:
    family = dict(FAMILY)
    own = OwnProcesses(10, family.get)
    assert 30 in own

    family.clear()

    assert 30 in own
    assert 99 not in own


def test_a_circle_of_parents_ends() -> None:
    assert 5 not in OwnProcesses(10, {5: 6, 6: 5}.get)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process


def test_a_real_child_process_is_the_run_s_own(child: subprocess.Popen[bytes]) -> None:
    assert parent_pid(child.pid) == os.getpid()
    assert child.pid in OwnProcesses()
    assert os.getppid() not in OwnProcesses()
    assert parent_pid(2**22 + 1) is None


def test_foreign_processes_are_counted_only_in_a_list_that_holds_the_run() -> None:
    own = {1, 2}

    assert foreign_process_count([1, 2, 3, 3, 4], own.__contains__) == 2
    assert foreign_process_count([1], own.__contains__) == 0
    assert foreign_process_count([3, 4], own.__contains__) is None
    assert foreign_process_count([], own.__contains__) is None


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
