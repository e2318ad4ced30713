"""NVML from a recording: a file of what its functions answered, in the place of the library.

The file has one JSON object a line. `uuid` names a device, and is left out for the library itself; `answers` has, by
the name of an NVML function, what it answered: `nvmlDeviceGetClockInfo` with its clock in brackets, `(SM)` or `(MEM)`;
of processes the list of their ids, in which `own` is the process that replays; of an error, for example,
`{"error": "NOT_SUPPORTED"}`, with NVML's name of the code less `NVML_ERROR_`.

The n-th call of a function on a device gets the n-th of its answers, and every call after the last gets the last. A
function that the file does not have is one that the driver does not have.

Settings are not only answered: each is appended to the file of the same name with `.calls` behind it.
"""

# ruff: noqa: N802, N803  NVML's own names

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofwatch.collector.errors import CollectorError

_LIBRARY = ""
_CLOCKS = {1: "SM", 2: "MEM"}


@dataclass(frozen=True)
class ReplayedProcess:
    pid: int


class ReplayedNvml:
    """Answers as the recording says, under the names of `pynvml`, with its errors.

    Raises:
        CollectorError: the file is no recording.
    """

    def __init__(self, path: Path) -> None:
        import pynvml

        self.NVMLError = pynvml.NVMLError
        self._codes = {
            name.removeprefix("NVML_ERROR_"): code
            for name, code in vars(pynvml).items()
            if name.startswith("NVML_ERROR_")
        }
        self._calls_file = Path(f"{path}.calls")
        self._answers: dict[tuple[str, str], list[Any]] = {}
        self._given: dict[tuple[str, str], int] = {}
        self._uuids: list[str] = []
        try:
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                self._read(json.loads(line), f"{path}, line {number}")
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CollectorError(f"{path}: no recording of NVML: {error}") from None

    def _read(self, line: Any, where: str) -> None:
        if not isinstance(line, dict) or not isinstance(line.get("answers"), dict):
            raise CollectorError(f"{where}: expected an object with `answers`")
        uuid = line.get("uuid", _LIBRARY)
        if uuid not in (_LIBRARY, *self._uuids):
            self._uuids.append(uuid)
        for function, answer in line["answers"].items():
            if isinstance(answer, dict) and answer.get("error") not in self._codes:
                raise CollectorError(f"{where}: {function}: NVML has no error {answer.get('error')!r}")
            self._answers.setdefault((uuid, function), []).append(answer)

    def _answer(self, function: str, uuid: str = _LIBRARY) -> Any:
        key = (uuid, function)
        answers = self._answers.get(key)
        if answers is None:
            raise self.NVMLError(self._codes["FUNCTION_NOT_FOUND"])
        place = self._given.get(key, 0)
        self._given[key] = place + 1
        answer = answers[min(place, len(answers) - 1)]
        if isinstance(answer, dict):
            raise self.NVMLError(self._codes[answer["error"]])
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

    def nvmlDeviceGetCount(self) -> int:
        return len(self._uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self._uuids[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self._uuids:
            raise self.NVMLError(self._codes["NOT_FOUND"])
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetClockInfo(self, handle: str, type: int) -> Any:
        return self._answer(f"nvmlDeviceGetClockInfo({_CLOCKS[type]})", handle)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> Any:  # noqa: ARG002  there is one
        return self._answer("nvmlDeviceGetTemperature", handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[ReplayedProcess]:
        pids = self._answer("nvmlDeviceGetComputeRunningProcesses", handle)
        return [ReplayedProcess(os.getpid() if pid == "own" else pid) for pid in pids]

    def nvmlDeviceSetGpuLockedClocks(self, handle: str, minGpuClockMHz: int, maxGpuClockMHz: int) -> None:
        self._set("nvmlDeviceSetGpuLockedClocks", handle, minGpuClockMHz, maxGpuClockMHz)

    def nvmlDeviceResetGpuLockedClocks(self, handle: str) -> None:
        self._set("nvmlDeviceResetGpuLockedClocks", handle)

    def __getattr__(self, function: str) -> Any:
        """Every other function of a device takes its handle alone."""
        if not function.startswith("nvmlDevice"):
            raise AttributeError(function)
        return lambda handle: self._answer(function, handle)
