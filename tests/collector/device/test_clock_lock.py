"""Locks the clock with real processes that are killed; all of them replay a recording of NVML."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from roofwatch.collector.device.clock_lock import ClockLock
from roofwatch.collector.device.device_state import holds_clock
from roofwatch.model.errors import CollectorError
from tests.collector.nvml import UUID, calls_in, make_reading, replay_everywhere

LOCKED = ["nvmlDeviceSetGpuLockedClocks", UUID, 1500, 1500]
RESET = ["nvmlDeviceResetGpuLockedClocks", UUID]

COLLECTOR = f"""
import os
from roofwatch.collector.device.clock_lock import ClockLock
lock = ClockLock({UUID!r}, 1500)
os.write(1, b"%d\\n" % lock.watchdog.pid)
input()
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lists the changes that were made to the clock, which here can be locked."""
    return replay_everywhere("locked", tmp_path, monkeypatch)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_collector_leaves_the_clock_unlocked(how: signal.Signals, calls: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COLLECTOR],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as collector:
        assert collector.stdout is not None
        watchdog_pid = int(collector.stdout.readline())
        held = calls_in(calls)

        collector.send_signal(how)
        collector.wait(60)
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(watchdog_pid).wait(60)

    assert held == [LOCKED]
    assert calls_in(calls) == [LOCKED, RESET]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_watchdog_ignores_signals_to_its_group(how: signal.Signals, calls: Path) -> None:
    lock = ClockLock(UUID, 1500)

    os.kill(lock.watchdog.pid, how)

    assert calls_in(calls) == [LOCKED]
    assert [lock.release(), lock.release()] == [None, None]
    assert calls_in(calls) == [LOCKED, RESET]


def test_the_collector_unlocks_the_clock_if_the_watchdog_is_killed(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = ClockLock(UUID, 1500)
    os.kill(lock.watchdog.pid, signal.SIGKILL)

    assert lock.release() is None
    assert calls_in(calls) == [LOCKED, RESET]

    lock = ClockLock(UUID, 1500)
    os.kill(lock.watchdog.pid, signal.SIGKILL)
    replay_everywhere("no_driver", tmp_path, monkeypatch)

    for _ in range(2):
        assert "nvidia-smi --reset-gpu-clocks" in str(lock.release())


@pytest.mark.parametrize(
    ("recording", "words"),
    [
        ("lock_refused", "Insufficient Permissions"),
        ("no_driver", "NVML cannot be used"),
        ("mig", "does not know"),
    ],
)
def test_a_refused_lock_changes_nothing(
    recording: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = replay_everywhere(recording, tmp_path, monkeypatch)

    with pytest.raises(CollectorError, match=f"{words}.*leave --lock-clocks out"):
        ClockLock(UUID, 1500)

    assert calls_in(calls) == []


def test_a_clock_is_held_once_three_readings_are_within_50_mhz() -> None:
    near = [
        make_reading(0, sm_clock_mhz=1980),
        *(make_reading(50 * i, sm_clock_mhz=1460) for i in range(1, 4)),
    ]

    assert holds_clock(near, 1500)
    assert not holds_clock(near[:3], 1500)
    assert not holds_clock(near, 1400)
    assert not holds_clock([], 1500)
