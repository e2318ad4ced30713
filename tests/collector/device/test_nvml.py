import pynvml
import pytest

from roofwatch.collector.device.nvml import EVENT_REASONS, FAULTS, DeviceFacts, NvmlDevice
from tests.collector.nvml import MIG_UUID, UUID, replayed


def test_the_table_has_every_reason_of_pynvml() -> None:
    def snake(name: str) -> str:
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).strip("_")

    known = {}
    for prefix in ("nvmlClocksThrottleReason", "nvmlClocksEventReason"):  # the newer names last, so that they win
        for name, bit in vars(pynvml).items():
            if name.startswith(prefix) and not name.endswith(("All", "None", "UserDefinedClocks")):
                known[bit] = snake(name.removeprefix(prefix))

    assert known == EVENT_REASONS
    assert set(EVENT_REASONS.values()) >= FAULTS


@pytest.mark.parametrize("name", [UUID, UUID.removeprefix("GPU-")])
def test_a_device_is_found_by_torchs_uuid(name: str) -> None:
    with NvmlDevice(name, replayed("normal")) as device:
        assert device.uuid == UUID
        assert device.facts() == DeviceFacts("570.86.15", 700.0, True, True, False)


def test_a_mig_slice_is_recognised() -> None:
    with NvmlDevice(MIG_UUID.removeprefix("MIG-"), replayed("mig")) as device:
        assert device.uuid == MIG_UUID
        assert device.facts() == DeviceFacts(driver_version="570.86.15", is_mig_on=True)
        assert device.sm_clock_mhz() is None


def test_unsupported_functions_of_an_older_driver_give_none() -> None:
    with NvmlDevice(UUID, replayed("older_driver")) as device:
        assert device.clock_event_reasons() == ("sw_power_cap",)
        assert device.energy_j() is None
        assert device.compute_process_ids() is None
        assert device.sm_clock_mhz() == 1350
        assert device.facts().is_mig_on is False
        assert device.facts().is_ecc_on is None
        assert "nvmlDeviceGetTotalEnergyConsumption" in device.unsupported


@pytest.mark.gpu
def test_a_real_device_reports_clocks_power_and_temperature() -> None:
    from roofwatch.collector.environment import device_uuid

    with NvmlDevice(device_uuid("cuda")) as device:
        assert (device.sm_clock_mhz() or 0) > 0
        assert (device.memory_clock_mhz() or 0) > 0
        assert 0 < (device.temperature_c() or 0) < 120
        assert (device.power_w() or 0) > 0
        assert device.clock_event_reasons() is not None
        assert device.facts().driver_version
