"""The lock of the clock, with real processes that are really killed; NVML is a recording in all of them."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.collector.device.clock_lock import ClockLock, held_clock, is_asleep, not_held, parse_clock
from roofwatch.collector.device.nvml import CLOCK_LIMIT_TDP
from roofwatch.collector.errors import CollectorError
from tests.collector.nvml import UUID, calls_in, make_reading, replay_everywhere

LOCKED = ["nvmlDeviceSetGpuLockedClocks", UUID, 1500, 1500]
RESET = ["nvmlDeviceResetGpuLockedClocks", UUID]

COLLECTOR = f"""
import os
from roofwatch.collector.device.clock_lock import ClockLock
lock = ClockLock({UUID!r}, 1500)
os.write(1, b"%d\\n" % lock.watchdog_pid)
input()
"""


def wait_for_the_end_of(pid: int) -> None:
    """Of a process that need not be a child."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([process], [], [], 60)[0], f"process {pid} lives on"
    finally:
        os.close(process)


def test_a_clock_is_a_number_of_mhz_or_base() -> None:
    assert parse_clock("1500") == 1500
    assert parse_clock("base") == "base"
    for wrong in ("", "fast", "-1500", "15", "1500.5", "99999", "١٥٠٠"):
        with pytest.raises(CollectorError, match="nvidia-smi -q -d SUPPORTED_CLOCKS"):
            parse_clock(wrong)


def test_the_clock_is_locked_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = replay_everywhere("locked", tmp_path, monkeypatch)

    lock = ClockLock(UUID, 1500)
    held = calls_in(calls)
    complaint = lock.release()

    assert held == [LOCKED]
    assert calls_in(calls) == [LOCKED, RESET]
    assert complaint is None
    assert lock.release() is None
    assert calls_in(calls) == [LOCKED, RESET]


def test_base_is_what_the_driver_calls_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = replay_everywhere("locked", tmp_path, monkeypatch)

    ClockLock(UUID, "base").release()

    assert calls_in(calls)[0][2:] == [CLOCK_LIMIT_TDP, CLOCK_LIMIT_TDP]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_collector_that_is_killed_leaves_a_free_clock(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = replay_everywhere("locked", tmp_path, monkeypatch)
    with subprocess.Popen(
        [sys.executable, "-c", COLLECTOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as collector:
        assert collector.stdout is not None
        watchdog_pid = int(collector.stdout.readline())
        held = calls_in(calls)

        collector.send_signal(how)
        collector.wait(60)
        wait_for_the_end_of(watchdog_pid)

    assert held == [LOCKED]
    assert calls_in(calls) == [LOCKED, RESET]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_watchdog_that_is_asked_to_end_stays_with_its_collector(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = replay_everywhere("locked", tmp_path, monkeypatch)
    lock = ClockLock(UUID, 1500)

    os.kill(lock.watchdog_pid, how)
    held = calls_in(calls)
    lock.release()

    assert held == [LOCKED]
    assert calls_in(calls) == [LOCKED, RESET]


def test_where_the_watchdog_is_killed_the_collector_gives_the_clock_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = replay_everywhere("locked", tmp_path, monkeypatch)
    lock = ClockLock(UUID, 1500)

    os.kill(lock.watchdog_pid, signal.SIGKILL)

    assert lock.release() is None
    assert calls_in(calls) == [LOCKED, RESET]


def test_a_clock_that_cannot_be_given_back_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay_everywhere("locked", tmp_path, monkeypatch)
    lock = ClockLock(UUID, 1500)
    os.kill(lock.watchdog_pid, signal.SIGKILL)

    replay_everywhere("no_driver", tmp_path, monkeypatch)

    assert "nvidia-smi --reset-gpu-clocks" in str(lock.release())


@pytest.mark.parametrize(
    ("recording", "words"),
    [("lock_refused", "Insufficient Permissions"), ("no_driver", "NVML cannot be used"), ("mig", "does not know")],
)
def test_a_lock_that_is_refused_says_why_and_changes_nothing(
    recording: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = replay_everywhere(recording, tmp_path, monkeypatch)

    with pytest.raises(CollectorError, match=f"{words}.*leave --lock-clocks out"):
        ClockLock(UUID, 1500)

    assert calls_in(calls) == []


def test_a_clock_is_held_once_three_readings_are_within_50_mhz() -> None:
    near = [make_reading(0, sm_clock_mhz=1980), *(make_reading(50 * i, sm_clock_mhz=1460) for i in range(1, 4))]

    assert held_clock(near, 1500) == 1500
    assert held_clock(near[:3], 1500) is None
    assert held_clock(near, 1400) is None
    assert held_clock([], 1500) is None


def test_base_is_the_clock_at_which_a_device_that_is_awake_settles() -> None:
    asleep = [make_reading(50 * i, sm_clock_mhz=345, clock_event_reasons=("gpu_idle",)) for i in range(5)]
    falling = [make_reading(50 * i, sm_clock_mhz=1980 - 100 * i) for i in range(5)]
    settled = [make_reading(50 * i, sm_clock_mhz=1590) for i in range(3)]

    assert held_clock(asleep, "base") is None
    assert held_clock(falling, "base") is None
    assert held_clock([*asleep, *falling, *settled], "base") == 1590


def test_only_a_device_that_always_was_idle_was_asleep() -> None:
    idle = make_reading(0, clock_event_reasons=("gpu_idle",))

    assert is_asleep([idle, idle])
    assert not is_asleep([idle, make_reading(50)])
    assert not is_asleep([])


def test_a_lock_that_does_not_hold_names_the_clock_and_what_holds_it_there() -> None:
    capped = [make_reading(0, sm_clock_mhz=830, clock_event_reasons=("sw_power_cap",))]

    assert "held at 1965 MHz and is at 830 MHz (sw_power_cap)" in not_held(capped, 1965)
    assert "at its base and is at 830 MHz" in not_held(capped, "base")
    assert "cannot be told" in not_held([make_reading(0, sm_clock_mhz=None)], 1965)
