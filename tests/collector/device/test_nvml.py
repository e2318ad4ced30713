import inspect
import json
from pathlib import Path

import pynvml
import pytest

from roofwatch.collector.device.nvml import (
    CLOCK_LIMIT_TDP,
    CLOCK_MEMORY,
    CLOCK_SM,
    EVENT_REASONS,
    FAULTS,
    DeviceFacts,
    NvmlBinding,
    NvmlCode,
    NvmlDevice,
    NvmlError,
    reason_names,
)
from roofwatch.collector.device.nvml_replay import ReplayedNvml
from roofwatch.collector.errors import CollectorError
from tests.collector.nvml import MIG_UUID, OTHER_UUID, UUID, replayed


def test_codes_and_constants_are_those_of_the_binding() -> None:
    assert {code.name: code.value for code in NvmlCode} == {
        code.name: getattr(pynvml, f"NVML_ERROR_{code.name}") for code in NvmlCode
    }
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (CLOCK_SM, CLOCK_MEMORY)
    assert pynvml.NVML_CLOCK_LIMIT_ID_TDP == CLOCK_LIMIT_TDP


@pytest.mark.parametrize("function", [name for name in vars(NvmlBinding) if name.startswith("nvml")])
def test_every_function_that_is_called_is_the_binding_s_and_takes_what_it_is_given(function: str) -> None:
    ours = inspect.signature(getattr(NvmlBinding, function))
    given = [None] * (len(ours.parameters) - 1)

    theirs = inspect.signature(getattr(pynvml, function)).bind(*given)

    assert list(theirs.args) == given


def test_every_reason_that_the_binding_knows_is_in_the_table_under_its_name() -> None:
    def snake(name: str) -> str:
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).strip("_")

    known = {}
    for prefix in ("nvmlClocksThrottleReason", "nvmlClocksEventReason"):  # the newer names last, so that they win
        for name, bit in vars(pynvml).items():
            if name.startswith(prefix) and not name.endswith(("All", "None", "UserDefinedClocks")):
                known[bit] = snake(name.removeprefix(prefix))

    assert known == EVENT_REASONS
    assert set(EVENT_REASONS.values()) >= FAULTS


def test_a_reason_of_a_newer_driver_is_named_by_its_number() -> None:
    assert reason_names(0x4 | 0x1000) == ("sw_power_cap", "unknown_0x1000")
    assert reason_names(0) == ()


@pytest.mark.parametrize("name", [UUID, UUID.removeprefix("GPU-")])
def test_a_device_is_found_by_the_uuid_that_torch_gives(name: str) -> None:
    with NvmlDevice(name, replayed("normal")) as device:
        assert device.uuid == UUID
        assert device.facts() == DeviceFacts("570.86.15", 700.0, True, True, False)


def test_of_several_devices_the_one_with_the_uuid_is_read() -> None:
    with NvmlDevice(OTHER_UUID, replayed("two_gpus")) as device:
        assert device.sm_clock_mhz() == 1755
        assert device.facts().power_limit_w == 350.0


def test_without_a_uuid_the_only_device_is_meant_and_of_several_none() -> None:
    with NvmlDevice(None, replayed("normal")) as device:
        assert device.uuid == UUID
    with pytest.raises(NvmlError, match="2 devices") as refusal:
        NvmlDevice(None, replayed("two_gpus"))

    assert refusal.value.status == "unavailable"


@pytest.mark.parametrize(
    ("recording", "uuid", "status", "words"),
    [
        ("no_driver", UUID, "unavailable", "is NVIDIA's driver installed"),
        ("not_permitted", UUID, "not_permitted", "this user may not"),
        ("normal", OTHER_UUID, "unavailable", "does not know the device"),
    ],
)
def test_where_nothing_can_be_read_the_error_says_why(recording: str, uuid: str, status: str, words: str) -> None:
    with pytest.raises(NvmlError, match=words) as refusal:
        NvmlDevice(uuid, replayed(recording))

    assert refusal.value.status == status


def test_a_slice_of_a_device_is_found_and_known_as_one() -> None:
    with NvmlDevice(MIG_UUID.removeprefix("MIG-"), replayed("mig")) as device:
        assert device.uuid == MIG_UUID
        assert device.facts() == DeviceFacts(driver_version="570.86.15", is_mig_on=True)
        assert device.sm_clock_mhz() is None


def test_what_an_older_driver_does_not_offer_is_none_and_the_rest_is_read() -> None:
    with NvmlDevice(UUID, replayed("older_driver")) as device:
        assert device.clock_event_reasons() == ("sw_power_cap",)
        assert device.energy_j() is None
        assert device.compute_process_ids() is None
        assert device.sm_clock_mhz() == 1350
        assert device.facts().is_mig_on is False
        assert device.facts().is_ecc_on is None
        assert "nvmlDeviceGetTotalEnergyConsumption" in device.refused


def test_what_was_refused_is_not_asked_again(tmp_path: Path) -> None:
    answers = [{"error": "NOT_SUPPORTED"}, 70_000]
    device = NvmlDevice(UUID, recording_of(tmp_path, "nvmlDeviceGetPowerUsage", answers))

    assert [device.power_w(), device.power_w()] == [None, None]


def test_what_could_not_be_said_just_now_is_asked_again(tmp_path: Path) -> None:
    device = NvmlDevice(
        UUID, recording_of(tmp_path, "nvmlDeviceGetPowerUsage", [{"error": "TIMEOUT"}, {"error": "UNKNOWN"}, 70_000])
    )

    assert [device.power_w(), device.power_w(), device.power_w()] == [None, None, 70.0]
    assert device.refused == ()


@pytest.mark.parametrize("line", ["not JSON", '{"uuid": "GPU-1"}', '{"answers": {"nvmlInit": {"error": "BAD_LUCK"}}}'])
def test_a_file_that_is_no_recording_is_refused_by_its_name(tmp_path: Path, line: str) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text(line)

    with pytest.raises(CollectorError, match=r"broken\.jsonl"):
        ReplayedNvml(file)


def test_a_recording_that_is_not_there_is_refused() -> None:
    with pytest.raises(CollectorError, match="absent"):
        ReplayedNvml(Path("absent.jsonl"))


def recording_of(tmp_path: Path, function: str, answers: list[object]) -> ReplayedNvml:
    file = tmp_path / "recording.jsonl"
    file.write_text("".join(json.dumps({"uuid": UUID, "answers": {function: answer}}) + "\n" for answer in answers))
    return ReplayedNvml(file)


@pytest.mark.gpu
def test_a_real_device_tells_its_clocks_power_and_temperature() -> None:
    from roofwatch.collector.environment import device_uuid

    with NvmlDevice(device_uuid("cuda")) as device:
        assert (device.sm_clock_mhz() or 0) > 0
        assert (device.memory_clock_mhz() or 0) > 0
        assert 0 < (device.temperature_c() or 0) < 120
        assert (device.power_w() or 0) > 0
        assert device.clock_event_reasons() is not None
        assert device.facts().driver_version
