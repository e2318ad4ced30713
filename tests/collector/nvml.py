"""Recordings of NVML to tests, and readings without one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from roofwatch.collector.device.nvml import REPLAY_VARIABLE, NvmlBinding, NvmlDevice
from roofwatch.collector.device.nvml_replay import ReplayedNvml
from roofwatch.collector.device.telemetry import OwnProcesses, Reading, Sampler, TelemetryPart, joined
from roofwatch.collector.record.machine import Telemetry

FOLDER = Path(__file__).parents[1] / "data" / "nvml"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
OTHER_UUID = "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa"
MIG_UUID = "MIG-11111111-2222-3333-4444-555555555555"
MS = 1_000_000


def replayed(name: str) -> NvmlBinding:
    return cast(NvmlBinding, ReplayedNvml(FOLDER / f"{name}.jsonl"))


def replay_everywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have this process and those it starts read a recording; returns the file in which what they set appears."""
    recording = tmp_path / f"{name}.jsonl"
    shutil.copy(FOLDER / recording.name, recording)
    monkeypatch.setenv(REPLAY_VARIABLE, str(recording))
    return Path(f"{recording}.calls")


def calls_in(file: Path) -> list[list[Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def make_reading(at_ms: float, **fields: Any) -> Reading:
    """A device at work: 1980 MHz, 400 W, 50 °C, alone on the device."""
    defaults: dict[str, Any] = {
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "power_w": 400.0,
        "temperature_c": 50,
        "energy_j": 1_000.0 + 0.4 * at_ms,
        "clock_event_reasons": (),
        "foreign_process_count": 0,
    }
    return Reading(at_ns=int(at_ms * MS), **defaults | fields)


def telemetry_of(readings: Sequence[Reading], *, started_at: datetime, message: str | None = None) -> Telemetry:
    """All that a run in one process saw, as a record has it."""
    return joined([TelemetryPart(started_at).columns(readings, message=message)])


def sampler_of(recording: str, uuid: str = UUID) -> Sampler:
    """Not started: each `read` is 50 ms after the one before."""
    times = count(0, 50 * MS)
    device = NvmlDevice(uuid, replayed(recording))
    return Sampler(device, is_own=OwnProcesses().__contains__, now_ns=lambda: next(times))


def after(readings: int, recording: str, uuid: str = UUID) -> Sampler:
    sampler = sampler_of(recording, uuid)
    for _ in range(readings):
        sampler.read()
    return sampler
