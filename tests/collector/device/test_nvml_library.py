"""A device through the real `pynvml`, which calls a library in C that answers from a profile."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from roofwatch.collector.device.clock_lock import ClockLock
from roofwatch.collector.device.nvml import DeviceLostError, NvmlDevice, NvmlError
from roofwatch.collector.device.telemetry import Sampler
from roofwatch.model.errors import CollectorError
from tests.collector.mock_nvml import profile_of
from tests.collector.nvml import FOLDER
from tests.collector.stub_library import build_stub

VARIABLE = "STUB_NVML_PROFILE"
H100 = "GPU-01000100-0000-0000-0000-000000000000"
A100 = "GPU-12345678-1234-1234-1234-123456780000"
NO_PERMISSION, GPU_IS_LOST = 4, 15
MOCKED = {
    "gpu_idle": "gpu_idle",
    "applications_clocks_setting": "applications_clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown",
    "display_clock_setting": "display_clocks_setting",
}
"""Our names of the reasons in NVIDIA's mock NVML, and its names."""


class Profile:
    """The state of the device, in a file that the library reads at each call."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        lines = (FOLDER / "profiles" / f"{name}.txt").read_text().splitlines()
        self._lines = dict(line.partition(" ")[::2] for line in lines)
        self.change()

    def replace(self, answers: dict[str, str]) -> None:
        """Answer like another device from now on."""
        self._lines = dict(answers)
        self.change()

    def change(self, **answers: str) -> None:
        """Answer some functions otherwise from now on; `_` of a name is the `.` of the profile."""
        self._lines.update({name.replace("_", "."): text for name, text in answers.items()})
        lines = [f"{name} {answer}".strip() for name, answer in self._lines.items()]
        self.path.write_text("\n".join(lines) + "\n")

    def remove(self, *beginnings: str) -> None:
        """Let the device not support some functions."""
        for name in list(self._lines):
            if name.startswith(beginnings):
                del self._lines[name]
        self.change()

    def calls(self) -> list[str]:
        """Changes of the clock so far."""
        log = Path(f"{self.path}.calls")
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The library of a new and of an old driver."""
    folder = tmp_path_factory.mktemp("nvml")
    return {
        "new": build_stub("stub_nvml.c", folder / "new" / "libnvidia-ml.so.1"),
        "old": build_stub("stub_nvml.c", folder / "old" / "libnvidia-ml.so.1", "-DOLD_DRIVER"),
    }


def load(library: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Let `pynvml` call a library, here and in processes started from here."""
    profile = Profile(tmp_path / "profile", name)
    monkeypatch.setenv(VARIABLE, str(profile.path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return profile


@pytest.fixture
def h100(libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    return load(libraries["new"], "h100", tmp_path, monkeypatch)


@pytest.mark.usefixtures("h100")
@pytest.mark.parametrize("name", [H100, H100.removeprefix("GPU-"), "00000000:1A:00.0"])
def test_everything_about_an_idle_h100_is_read(name: str) -> None:
    with NvmlDevice(name) as device:
        assert device.uuid == H100
        assert device.facts() == {
            "driver_version": "550.163.01",
            "power_limit_w": 700.0,
            "is_persistence_on": True,
            "is_ecc_on": True,
            "is_mig_on": False,
        }
        assert device.quantities() == {
            "energy_j": 600.0,
            "sm_clock_mhz": 345,
            "memory_clock_mhz": 2619,
            "power_w": 95.0,
            "temperature_c": 34,
            "memory_temperature_c": 32,
            "clock_event_reasons": ("gpu_idle",),
        }
        assert device.held_back_counts() == {
            "sw_power_cap": 0,
            "sw_thermal_slowdown": 0,
            "board_limit": 0,
        }
        assert device.health() == {
            "performance_state": 0,
            "ecc_corrected_errors": 0,
            "ecc_uncorrected_errors": 0,
            "pcie_generation": 5,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "nvlink_count": 18,
            "rows_remapped": 0,
            "row_remap_pending": 0,
            "row_remap_failed": 0,
        }
        assert device.compute_process_ids() == ()
        assert device.unsupported == ()


@pytest.fixture
def old_driver(
    libraries: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NvmlDevice]:
    load(libraries["old"], "a100", tmp_path, monkeypatch)
    with NvmlDevice(A100) as device:
        yield device


def test_older_functions_answer_where_a_driver_lacks_the_newer_ones(
    old_driver: NvmlDevice,
) -> None:
    quantities = old_driver.quantities()
    assert quantities["clock_event_reasons"] == ("gpu_idle",)
    assert quantities["power_w"] == 72.0, "the average of a second, without a field for it"
    assert old_driver.health()["nvlink_count"] == 12


def test_what_an_old_driver_lacks_is_unknown(old_driver: NvmlDevice) -> None:
    old_driver.quantities()
    assert old_driver.compute_process_ids() is None
    assert old_driver.held_back_counts() == {}
    assert "rows_remapped" not in old_driver.health()
    assert old_driver.unsupported == (
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetCurrentClocksEventReasons",
    )


def test_a_device_that_lacks_functions_reports_the_rest(h100: Profile) -> None:
    h100.remove("nvmlDeviceGetFieldValues", "nvmlDeviceGetEcc", "nvmlDeviceGetTotalEcc")
    h100.remove("nvmlDeviceGetRemappedRows", "nvmlDeviceGetMigMode", "nvmlDeviceGetTotalEnergy")

    with NvmlDevice(H100) as device:
        assert device.facts()["is_ecc_on"] is None
        assert device.facts()["is_mig_on"] is False
        quantities = device.quantities()
        assert (quantities["power_w"], quantities["memory_temperature_c"]) == (95.0, None)
        assert quantities["energy_j"] is None
        assert set(device.health()) == {
            "performance_state",
            "pcie_generation",
            "pcie_width",
            "pcie_width_max",
        }
        assert device.unsupported == (
            "nvmlDeviceGetEccMode",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetTotalEnergyConsumption",
        )


def test_a_mig_slice_has_its_uuid_without_a_clock(h100: Profile) -> None:
    uuid = "MIG-41b36f64-1f5b-5a0e-9d1c-000000000000"
    h100.change(nvmlDeviceGetUUID=uuid, nvmlDeviceIsMigDeviceHandle="1")
    h100.remove("nvmlDeviceGetClockInfo")

    with NvmlDevice(uuid.removeprefix("MIG-")) as device:
        assert device.uuid == uuid
        assert device.is_mig_on()
        assert device.quantities()["sm_clock_mhz"] is None


def test_a_gpu_divided_into_slices_is_not_a_whole_gpu(h100: Profile) -> None:
    h100.change(nvmlDeviceGetMigMode="1 0")

    with NvmlDevice(H100) as device:
        assert device.is_mig_on()


def test_throttling_shows_in_each_reading(h100: Profile) -> None:
    sampler = Sampler(NvmlDevice(H100))
    sampler.read()
    h100.change(nvmlDeviceGetCurrentClocksEventReasons="0x60", nvmlDeviceGetTemperature_0="88")
    sampler.read()
    h100.change(nvmlDeviceGetCurrentClocksEventReasons="0x0")
    h100.change(nvmlDeviceGetFieldValues_74="3 5000000000", nvmlDeviceGetFieldValues_186="1 703250")
    sampler.read()
    sampler.read()

    readings = sampler.readings
    assert [reading.clock_event_reasons for reading in readings] == [
        ("gpu_idle",),
        ("sw_thermal_slowdown", "hw_thermal_slowdown"),
        ("sw_power_cap",),
        (),
    ]
    assert [reading.temperature_c for reading in readings] == [34, 88, 88, 88]
    assert [reading.power_w for reading in readings] == [95.0, 95.0, 703.25, 703.25]


def test_the_health_shows_what_is_damaged(h100: Profile) -> None:
    h100.change(
        nvmlDeviceGetTotalEccErrors_0_0="12",
        nvmlDeviceGetTotalEccErrors_1_0="1",
        nvmlDeviceGetRemappedRows="3 2 1 0",
        nvmlDeviceGetCurrPcieLinkWidth="8",
        nvmlDeviceGetCurrPcieLinkGeneration="1",
        nvmlDeviceGetPerformanceState="8",
        nvmlDeviceGetFieldValues_91="1 17",
    )

    with NvmlDevice(H100) as device:
        assert device.health() == {
            "performance_state": 8,
            "ecc_corrected_errors": 12,
            "ecc_uncorrected_errors": 1,
            "pcie_generation": 1,
            "pcie_width": 8,
            "pcie_width_max": 16,
            "nvlink_count": 17,
            "rows_remapped": 5,
            "row_remap_pending": 1,
            "row_remap_failed": 0,
        }


def b200_config() -> dict[str, Any]:
    import yaml  # missing where only tests of the GPU run

    config: dict[str, Any] = yaml.safe_load((FOLDER / "profiles" / "b200.yaml").read_text())
    return config


def test_a_configuration_of_nvidias_mock_is_read_completely(h100: Profile) -> None:
    config = b200_config()
    h100.replace(profile_of(config))

    with NvmlDevice(config["devices"][0]["uuid"]) as device:
        assert device.facts() == {
            "driver_version": "560.35.03",
            "power_limit_w": 1000.0,
            "is_persistence_on": True,
            "is_ecc_on": True,
            "is_mig_on": False,
        }
        assert device.quantities() == {
            "energy_j": 900.0,
            "sm_clock_mhz": 345,
            "memory_clock_mhz": 3996,
            "power_w": 130.0,
            "temperature_c": 35,
            "memory_temperature_c": 33,
            "clock_event_reasons": ("gpu_idle",),
        }
        assert device.held_back_counts() == {"sw_power_cap": 0, "sw_thermal_slowdown": 0}
        assert device.health() == {
            "performance_state": 0,
            "ecc_corrected_errors": 0,
            "ecc_uncorrected_errors": 0,
            "pcie_generation": 6,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "nvlink_count": 18,
            "rows_remapped": 0,
            "row_remap_pending": 0,
            "row_remap_failed": 0,
        }
        assert device.compute_process_ids() == ()
        assert device.unsupported == ()


@pytest.mark.parametrize("reason", MOCKED)
def test_every_reason_of_nvidias_mock_to_reduce_the_clock_has_its_name(
    reason: str, h100: Profile
) -> None:
    config = b200_config()
    reasons = config["device_defaults"]["clocks_throttle_reasons"]
    reasons.update(dict.fromkeys(reasons, False))
    reasons[MOCKED[reason]] = True
    reasons["counters"] = {"sw_power_cap_us": 7, "sw_thermal_slowdown_us": 5}
    h100.replace(profile_of(config))

    with NvmlDevice(config["devices"][0]["uuid"]) as device:
        assert device.quantities()["clock_event_reasons"] == (reason,)
        assert device.held_back_counts() == {"sw_power_cap": 7_000, "sw_thermal_slowdown": 5_000}


@pytest.mark.parametrize("typed", ["1 50", "2 50", "3 50", "5 50", "6 50", "0 50"])
def test_a_field_has_its_value_whatever_its_type(h100: Profile, typed: str) -> None:
    h100.change(nvmlDeviceGetFieldValues_82=typed)

    with NvmlDevice(H100) as device:
        assert device.quantities()["memory_temperature_c"] == 50


def test_only_processes_outside_the_run_are_foreign(h100: Profile) -> None:
    h100.change(nvmlDeviceGetComputeRunningProcesses=f"{os.getpid()} 1")
    sampler = Sampler(NvmlDevice(H100))

    sampler.read()

    assert sampler.readings[0].foreign_process_count == 1


def test_a_device_that_is_lost_says_so(h100: Profile) -> None:
    with NvmlDevice(H100) as device:
        h100.change(nvmlDeviceGetTotalEnergyConsumption=f"error {GPU_IS_LOST}")
        with pytest.raises(DeviceLostError, match="GPU is lost"):
            device.quantities()


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [(9, "unavailable", "load NVIDIA's driver"), (NO_PERMISSION, "not_permitted", "Insufficient")],
)
def test_a_driver_that_refuses_is_explained(
    h100: Profile, code: int, status: str, words: str
) -> None:
    h100.change(nvmlInitWithFlags=f"error {code}")

    with pytest.raises(NvmlError, match=words) as refusal:
        NvmlDevice(H100)

    assert refusal.value.status == status


def test_the_watchdog_resets_the_clock_that_it_locked(h100: Profile) -> None:
    lock = ClockLock(H100, 1500)
    locked = h100.calls()

    assert lock.release() is None
    assert locked == ["lock 1500 1500"]
    assert h100.calls() == ["lock 1500 1500", "reset 0 0"]


def test_a_clock_that_may_not_be_locked_is_refused_with_a_remedy(h100: Profile) -> None:
    h100.change(nvmlDeviceSetGpuLockedClocks=f"error {NO_PERMISSION}")

    with pytest.raises(CollectorError, match=r"cannot be locked .*run as a user with permission"):
        ClockLock(H100, 1500)

    assert h100.calls() == []
