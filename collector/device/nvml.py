"""Read and control one NVIDIA GPU through NVML."""

import contextlib
import importlib
import os
from typing import Any, Literal, Self

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
"""NVML's `nvmlClocksEventReason…` by bit; the last two exist only as `nvmlClocksThrottleReason…`.
"""

FAULTS = frozenset(
    {"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"}
)
"""Reasons that make samples unreliable: overheating or insufficient power. `sw_power_cap` is not a
fault: a busy GPU normally runs at its power limit."""

THERMAL = frozenset({"hw_thermal_slowdown", "sw_thermal_slowdown"})

# field values: the newer identifiers of these counters differ between drivers, these do not
_POWER_INSTANT_FIELD = 186
_MEMORY_TEMPERATURE_FIELD = 82
_HELD_BACK_FIELDS = {SW_POWER_CAP: 74, "sw_thermal_slowdown": 75, "board_limit": 77}

_MEMBERS = {
    0: "dVal",
    1: "uiVal",
    2: "ulVal",
    3: "ullVal",
    4: "sllVal",
    5: "siVal",
    6: "usVal",
}
"""Member of a field's union, by `nvmlValueType_t`: drivers differ in the type of a field."""

_OPTIONAL = (
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetCurrPcieLink",
    "nvmlDeviceGetMaxPcieLink",
    "nvmlDeviceGetRemappedRows",
)

_MODULE_VARIABLE = "ROOFWATCH_NVML_MODULE"
"""Replaces `pynvml` in tests."""

Status = Literal["ok", "unavailable", "not_permitted", "unsupported"]


def reason_names(bits: int) -> tuple[str, ...]:
    """Name all set bits, lowest first; a bit unknown to this version appears as its number."""
    names: list[str] = []
    for position in range(bits.bit_length()):
        bit = 1 << position
        if bits & bit:
            names.append(EVENT_REASONS.get(bit, f"unknown_{bit:#x}"))
    return tuple(names)


class NvmlError(Exception):
    """The device cannot be read, or a setting was refused;
    the message says why and what may help.
    """

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class DeviceLostError(NvmlError):
    """The device answered before and no longer does."""


class NvmlDevice:
    """One GPU, by its UUID with or without prefix or its PCI address; `nvml` replaces the `pynvml`
    module.

    Raises:
        NvmlError: NVML is not available, or does not know the device.
    """

    def __init__(self, name: str | None, nvml: Any = None) -> None:
        self._nvml = nvml or importlib.import_module(os.environ.get(_MODULE_VARIABLE, "pynvml"))
        self._unsupported: set[str] = set()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise self._error("NVML cannot be used", error) from None
        try:
            self._handle, self.uuid = self._find(name)
        except NvmlError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    @property
    def unsupported(self) -> tuple[str, ...]:
        """NVML functions that were called and that this device does not support, without those
        that many devices lack and no verdict uses.
        """
        return tuple(
            sorted(query for query in self._unsupported if not query.startswith(_OPTIONAL))
        )

    def facts(self) -> dict[str, Any]:
        """Properties that stay constant during a run, by the fields of `Environment`."""
        ecc = self._query("nvmlDeviceGetEccMode")
        is_ecc_on = None
        if ecc is not None:
            # the current mode; the second is that after the next restart
            is_ecc_on = bool(ecc[0])
        persistence = self._query("nvmlDeviceGetPersistenceMode")
        is_persistence_on = None
        if persistence is not None:
            is_persistence_on = bool(persistence)
        return {
            "driver_version": self._query("nvmlSystemGetDriverVersion", has_handle=False),
            "power_limit_w": _thousandth(self._query("nvmlDeviceGetEnforcedPowerLimit")),
            "is_persistence_on": is_persistence_on,
            "is_ecc_on": is_ecc_on,
            "is_mig_on": self.is_mig_on(),
        }

    def is_mig_on(self) -> bool | None:
        """Whether the device is a MIG slice or divided into slices; False if it does not support
        MIG.
        """
        if self._query("nvmlDeviceIsMigDeviceHandle"):
            return True
        mode = self._query("nvmlDeviceGetMigMode")
        if mode is not None:
            return bool(mode[0])
        if "nvmlDeviceGetMigMode" in self._unsupported:
            return False
        return None

    def quantities(self) -> dict[str, Any]:
        """What changes during a run, by the fields of `Reading`; None for what the device does not
        report.

        Energy is counted since the driver was loaded, in steps. Power is instantaneous; a driver
        before 530 reports the average of the last second. Source: NVML reference.
        """
        nvml = self._nvml
        bits = self._query("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # an older driver
            bits = self._query("nvmlDeviceGetCurrentClocksThrottleReasons")
        power_mw = self._field(_POWER_INSTANT_FIELD)
        if power_mw is None:
            power_mw = self._query("nvmlDeviceGetPowerUsage")
        clock_event_reasons = None
        if bits is not None:
            clock_event_reasons = reason_names(bits)
        return {
            "energy_j": _thousandth(self._query("nvmlDeviceGetTotalEnergyConsumption")),
            "sm_clock_mhz": self._query("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self._query("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "power_w": _thousandth(power_mw),
            "temperature_c": self._query("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "memory_temperature_c": self._field(_MEMORY_TEMPERATURE_FIELD),
            "clock_event_reasons": clock_event_reasons,
        }

    def held_back_counts(self) -> dict[str, int]:
        """Counters of how long each reason has reduced the clock since the driver was loaded.

        A counter that grew between two readings shows a reason that was active between them only.
        """
        counts: dict[str, int] = {}
        for reason, field in _HELD_BACK_FIELDS.items():
            count = self._field(field)
            if count is not None:
                counts[reason] = count
        return counts

    def health(self) -> dict[str, float]:
        """What an engineer checks before trusting a device; without what it does not report."""
        nvml = self._nvml
        volatile = nvml.NVML_VOLATILE_ECC
        values = {
            "performance_state": self._query("nvmlDeviceGetPerformanceState"),
            "ecc_corrected_errors": self._query(
                "nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, volatile
            ),
            "ecc_uncorrected_errors": self._query(
                "nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, volatile
            ),
            "pcie_generation": self._query("nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_width": self._query("nvmlDeviceGetCurrPcieLinkWidth"),
            "pcie_width_max": self._query("nvmlDeviceGetMaxPcieLinkWidth"),
            "nvlink_count": self._field(nvml.NVML_FI_DEV_NVLINK_LINK_COUNT),
        }
        remapped = self._query("nvmlDeviceGetRemappedRows")
        if remapped is not None:
            corrected_rows, uncorrected_rows, is_pending, has_failed = remapped
            values["rows_remapped"] = corrected_rows + uncorrected_rows
            values["row_remap_pending"] = int(is_pending)
            values["row_remap_failed"] = int(has_failed)
        return {name: float(value) for name, value in values.items() if value is not None}

    def compute_process_ids(self) -> tuple[int, ...] | None:
        """Processes with a compute context on the device, in the PID namespace that the driver
        uses.
        """
        processes = self._query("nvmlDeviceGetComputeRunningProcesses")
        if processes is None:
            return None
        return tuple(process.pid for process in processes)

    def lock_sm_clock(self, mhz: int) -> None:
        """Hold the SM clock at one frequency until it is reset.

        Raises:
            NvmlError: not permitted, not supported, or not a clock of the device.
        """
        try:
            self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, mhz, mhz)
        except self._nvml.NVMLError as error:
            raise self._error("the SM clock cannot be locked", error) from None

    def reset_sm_clock(self) -> None:
        """Let the device choose its clock again.

        Raises:
            NvmlError: not permitted, or not supported.
        """
        try:
            self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle)
        except self._nvml.NVMLError as error:
            raise self._error("the SM clock cannot be reset", error) from None

    def _find(self, name: str | None) -> tuple[Any, str]:
        """Return the handle of the device and its UUID with prefix."""
        if name is None:
            raise NvmlError(
                "unavailable", "torch reports neither the UUID nor the PCI address of its device"
            )
        find = self._nvml.nvmlDeviceGetHandleByUUID
        candidates = [name]
        is_pci_address = ":" in name
        if is_pci_address:
            find = self._nvml.nvmlDeviceGetHandleByPciBusId
        elif not name.startswith(("GPU-", "MIG-")):
            candidates = [f"GPU-{name}", f"MIG-{name}"]  # torch leaves the prefix out
        for candidate in candidates:
            uuid = candidate
            try:
                handle = find(candidate)
                if is_pci_address:
                    uuid = self._nvml.nvmlDeviceGetUUID(handle)
            except self._nvml.NVMLError as error:
                if error.value not in {
                    self._nvml.NVML_ERROR_NOT_FOUND,
                    self._nvml.NVML_ERROR_INVALID_ARGUMENT,
                }:
                    raise self._error("the device cannot be queried", error) from None
            else:
                return handle, uuid
        raise NvmlError("unavailable", "NVML does not know the device that torch uses")

    def _query(self, function: str, *arguments: Any, has_handle: bool = True) -> Any:
        """Call an NVML function; None if it fails. An unsupported function is not called again.

        Raises:
            DeviceLostError: the device no longer answers.
        """
        nvml = self._nvml
        query = " ".join([function, *map(str, arguments)])
        if query in self._unsupported:
            return None
        if has_handle:
            arguments = (self._handle, *arguments)
        try:
            return getattr(nvml, function)(*arguments)
        except nvml.NVMLLibraryMismatchError:  # the driver has only an older version of it
            self._unsupported.add(query)
            return None
        except nvml.NVMLError as error:
            if error.value in {
                nvml.NVML_ERROR_UNINITIALIZED,
                nvml.NVML_ERROR_DRIVER_NOT_LOADED,
                nvml.NVML_ERROR_GPU_IS_LOST,
                nvml.NVML_ERROR_RESET_REQUIRED,
            }:
                raise DeviceLostError(
                    "unavailable", f"the device stopped answering: {error}"
                ) from None
            if error.value in {
                nvml.NVML_ERROR_NOT_SUPPORTED,
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                nvml.NVML_ERROR_NO_PERMISSION,
            }:
                self._unsupported.add(query)
            return None

    def _field(self, field: int) -> int | None:
        """Value of one of NVML's numbered fields; None if the device does not have it."""
        values = self._query("nvmlDeviceGetFieldValues", (field,))
        if values is None or values[0].nvmlReturn != self._nvml.NVML_SUCCESS:
            return None
        member = _MEMBERS.get(values[0].valueType)
        if member is None:
            return None
        return int(getattr(values[0].value, member))

    def _error(self, problem: str, error: Any) -> NvmlError:
        """Tell a missing permission from a missing feature, and say what to install."""
        statuses: dict[int, Status] = {
            self._nvml.NVML_ERROR_NO_PERMISSION: "not_permitted",
            self._nvml.NVML_ERROR_NOT_SUPPORTED: "unsupported",
        }
        hints = {
            self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND: ": install NVIDIA's driver, or its utilities "
            "in the container",
            self._nvml.NVML_ERROR_DRIVER_NOT_LOADED: ": load NVIDIA's driver",
        }
        status = statuses.get(error.value, "unavailable")
        hint = hints.get(error.value, "")
        return NvmlError(status, f"{problem} ({error}){hint}")


def _thousandth(value: float | None) -> float | None:
    if value is None:
        return None
    return value / 1000
