"""Replays recordings of NVML in place of the `pynvml` module; tests/data/nvml/README.md describes the files."""

# ruff: noqa: ARG002, N802

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

VARIABLE = "ROOFWATCH_REPLAYED_NVML"
"""Names the recording for `nvmlInit` of this module."""
PCI_ADDRESS = "00000000:65:00.0"
"""Of the first device."""
_LIBRARY = ""
_CLOCKS = {pynvml.NVML_CLOCK_SM: "SM", pynvml.NVML_CLOCK_MEM: "MEM"}
_current: Any = pynvml


def __getattr__(name: str) -> Any:
    global _current
    if name == "nvmlInit":
        _current = ReplayedNvml(Path(os.environ[VARIABLE]))
    return getattr(_current, name)


class ReplayedNvml:
    """Answers each call with the next recorded answer, and repeats the last one."""

    def __init__(self, path: Path) -> None:
        self._calls_file = Path(f"{path}.calls")
        self._answers: dict[tuple[str, str], list[Any]] = {}
        self._uuids: list[str] = []
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            uuid = entry.get("uuid", _LIBRARY)
            if uuid not in (_LIBRARY, *self._uuids):
                self._uuids.append(uuid)
            for function, answer in entry["answers"].items():
                self._answers.setdefault((uuid, function), []).append(answer)

    def _answer(self, function: str, uuid: str = _LIBRARY) -> Any:
        answers = self._answers.get((uuid, function), [{"error": "FUNCTION_NOT_FOUND"}])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, dict):
            raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{answer['error']}"))
        return answer

    def _set(self, function: str, uuid: str, *values: int) -> None:
        self._answer(function, uuid)
        with self._calls_file.open("a") as calls:
            calls.write(json.dumps([function, uuid, *values]) + "\n")

    def nvmlInit(self) -> None:
        if (_LIBRARY, "nvmlInit") in self._answers:
            self._answer("nvmlInit")

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return str(self._answer("nvmlSystemGetDriverVersion"))

    def nvmlDeviceGetHandleByPciBusId(self, address: str) -> str:
        if address != PCI_ADDRESS:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self._uuids[0]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self._uuids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def nvmlDeviceGetClockInfo(self, handle: str, type: int) -> Any:
        return self._answer(f"nvmlDeviceGetClockInfo({_CLOCKS[type]})", handle)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> Any:
        return self._answer("nvmlDeviceGetTemperature", handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        pids = self._answer("nvmlDeviceGetComputeRunningProcesses", handle)
        return [SimpleNamespace(pid=os.getpid() if pid == "own" else pid) for pid in pids]

    def nvmlDeviceSetGpuLockedClocks(self, handle: str, minGpuClockMHz: int, maxGpuClockMHz: int) -> None:
        self._set("nvmlDeviceSetGpuLockedClocks", handle, minGpuClockMHz, maxGpuClockMHz)

    def nvmlDeviceResetGpuLockedClocks(self, handle: str) -> None:
        self._set("nvmlDeviceResetGpuLockedClocks", handle)

    def __getattr__(self, name: str) -> Any:
        """Constants of `pynvml`; any other function of a device takes only its handle."""
        if name.startswith("nvmlDevice"):
            return lambda handle: self._answer(name, handle)
        return getattr(pynvml, name)
