"""A device through NVML, its readings over time, and their columns in a record."""

import os
import threading
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

from roofwatch.collector.device.environment import device_uuid
from roofwatch.collector.device.nvml import EVENT_REASONS, FAULTS, NvmlDevice
from roofwatch.collector.device.telemetry import (
    MAX_STORED_READINGS,
    OwnProcesses,
    Sampler,
    join_telemetry,
    no_telemetry,
)
from tests.builders import NOON
from tests.collector.nvml import MIG_UUID, MS, UUID, after, make_reading, replayed, telemetry_of
from tests.collector.replayed_nvml import PCI_ADDRESS


def test_a_reading_has_every_quantity() -> None:
    reading = after(2, "normal").readings[1]

    assert reading.at_ns == 50 * MS
    assert (reading.sm_clock_mhz, reading.memory_clock_mhz) == (1980, 2619)
    assert (reading.power_w, reading.temperature_c) == (412.5, 52)
    assert reading.energy_j == pytest.approx(20.6)
    assert reading.clock_event_reasons == ()
    assert reading.foreign_process_count == 0


def test_power_is_that_of_the_moment_where_the_driver_reports_it() -> None:
    readings = after(3, "held_back").readings

    assert [reading.power_w for reading in readings] == [400, 401, 702]
    assert [reading.memory_temperature_c for reading in readings] == [70, 71, 72]


def test_a_power_cap_between_two_readings_belongs_to_the_later_one() -> None:
    readings = after(4, "held_back").readings

    reasons = [reading.clock_event_reasons for reading in readings]
    assert reasons == [(), (), ("sw_power_cap",), ()]


def test_the_health_of_the_device_before_a_run_is_recorded() -> None:
    sampler = after(2, "held_back")

    health = join_telemetry([sampler.telemetry(0), sampler.telemetry(1)]).health
    assert (health["pcie_width"], health["pcie_width_max"]) == (8, 16)
    assert (health["rows_remapped"], health["row_remap_pending"]) == (3, 1)
    assert health["nvlink_count"] == 18
    assert after(1, "normal").telemetry().health == {}


def test_foreign_processes_are_counted_unless_process_ids_are_of_another_namespace() -> None:
    counts = [reading.foreign_process_count for reading in after(9, "foreign_process").readings]

    assert counts == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert after(1, "other_pid_namespace").readings[0].foreign_process_count is None


def test_the_thread_reads_until_it_is_stopped() -> None:
    enough = threading.Event()
    times = count(0, 50 * MS)

    def now_ns() -> int:
        now = next(times)
        if now >= 150 * MS:
            enough.set()
        return now

    sampler = Sampler(NvmlDevice(UUID, replayed("normal")), now_ns=now_ns)
    sampler.start()
    assert enough.wait(60)
    sampler.stop()

    assert len(sampler.readings) >= 4
    assert not any(thread.name == "roofwatch-telemetry" for thread in threading.enumerate())


def test_descendants_of_the_collector_are_its_own_even_after_they_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = {30: 20, 20: os.getpid(), 99: 1, 5: 6, 6: 5}
    monkeypatch.setattr("roofwatch.collector.device.telemetry.parent_pid", family.get)
    own = OwnProcesses()

    assert [pid for pid in (os.getpid(), 20, 30, 99, 1, 7, 5) if pid in own] == [
        os.getpid(),
        20,
        30,
    ]
    family.clear()
    assert 30 in own
    assert 99 not in own


def test_unsupported_quantities_have_no_column() -> None:
    telemetry = after(3, "older_driver").telemetry(message="some are missing")

    assert (telemetry.status, telemetry.message) == ("ok", "some are missing")
    assert list(telemetry.offset_ms) == [0, 50, 100]
    assert list(telemetry.sm_clock_mhz) == [1350] * 3
    assert list(telemetry.clock_event_reasons) == [("sw_power_cap",)] * 3
    assert not telemetry.energy_j
    assert not telemetry.foreign_process_count


def test_very_many_readings_are_thinned_out() -> None:
    readings = [make_reading(50 * step) for step in range(MAX_STORED_READINGS + 1)]

    telemetry = join_telemetry([telemetry_of(readings, started_at=NOON)])

    assert len(telemetry.offset_ms) == MAX_STORED_READINGS // 2 + 1
    assert telemetry.offset_ms[1] == 100
    assert telemetry.energy_j[1] == pytest.approx(40)


def test_parts_of_one_process_join_to_all_its_readings() -> None:
    sampler = after(4, "foreign_process")
    first = sampler.telemetry()
    for _ in range(5):
        sampler.read()

    assert join_telemetry([first, sampler.telemetry(4)]) == sampler.telemetry()


def test_a_gap_separates_two_processes() -> None:
    first = [make_reading(at_ms) for at_ms in (0, 50)]
    second = [make_reading(at_ms, sm_clock_mhz=1200) for at_ms in (0, 50)]

    next_day = NOON + timedelta(days=1)
    telemetry = join_telemetry(
        [telemetry_of(first, started_at=NOON), telemetry_of(second, started_at=next_day)]
    )

    day_ms = 24 * 3_600_000
    assert telemetry.started_at == NOON
    assert list(telemetry.offset_ms) == [0, 50, 100, day_ms, day_ms + 50]
    assert list(telemetry.sm_clock_mhz) == [1980, 1980, None, 1200, 1200]
    assert list(telemetry.energy_j) == [0, 20, None, 20, 40]


def test_a_process_without_telemetry_adds_only_its_message() -> None:
    unavailable = no_telemetry("unavailable", "no driver")
    refused = no_telemetry("not_permitted", "no permission")

    joined = join_telemetry([telemetry_of([make_reading(0)], started_at=NOON), refused])
    without = join_telemetry([unavailable, refused])

    assert (joined.status, joined.message, list(joined.offset_ms)) == ("ok", "no permission", [0])
    assert (without.status, without.message, without.offset_ms) == (
        "not_permitted",
        "no driver; no permission",
        (),
    )


# --- NVML


def test_the_table_has_every_reason_of_pynvml() -> None:
    def snake(name: str) -> str:
        return "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in name
        ).strip("_")

    known = {}
    for prefix in (
        "nvmlClocksThrottleReason",
        "nvmlClocksEventReason",
    ):  # the newer names last, so that they win
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
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**properties)
    )
    assert device_uuid("cuda") == expected


@pytest.mark.gpu
def test_a_real_device_reports_clocks_power_and_temperature() -> None:
    with NvmlDevice(device_uuid("cuda")) as device:
        found = device.quantities()
        assert all(found[name] > 0 for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w"))
        assert 0 < found["temperature_c"] < 120
        assert found["clock_event_reasons"] is not None
        assert device.facts()["driver_version"]
