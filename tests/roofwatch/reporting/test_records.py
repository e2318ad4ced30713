"""Reading many record files, and the summary of the device."""

import gc
import random
from pathlib import Path
from typing import Any

import pytest

from roofwatch.model.errors import RecordError
from roofwatch.model.machine import DeviceState, Telemetry
from roofwatch.model.measurement import Autotuning
from roofwatch.model.record import RunRecord
from roofwatch.reporting.records import choices_of_record, read_record_files
from roofwatch.tables.record_sentences import device_summary
from tests.builders import NOON, make_blocks, make_measurement, make_record


def records_in_memory() -> int:
    return sum(isinstance(one, RunRecord) for one in gc.get_objects())


@pytest.mark.slow
def test_files_are_read_in_commit_order_without_filling_memory(tmp_path: Path) -> None:
    numbers = random.Random(3).sample(range(40), 40)
    for place, number in enumerate(numbers):
        make_record(number).write(tmp_path / f"{place:03}.json.gz")
    before = records_in_memory()

    files, most = [], 0
    for file, record in read_record_files([tmp_path]):
        files.append(file.name)
        assert RunRecord.read(file) == record
        most = max(most, records_in_memory() - before)

    assert files == [f"{place:03}.json.gz" for place in sorted(range(40), key=numbers.__getitem__)]
    assert most < 20


def test_a_file_that_is_no_record_is_skipped_by_name(tmp_path: Path) -> None:
    record = make_record(1)
    record.write(tmp_path / "record.json.gz")
    (tmp_path / "bisection.json").write_text('{"project": "kernels"}')
    skipped: list[str] = []

    read = read_record_files([tmp_path], report_skipped=skipped.append)

    assert [file.name for file, _ in read] == ["record.json.gz"]
    assert len(skipped) == 1
    assert "bisection.json: not a roofwatch record" in skipped[0]


def test_records_in_subfolders_are_read_if_the_folder_has_none_itself(tmp_path: Path) -> None:
    make_record(1).write(tmp_path / "good" / "record.json.gz")

    assert [file.parent.name for file, _ in read_record_files([tmp_path])] == ["good"]


def test_files_without_a_record_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")

    with pytest.raises(RecordError, match="contains no record"):
        read_record_files([tmp_path], report_skipped=lambda _: None)


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    make_record(1).write(tmp_path / "record.json")
    (tmp_path / "cut.json").write_bytes((tmp_path / "record.json").read_bytes()[:-10])

    with pytest.raises(RecordError, match=r"cut\.json: not a complete JSON document"):
        read_record_files([tmp_path])


READINGS = Telemetry(status="ok", started_at=NOON, offset_ms=tuple(range(0, 500, 50)))


def record_with(*states: DeviceState) -> RunRecord:
    blocks = tuple(
        block.model_copy(update={"device_state": state})
        for block, state in zip(make_blocks([1_000.0] * len(states)), states, strict=True)
    )
    return make_record(measurements=[make_measurement(blocks=blocks)], telemetry=READINGS)


def state(**fields: Any) -> DeviceState:
    defaults: dict[str, Any] = {
        "reading_count": 2,
        "sm_clock_mhz": 1_980,
        "power_w": 412,
        "temperature_c": 52,
    }
    return DeviceState(**defaults | fields)


def test_a_device_without_faults_is_one_line() -> None:
    assert device_summary(record_with(state(), state(sm_clock_mhz=1_965, temperature_c=55))) == [
        "device: 10 readings, SM clock 1965 to 1980 MHz, median 1972, 412 W, up to 55 °C"
    ]


def test_the_memory_temperature_is_said_if_known() -> None:
    record = record_with(state(memory_temperature_c=71))

    assert device_summary(record)[0].endswith("up to 52 °C, memory up to 71 °C")


def test_the_state_before_the_run_is_said_if_known() -> None:
    health = {"performance_state": 0.0, "pcie_width": 8.0}
    telemetry = READINGS.model_copy(update={"health": health})
    record = record_with(state()).model_copy(update={"telemetry": telemetry})

    _, health_line = device_summary(record)

    assert health_line == "device before the run: P0, PCIe x8"


def test_faults_come_first_with_their_number_of_blocks() -> None:
    record = record_with(
        state(),
        state(
            degraded_by=("hw_thermal_slowdown", "foreign_process"),
            clock_event_reasons=("sw_power_cap",),
        ),
        state(degraded_by=("foreign_process",)),
    )

    first, second = device_summary(record)

    assert first == (
        "device: 2 of 3 blocks are not reliable: foreign_process in 2, hw_thermal_slowdown in 1"
    )
    assert second.endswith("at the power limit in 1 of 3 blocks")
    assert "2 of 4 blocks" in device_summary(record, record_with(state()))[0]
    assert device_summary(make_record()) == []


def test_a_record_without_choices_of_an_autotuner_pins_nothing(tmp_path: Path) -> None:
    make_record(measurements=(make_measurement(),)).write(tmp_path / "untuned.json")

    with pytest.raises(RecordError, match="no choice of an autotuner"):
        choices_of_record(tmp_path / "untuned.json")


def test_the_choices_of_a_record_are_pinned_by_what_they_are_of(tmp_path: Path) -> None:
    choice = Autotuning(function="k", chosen={"BLOCK": 64})
    measured = make_measurement(implementation="triton", autotuning=(choice,))
    make_record(measurements=(measured,)).write(tmp_path / "base.json")

    ((subject, choices),) = choices_of_record(tmp_path / "base.json").items()
    assert (subject.case_id, subject.implementation) == (measured.case_id, "triton")
    assert choices == (choice,)
