"""Replays recordings of NVML in place of the `pynvml` module; tests/data/nvml/README.md describes
the files.
"""

# ruff: noqa: N802

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

    def _answer(self, function: str, uuid: str) -> Any:
        answers = self._answers.get((uuid, function), [{"error": "FUNCTION_NOT_FOUND"}])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, dict):
            raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{answer['error']}"))
        return answer

    def nvmlInit(self) -> None:
        if (_LIBRARY, "nvmlInit") in self._answers:
            self._answer("nvmlInit", _LIBRARY)

    def nvmlShutdown(self) -> None:
        pass

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

    def nvmlDeviceGetFieldValues(self, handle: str, fields: tuple[int, ...]) -> list[Any]:
        values = []
        for field in fields:
            value = pynvml.c_nvmlFieldValue_t()
            value.fieldId = field
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            try:
                value.value.ullVal = self._answer(f"nvmlDeviceGetFieldValues({field})", handle)
            except pynvml.NVMLError:
                value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
            values.append(value)
        return values

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        pids = self._answer("nvmlDeviceGetComputeRunningProcesses", handle)
        return [SimpleNamespace(pid=os.getpid() if pid == "own" else pid) for pid in pids]

    def __getattr__(self, name: str) -> Any:
        """Constants of `pynvml`, and any other function; a setting that was changed is noted in the
        file of calls.
        """
        if not name.startswith("nvml"):
            return getattr(pynvml, name)

        def answer(handle: str = _LIBRARY, *values: int) -> Any:
            found = self._answer(name, handle)
            if name.endswith("LockedClocks"):
                with self._calls_file.open("a") as calls:
                    calls.write(json.dumps([name, handle, *values]) + "\n")
            return found

        return answer
