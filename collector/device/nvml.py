"""One NVIDIA device through NVML, and the reasons that hold its clock down."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, cast

from roofwatch.collector.device.nvml_replay import ReplayedNvml

SW_POWER_CAP = "sw_power_cap"
GPU_IDLE = "gpu_idle"

EVENT_REASONS: dict[int, str] = {
    0x1: GPU_IDLE,
    0x2: "applications_clocks_setting",
    0x4: SW_POWER_CAP,
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""By bit. NVML's `nvmlClocksEventReason…`; the last two have their older `nvmlClocksThrottleReason…` names alone."""

FAULTS = frozenset({"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"})
"""A device that is held down by these is not itself: too hot, or short of power. `sw_power_cap` is none of them: at
its power limit is where a busy GPU works, and a kernel that needs less of it is the faster for that.
"""

THERMAL = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown"})
"""Those faults that pass by themselves if one waits."""


def reason_names(bits: int) -> tuple[str, ...]:
    """The names of all set bits, the lowest first; a bit of a newer driver as its number."""
    set_bits = (1 << position for position in range(bits.bit_length()) if bits >> position & 1)
    return tuple(EVENT_REASONS.get(bit, f"unknown_{bit:#x}") for bit in set_bits)


# ruff: noqa: N802, N803  NVML's own names


REPLAY_VARIABLE = "ROOFWATCH_NVML_REPLAY"
"""Names a recording to read in NVML's place."""

CLOCK_SM = 1
CLOCK_MEMORY = 2
CLOCK_LIMIT_TDP = 0xFFFFFF01
"""In place of a clock: the one that the device holds at its power limit, its base clock."""
_TEMPERATURE_GPU = 0

Status = Literal["ok", "unavailable", "not_permitted", "unsupported"]


class NvmlCode(IntEnum):
    """Of NVML's return codes those that are told apart here (nvml.h, `nvmlReturn_t`)."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16


_NEVER_OFFERED = frozenset({NvmlCode.NOT_SUPPORTED, NvmlCode.FUNCTION_NOT_FOUND, NvmlCode.NO_PERMISSION})
_GONE = frozenset({NvmlCode.UNINITIALIZED, NvmlCode.DRIVER_NOT_LOADED, NvmlCode.GPU_IS_LOST, NvmlCode.RESET_REQUIRED})
_STATUS: dict[int, Status] = {NvmlCode.NO_PERMISSION: "not_permitted", NvmlCode.NOT_SUPPORTED: "unsupported"}


class NvmlBinding(Protocol):
    """Of `pynvml` what is used here, with its names; any call may raise `NVMLError`, whose `value` is the code."""

    NVMLError: Any

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...
    def nvmlDeviceIsMigDeviceHandle(self, device: Any) -> int: ...
    def nvmlDeviceGetMigMode(self, device: Any) -> Sequence[int]: ...
    def nvmlDeviceGetEccMode(self, handle: Any) -> Sequence[int]: ...
    def nvmlDeviceGetPersistenceMode(self, handle: Any) -> int: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int: ...
    def nvmlDeviceGetClockInfo(self, handle: Any, type: int) -> int: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int: ...
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int: ...
    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int: ...
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Sequence[Any]: ...
    def nvmlDeviceSetGpuLockedClocks(self, handle: Any, minGpuClockMHz: int, maxGpuClockMHz: int) -> None: ...
    def nvmlDeviceResetGpuLockedClocks(self, handle: Any) -> None: ...


class NvmlError(Exception):
    """Nothing can be read of the device, or a setting was refused.

    Args:
        status: As it stands in a record.
        message: Why, and what may help.
    """

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class DeviceLostError(NvmlError):
    """The device answered before, and does not any more."""


@dataclass(frozen=True)
class DeviceFacts:
    """What does not change while a run lasts; None where NVML does not say."""

    driver_version: str | None = None
    power_limit_w: float | None = None
    is_persistence_on: bool | None = None
    is_ecc_on: bool | None = None
    is_mig_on: bool | None = None


def nvml_binding() -> NvmlBinding:
    """NVML's binding, or the recording that `ROOFWATCH_NVML_REPLAY` names.

    Raises:
        CollectorError: the recording cannot be read.
    """
    recording = os.environ.get(REPLAY_VARIABLE)
    if recording:
        return cast(NvmlBinding, ReplayedNvml(Path(recording)))
    import pynvml

    return cast(NvmlBinding, pynvml)


class NvmlDevice:
    """One device; used as a context, or closed.

    Args:
        uuid: As torch gives it, with or without its prefix; None takes the machine's only device.
        nvml: Answers; NVML itself if left out.

    Raises:
        NvmlError: NVML is not there, or knows no such device.
    """

    def __init__(self, uuid: str | None, nvml: NvmlBinding | None = None) -> None:
        self._nvml = nvml_binding() if nvml is None else nvml
        self._refused: set[str] = set()
        self.uuid = ""
        """With its prefix."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise self._refusal("NVML cannot be used", error) from None
        try:
            self._handle = self._find(uuid) if uuid else self._only_device()
        except NvmlError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    @property
    def refused(self) -> tuple[str, ...]:
        """NVML functions that this device does not offer, of those that were asked."""
        return tuple(sorted(self._refused))

    def facts(self) -> DeviceFacts:
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit", self._handle)
        ecc = self._ask("nvmlDeviceGetEccMode", self._handle)
        persistence = self._ask("nvmlDeviceGetPersistenceMode", self._handle)
        return DeviceFacts(
            driver_version=self._ask("nvmlSystemGetDriverVersion"),
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            is_persistence_on=None if persistence is None else bool(persistence),
            is_ecc_on=None if ecc is None else bool(ecc[0]),
            is_mig_on=self.is_mig_on(),
        )

    def is_mig_on(self) -> bool | None:
        """Whether this is a slice of a device, or a device that is sliced; a device that cannot be sliced is none."""
        if self._ask("nvmlDeviceIsMigDeviceHandle", self._handle):
            return True
        mode = self._ask("nvmlDeviceGetMigMode", self._handle)
        if mode is not None:
            return bool(mode[0])
        return False if "nvmlDeviceGetMigMode" in self._refused else None

    def sm_clock_mhz(self) -> int | None:
        return self._number("nvmlDeviceGetClockInfo", self._handle, CLOCK_SM)

    def memory_clock_mhz(self) -> int | None:
        return self._number("nvmlDeviceGetClockInfo", self._handle, CLOCK_MEMORY)

    def power_w(self) -> float | None:
        """Averaged over the last second, except on GA100 and before Ampere, says NVML's reference."""
        power_mw = self._number("nvmlDeviceGetPowerUsage", self._handle)
        return None if power_mw is None else power_mw / 1000

    def temperature_c(self) -> int | None:
        return self._number("nvmlDeviceGetTemperature", self._handle, _TEMPERATURE_GPU)

    def energy_j(self) -> float | None:
        """Since the driver was loaded; a counter that moves in steps."""
        energy_mj = self._number("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        return None if energy_mj is None else energy_mj / 1000

    def clock_event_reasons(self) -> tuple[str, ...] | None:
        """What holds the clock down now. Older drivers know the function by its older name alone."""
        bits = self._number("nvmlDeviceGetCurrentClocksEventReasons", self._handle)
        if bits is None:
            bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle)
        return None if bits is None else reason_names(bits)

    def compute_process_ids(self) -> tuple[int, ...] | None:
        """Processes with a compute context on the device, in whatever PID namespace the driver tells of."""
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", self._handle)
        return None if processes is None else tuple(process.pid for process in processes)

    def lock_sm_clock(self, mhz: int) -> None:
        """Hold the clock at one frequency, or at `CLOCK_LIMIT_TDP`, until it is reset by whomever.

        Raises:
            NvmlError: it is not permitted, or not offered, or not a clock of the device.
        """
        try:
            self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, mhz, mhz)
        except self._nvml.NVMLError as error:
            raise self._refusal("the SM clock cannot be locked", error) from None

    def reset_sm_clock(self) -> None:
        """Let the device choose its clock again.

        Raises:
            NvmlError: it is not permitted, or not offered.
        """
        try:
            self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle)
        except self._nvml.NVMLError as error:
            raise self._refusal("the SM clock cannot be reset", error) from None

    def _find(self, uuid: str) -> Any:
        names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
        for name in names:
            try:
                handle = self._nvml.nvmlDeviceGetHandleByUUID(name)
            except self._nvml.NVMLError as error:
                if error.value not in {NvmlCode.NOT_FOUND, NvmlCode.INVALID_ARGUMENT}:
                    raise self._refusal("the device cannot be asked", error) from None
            else:
                self.uuid = name
                return handle
        raise NvmlError("unavailable", "NVML does not know the device that torch uses")

    def _only_device(self) -> Any:
        try:
            count = self._nvml.nvmlDeviceGetCount()
            if count == 1:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(0)
                self.uuid = str(self._nvml.nvmlDeviceGetUUID(handle))
                return handle
        except self._nvml.NVMLError as error:
            raise self._refusal("the device cannot be asked", error) from None
        raise NvmlError(
            "unavailable", f"NVML sees {count} devices, and torch does not tell the UUID of the one it uses"
        )

    def _number(self, function: str, *arguments: Any) -> int | None:
        answer = self._ask(function, *arguments)
        return None if answer is None else int(answer)

    def _ask(self, function: str, *arguments: Any) -> Any:
        """The answer; None where the device does not offer it, which is asked once, or could not say just now."""
        question = " ".join([function, *map(str, arguments[1:])])
        if question in self._refused:
            return None
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in _GONE:
                raise DeviceLostError("unavailable", f"the device stopped answering: {error}") from None
            if error.value in _NEVER_OFFERED:
                self._refused.add(question)
            return None

    def _refusal(self, what: str, error: Any) -> NvmlError:
        hint = {
            NvmlCode.LIBRARY_NOT_FOUND: ": is NVIDIA's driver installed, and its utilities in the container?",
            NvmlCode.DRIVER_NOT_LOADED: ": is NVIDIA's driver loaded?",
            NvmlCode.NO_PERMISSION: ": this user may not",
        }.get(error.value, "")
        return NvmlError(_STATUS.get(error.value, "unavailable"), f"{what} ({error}){hint}")
