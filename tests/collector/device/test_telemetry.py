import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from roofwatch.collector.device.nvml import NvmlDevice
from roofwatch.collector.device.telemetry import OwnProcesses, Sampler, foreign_process_count, parent_pid
from tests.collector.nvml import MS, OTHER_UUID, UUID, after, replayed, sampler_of


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
