"""Real profiler files against values that were computed without this code."""

import contextlib
import csv
import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.profiling.profile_file import read_profile
from roofwatch.model.errors import ProfileError

DATA = Path(__file__).parents[2] / "data" / "profiles"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())
MANIFEST = {entry["file"]: entry for entry in json.loads((DATA / "manifest.json").read_text())}


def leaves(value: Any, where: str = "") -> dict[str, Any]:
    """Values by their place, and the length of each list."""
    if not isinstance(value, (dict, list)):
        return {where: value}
    parts = (
        value.items() if isinstance(value, dict) else [*enumerate(value), ("length", len(value))]
    )
    return {
        place: leaf for key, part in parts for place, leaf in leaves(part, f"{where}/{key}").items()
    }


def path_of(name: str) -> Path:
    if name.endswith(".ncu-rep"):
        pytest.importorskip(
            "ncu_report", reason="the module that reads Nsight Compute's reports is not installed"
        )
    return DATA / name


@pytest.mark.parametrize("name", EXPECTED)
def test_every_expected_value_is_read_whatever_the_name_of_the_file(
    name: str, tmp_path: Path
) -> None:
    content = path_of(name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == MANIFEST[name]["sha256"]
    renamed = tmp_path / "profile.txt"
    renamed.write_bytes(content)

    profile = read_profile(renamed)

    expected, actual = leaves(EXPECTED[name]), leaves(profile)
    assert {place: actual.get(place, "missing") for place in expected} == {
        place: pytest.approx(leaf, rel=1e-6, abs=0) if isinstance(leaf, float) else leaf
        for place, leaf in expected.items()
    }
    assert json.loads(json.dumps(profile, allow_nan=False)) == profile, "plain JSON"


@pytest.mark.parametrize("kept", [0.4, 0.99])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("simple_add_a100.json", "not a whole .* finish"),
        ("alexnet_a100.json.gz", "not a whole .* again"),
        ("sgemm_profile.ncu-rep", "not a whole .* again"),
        ("power_iteration.sqlite", "not a whole sqlite export .* again"),
        ("sgemm_metrics.csv", "truncated"),
    ],
)
def test_a_truncated_file_is_refused(name: str, message: str, kept: float, tmp_path: Path) -> None:
    content = path_of(name).read_bytes()
    cut = tmp_path / name
    cut.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(ProfileError, match=message):
        read_profile(cut)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon' WHERE rowid = 3",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN demangledName TO name",
    ],
)
def test_a_database_of_another_schema_is_refused(statement: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"export of a known version \(.*\); export it again"):
        read_profile(changed_export(tmp_path, statement))


def test_damaged_texts_of_an_export_do_not_stop_the_reader(tmp_path: Path) -> None:
    damaged = changed_export(
        tmp_path,
        "UPDATE StringIds SET value = CAST(x'6b80' AS TEXT)",
        "UPDATE META_DATA_EXPORT SET value = x'ff'",
        "UPDATE TARGET_INFO_GPU SET chipName = x'ff'",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = 'one'",
    )
    found = json.loads(json.dumps(read_profile(damaged)))
    assert {row["name"] for row in found["kernels"]["top_by_total_time"]} == {
        "k\N{REPLACEMENT CHARACTER}"
    }
    assert found["kernels"]["count"] == EXPECTED["power_iteration.sqlite"]["kernels"]["count"]


def changed_export(folder: Path, *statements: str) -> Path:
    copy = folder / "damaged.sqlite"
    copy.write_bytes((DATA / "power_iteration.sqlite").read_bytes())
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return copy


def test_a_csv_of_an_older_nsight_compute_has_fewer_columns(tmp_path: Path) -> None:
    lines = (DATA / "sgemm_metrics.csv").read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith('"ID"'))
    header, *rows = csv.reader(lines[start:])
    kept = [
        at
        for at, name in enumerate(header)
        if name not in {"Stream", "Block Size", "Grid Size", "Device", "CC"}
    ]
    older = tmp_path / "older.csv"
    with older.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [[row[at] for at in kept] for row in (header, *rows)]
        )

    names = [kernel["name"] for kernel in read_profile(older)["kernels"]]

    assert names == [kernel["name"] for kernel in EXPECTED["sgemm_metrics.csv"]["kernels"]]


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"{}",
        b"[]",
        b"[1, 2]",
        b'{"benchmarks": []}',
        b"\x00" * 64,
        b'"ID","Name"\n"1","x"\n',
        b"\xff\xfe",
    ],
)
def test_an_unknown_format_is_refused_with_the_known_ones(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(content)
    with pytest.raises(ProfileError, match=r"trace.json: unknown format.*Nsight"):
        read_profile(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="No such file"):
        read_profile(tmp_path / "missing")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ProfileError, match="is empty"):
        read_profile(tmp_path / "empty")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="is a folder"):
        read_profile(tmp_path)
