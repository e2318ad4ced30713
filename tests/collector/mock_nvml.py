"""Profiles for `stub_nvml.c` from configurations of NVIDIA's mock NVML.

A configuration is a YAML document for `mocknvml` of NVIDIA/k8s-test-infra. Numbers of fields and the
types of their values are those of that library.
"""

from typing import Any

_REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
_UNSIGNED, _UNSIGNED_LONG = 1, 3


def profile_of(config: dict[str, Any]) -> dict[str, str]:
    """What the first device of a configuration answers, by function and argument."""
    device = config["device_defaults"]
    identity = config["devices"][0]
    power, pcie, ecc = device["power"], device["pcie"], device["ecc"]
    errors = ecc["errors"]["volatile"]
    rows = device["remapped_rows"]
    reasons = device["clocks_throttle_reasons"]
    counters = reasons.get("counters", {})
    bits = sum(bit for name, bit in _REASONS.items() if reasons[name])
    answers = {
        "nvmlSystemGetDriverVersion": config["system"]["driver_version"],
        "nvmlDeviceGetUUID": identity["uuid"],
        # NVML writes the domain with eight digits
        "nvmlDeviceGetHandleByPciBusId_v2": "0000" + identity["pci"]["bus_id"],
        "nvmlDeviceGetEccMode": [_is_on(ecc["mode_current"]), _is_on(ecc["mode_pending"])],
        "nvmlDeviceGetPersistenceMode": [_is_on(device["persistence_mode"])],
        "nvmlDeviceGetEnforcedPowerLimit": [power["enforced_limit_mw"]],
        "nvmlDeviceIsMigDeviceHandle": [0],
        "nvmlDeviceGetMigMode": [
            _is_on(device["mig"]["mode_current"]),
            _is_on(device["mig"]["mode_pending"]),
        ],
        "nvmlDeviceGetClockInfo.1": [device["clocks"]["sm_current"]],
        "nvmlDeviceGetClockInfo.2": [device["clocks"]["memory_current"]],
        "nvmlDeviceGetTemperature.0": [device["thermal"]["temperature_gpu_c"]],
        "nvmlDeviceGetPowerUsage": [power["current_draw_mw"]],
        "nvmlDeviceGetTotalEnergyConsumption": [power["total_energy_consumption_mj"]],
        "nvmlDeviceGetCurrentClocksEventReasons": [bits],
        "nvmlDeviceGetPerformanceState": [device["performance_state"].removeprefix("P")],
        "nvmlDeviceGetTotalEccErrors.0.0": [errors["single_bit"]["total"]],
        "nvmlDeviceGetTotalEccErrors.1.0": [errors["double_bit"]["total"]],
        "nvmlDeviceGetCurrPcieLinkGeneration": [pcie["current_link_gen"]],
        "nvmlDeviceGetCurrPcieLinkWidth": [pcie["current_link_width"]],
        "nvmlDeviceGetMaxPcieLinkWidth": [pcie["max_link_width"]],
        "nvmlDeviceGetRemappedRows": [
            rows["correctable"],
            rows["uncorrectable"],
            int(rows["pending"]),
            int(rows["failure_occurred"]),
        ],
        # counters of nanoseconds; the one of the board's limit is not in that library
        "nvmlDeviceGetFieldValues.74": [_UNSIGNED_LONG, 1000 * counters.get("sw_power_cap_us", 0)],
        "nvmlDeviceGetFieldValues.75": [
            _UNSIGNED_LONG,
            1000 * counters.get("sw_thermal_slowdown_us", 0),
        ],
        "nvmlDeviceGetFieldValues.82": [_UNSIGNED, device["thermal"]["temperature_memory_c"]],
        "nvmlDeviceGetFieldValues.91": [_UNSIGNED, config["nvlink"]["links_per_gpu"]],
        "nvmlDeviceGetFieldValues.186": [_UNSIGNED, power["current_draw_mw"]],
        "nvmlDeviceGetComputeRunningProcesses": [process["pid"] for process in device["processes"]],
    }
    return {
        name: answer if isinstance(answer, str) else _words(answer)
        for name, answer in answers.items()
    }


def _words(numbers: list[Any]) -> str:
    return " ".join(map(str, numbers))


def _is_on(mode: str) -> int:
    return int(mode == "enabled")
