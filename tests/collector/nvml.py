"""Recordings of NVML for tests, and readings without one."""

import json
import shutil
from collections.abc import Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.device.nvml import NvmlDevice
from roofwatch.collector.device.telemetry import Reading, Sampler
from roofwatch.model.machine import Telemetry
from tests.collector import replayed_nvml
from tests.collector.replayed_nvml import ReplayedNvml

FOLDER = Path(__file__).parents[1] / "data" / "nvml"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
OTHER_UUID = "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa"
MIG_UUID = "MIG-11111111-2222-3333-4444-555555555555"
MS = 1_000_000


def replayed(name: str) -> ReplayedNvml:
    return ReplayedNvml(FOLDER / f"{name}.jsonl")


def replay_everywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replay a recording in this process and in those it starts; returns the file that lists
    changed settings.
    """
    recording = tmp_path / f"{name}.jsonl"
    shutil.copy(FOLDER / recording.name, recording)
    monkeypatch.setenv("ROOFWATCH_NVML_MODULE", replayed_nvml.__name__)
    monkeypatch.setenv(replayed_nvml.VARIABLE, str(recording))
    return Path(f"{recording}.calls")


def calls_in(file: Path) -> list[list[Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def make_reading(at_ms: float, **fields: Any) -> Reading:
    """A busy device: 1980 MHz, 400 W, 50 °C, without other processes."""
    defaults: dict[str, Any] = {
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "power_w": 400.0,
        "temperature_c": 50,
        "energy_j": 0.4 * at_ms,
        "clock_event_reasons": (),
        "foreign_process_count": 0,
    }
    return Reading(at_ns=int(at_ms * MS), **defaults | fields)


def telemetry_of(readings: Sequence[Reading], *, started_at: datetime) -> Telemetry:
    """Telemetry of a process that took some readings."""
    sampler = sampler_of("normal")
    sampler._readings, sampler._started_at = list(readings), started_at
    return sampler.telemetry()


def sampler_of(recording: str, uuid: str = UUID) -> Sampler:
    """A sampler that was not started; each `read` is 50 ms after the one before."""
    times = count(0, 50 * MS)
    return Sampler(NvmlDevice(uuid, replayed(recording)), now_ns=lambda: next(times))


def after(readings: int, recording: str) -> Sampler:
    sampler = sampler_of(recording)
    for _ in range(readings):
        sampler.read()
    return sampler
