import errno
import json
import os
from pathlib import Path

import jsonschema
import pytest

from roofwatch.model.errors import RecordError
from roofwatch.model.files import check_writable
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import measured_values
from roofwatch.model.metrics import format_bytes, format_ns, metric
from roofwatch.model.record import SCHEMA_VERSION, RunRecord, json_schema
from tests.builders import (
    make_blocks,
    make_case,
    make_complete_record,
    make_measurement,
    make_record,
)

VERSION = f'"schema_version":"{SCHEMA_VERSION}"'.encode()


def test_a_written_record_reads_back_equal(tmp_path: Path) -> None:
    record = make_record()
    record.write(tmp_path / "deep" / "record.json")
    read = RunRecord.read(tmp_path / "deep" / "record.json")
    assert read == record
    assert read.content_hash == record.content_hash != make_record(project="another").content_hash


def test_a_record_meets_its_published_schema() -> None:
    schema, document = (
        jsonschema.Draft202012Validator(json_schema()),
        json.loads(make_record().to_json()),
    )

    assert list(schema.iter_errors(document)) == []
    assert not schema.is_valid(document | {"started_at": 7})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"", "not a complete JSON document"),
        (make_record().to_json()[:-100], "not a complete JSON document"),
        (b"\xff\xfe\x00", "not a complete JSON document"),
        (b"[1, 2]", "not a roofwatch record"),
        (b'{"benchmarks": []}', "not a roofwatch record"),
        (make_record().to_json().replace(VERSION, b'"schema_version":"2.0"'), "schema version 2.0"),
        (make_record().to_json().replace(VERSION, b'"schema_version":"x"'), "schema version x"),
        (
            make_record().to_json().replace(b'"harness_version":"', b'"harness":"'),
            "harness_version: Field required",
        ),
    ],
)
def test_a_file_that_is_not_a_record_is_refused_by_name(
    tmp_path: Path, document: bytes, expected: str
) -> None:
    file = tmp_path / "some.json"
    file.write_bytes(document)
    with pytest.raises(RecordError) as caught:
        RunRecord.read(file)
    assert str(file) in str(caught.value)
    assert expected in str(caught.value)
    with pytest.raises(RecordError, match=r"gone\.json: cannot be read: No such file"):
        RunRecord.read(tmp_path / "gone.json")


def test_fields_of_a_newer_minor_version_are_kept() -> None:
    document = json.loads(make_record(measurements=[make_measurement()]).to_json())
    document |= {"schema_version": "1.7", "weather": {"sun": True}}
    document["measurements"][0]["mood"] = "good"

    assert (
        json.loads(RunRecord.from_json(json.dumps(document).encode(), name="newer").to_json())
        == document
    )


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_only_ok_carries_samples(outcome: Outcome) -> None:
    document = json.loads(make_record(measurements=[make_measurement()]).to_json())
    document["measurements"][0]["outcome"] = str(outcome)
    with pytest.raises(RecordError, match="with 2 blocks"):
        RunRecord.from_json(json.dumps(document).encode(), name="lying")


@pytest.mark.parametrize("part", ["measurements", "accuracies", "static_facts"])
def test_two_results_of_one_key_are_refused(part: str) -> None:
    document = json.loads(make_complete_record().to_json())
    document[part] *= 2
    with pytest.raises(RecordError, match="share one key"):
        RunRecord.from_json(json.dumps(document).encode(), name="twice")


@pytest.mark.parametrize("part", ["measurements", "accuracies", "static_facts"])
def test_a_result_of_an_unknown_case_is_refused(part: str) -> None:
    document = json.loads(make_complete_record().to_json())
    document[part][0]["case_id"] = "other/n=1/float32/fwd"
    with pytest.raises(RecordError, match="not listed: other"):
        RunRecord.from_json(json.dumps(document).encode(), name="stranger")


def test_the_folder_of_a_record_is_checked_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(RecordError, match="nothing was measured"):
        check_writable(tmp_path / "a-file" / "record.json")
    check_writable(tmp_path / "new" / "record.json")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_full_disk_leaves_the_old_file_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    record, target = make_record(), tmp_path / "record.json"
    record.write(target)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="no space left on the device"):
        make_record(1).write(target)
    assert RunRecord.read(target) == record
    assert list(tmp_path.iterdir()) == [target]


def test_measured_values_derive_from_the_median() -> None:
    case = make_case(flop_count=2_000.0, memory_bytes=8_000.0, bus_bytes=1_000.0, token_count=500.0)
    measurement = make_measurement(blocks=make_blocks([100.0]), utilisation=0.5)
    assert measured_values(measurement, case) == {
        "median_ns": 100.0,
        "flop_per_s": 20e9,
        "memory_bytes_per_s": 80e9,
        "bus_bytes_per_s": 10e9,
        "tokens_per_s": 5e9,
        "utilisation": 0.5,
    }


def test_nesting_of_a_record_is_limited() -> None:
    def document(depth: int) -> bytes:
        added = b"[" * (depth - 1) + b"]" * (depth - 1)
        return make_record().to_json().replace(b"{", b'{"added.later":' + added + b",", 1)

    assert RunRecord.from_json(document(32), name="some.json")
    for depth in (33, 900):
        with pytest.raises(
            RecordError, match=r"some\.json: more than 32 nested arrays and objects"
        ):
            RunRecord.from_json(document(depth), name="some.json")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5 ns"),
        (999, "999 ns"),
        (1_000, "1 µs"),
        (1_234_567, "1.23 ms"),
        (5e9, "5 s"),
        (0, "0 ns"),
    ],
)
def test_times_are_formatted_with_a_suitable_unit(value: float, text: str) -> None:
    assert format_ns(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1023, "1023 B"), (49152, "48 KiB"), (3 * 2**30, "3 GiB")]
)
def test_bytes_are_written_in_powers_of_1024(value: float, text: str) -> None:
    assert format_bytes(value) == text


def test_values_carry_their_unit() -> None:
    assert metric("flop_per_s").format(1.5e12) == "1.5 TFLOP/s"
    assert metric("memory_bytes_per_s").format(3.35e12) == "3.35 TB/s"
    assert metric("utilisation").format(0.876) == "87.6%"
    assert metric("joules_per_launch").format(0.0123) == "12.3 mJ"
    assert metric("joules_per_launch").format(4e-7) == "400 nJ"
    assert metric("registers").format(255) == "255"


def test_an_unknown_metric_lists_those_that_exist() -> None:
    with pytest.raises(KeyError, match="median_ns"):
        metric("speed")
