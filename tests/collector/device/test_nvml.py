from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

from roofwatch.collector.device.nvml import EVENT_REASONS, FAULTS, NvmlDevice
from roofwatch.collector.environment import device_uuid
from tests.collector.nvml import MIG_UUID, UUID, replayed
from tests.collector.replayed_nvml import PCI_ADDRESS


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


@pytest.mark.parametrize("name", [UUID, UUID.removeprefix("GPU-"), PCI_ADDRESS])
def test_a_device_is_found_by_torchs_uuid_or_pci_address(name: str) -> None:
    with NvmlDevice(name, replayed("normal")) as device:
        assert device.uuid == UUID
        assert list(device.facts().values()) == ["570.86.15", 700.0, True, True, False]


def test_a_mig_slice_is_recognised() -> None:
    with NvmlDevice(MIG_UUID.removeprefix("MIG-"), replayed("mig")) as device:
        assert device.uuid == MIG_UUID
        assert list(device.facts().values()) == ["570.86.15", None, None, None, True]
        assert device.quantities()["sm_clock_mhz"] is None


def test_unsupported_functions_of_an_older_driver_give_none() -> None:
    with NvmlDevice(UUID, replayed("older_driver")) as device:
        found = device.quantities()
        assert found["clock_event_reasons"] == ("sw_power_cap",)
        assert (found["energy_j"], found["sm_clock_mhz"]) == (None, 1350)
        assert device.compute_process_ids() is None
        assert device.facts()["is_mig_on"] is False
        assert device.facts()["is_ecc_on"] is None
        assert "nvmlDeviceGetTotalEnergyConsumption" in device.unsupported


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"uuid": UUID, "pci_bus_id": 0x65}, UUID),
        ({"uuid": None, "pci_domain_id": 0, "pci_bus_id": 0x65, "pci_device_id": 0}, PCI_ADDRESS),
        ({}, None),
    ],
)
def test_a_device_without_uuid_is_named_by_its_pci_address(
    properties: dict[str, Any], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**properties))
    assert device_uuid("cuda") == expected


@pytest.mark.gpu
def test_a_real_device_reports_clocks_power_and_temperature() -> None:
    with NvmlDevice(device_uuid("cuda")) as device:
        found = device.quantities()
        assert all(found[name] > 0 for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w"))
        assert 0 < found["temperature_c"] < 120
        assert found["clock_event_reasons"] is not None
        assert device.facts()["driver_version"]
