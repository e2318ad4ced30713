"""Variants of tables: units, decimal marks, failures in place of numbers, and damaged rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofwatch.importers import FileImportError, ImportedRun, Outcome
from roofwatch.importers.cells import read_cell, seconds_of
from roofwatch.importers.reading import import_file
from roofwatch.importers.records import to_records
from roofwatch.importers.table_map import TableMap
from roofwatch.model.machine import Outcome as AnyOutcome

SHA = "42ae6972b00dd3d2936c5b80a2c96ae4d2fd6608"


def read(folder: Path, text: str, *words: str, encoding: str = "utf-8") -> ImportedRun:
    path = folder / "results.csv"
    path.write_bytes(text.encode(encoding))
    return import_file(path, "table", table=TableMap.parse(words))[1]


def numbers(run: ImportedRun) -> list[tuple[str, float | None, str]]:
    return [(row.case, row.value, row.unit) for row in run.rows]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("OOM", Outcome.OUT_OF_MEMORY),
        ("CUDA out of memory. Tried to allocate", Outcome.OUT_OF_MEMORY),
        ("N/A", Outcome.UNSUPPORTED),
        ("skipped", Outcome.UNSUPPORTED),
        ("timeout", Outcome.TIMED_OUT),
        ("inf", Outcome.CRASHED),
        ("nan", Outcome.CRASHED),
        ("RuntimeError: no kernel", Outcome.CRASHED),
        ("accuracy check failed", Outcome.INCORRECT),
    ],
)
def test_a_word_in_place_of_a_number_is_an_outcome(text: str, outcome: AnyOutcome) -> None:
    cell = read_cell(text)

    assert (cell.outcome, cell.number, cell.unreadable) == (outcome, None, "")


@pytest.mark.parametrize("text", ["", "-", "null", None])
def test_an_absent_value_is_neither_a_number_nor_a_failure(text: str | None) -> None:
    cell = read_cell(text)

    assert (cell.number, cell.outcome, cell.unreadable) == (None, None, "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-05-02", 1_777_680_000),
        ("20260502", 1_777_680_000),
        ("2026-05-02T02:00:00+02:00", 1_777_680_000),
        ("2026-05-02 00:00:00 UTC", 1_777_680_000),
        ("Sat, 02 May 2026 00:00:00 +0000", 1_777_680_000),
        ("1777680000", 1_777_680_000),
        ("1777680000000", 1_777_680_000),
        (1_777_680_000_000_000_000, 1_777_680_000),
        ("05/02/2026", None),  # of May or of February
        ("7", None),
        ("", None),
    ],
)
def test_times_are_read_in_all_common_forms(text: object, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_of_a_german_spreadsheet_is_read(tmp_path: Path, encoding: str) -> None:
    text = "kernel;Time (us)\r\ncopy;1.234,5\r\nadd;12,5\r\nmul;3\r\n"
    run = read(tmp_path, text, "case=kernel value=time better=auto", encoding=encoding)

    assert numbers(run) == [("copy", 1234.5, "us"), ("add", 12.5, "us"), ("mul", 3, "us")]
    assert {str(row.better) for row in run.rows} == {"lower"}


def test_the_unit_of_the_file_counts_before_that_of_the_map(tmp_path: Path) -> None:
    text = "kernel,time (us)\ncopy,5\nadd,7 ms\n"

    run = read(tmp_path, text, "case=kernel value=time unit=ms better=lower")

    assert numbers(run) == [("copy", 5, "us"), ("add", 7, "ms")]


def test_a_unit_that_the_map_has_wrong_is_named(tmp_path: Path) -> None:
    text = "kernel,time (us)\ncopy,5\n"

    run = read(tmp_path, text, "case=kernel value=time unit=ms better=lower")

    assert run.notes == ("time (us) is in us, as the file says, not in ms",)


def test_what_cannot_be_read_is_counted_by_name(tmp_path: Path) -> None:
    text = (
        'kernel,us\ncopy,5\nadd,five\nmul,\ndiv,-1\nsub,1,234\nexp,"1,234"\nkernel,us\nlog,6\nsin\n'
    )
    run = read(tmp_path, text, "case=kernel value=us unit==us better=lower")

    assert numbers(run) == [("copy", 5, "us"), ("log", 6, "us")]
    assert run.notes == (
        "2 lines do not have the 2 cells of the header and were left out, the first is line 6",
        "omitted: 2 values of us that are no numbers: 'five' in row 2, '1,234' in row 5",
        "omitted: 1 value of us that no measurement gives: -1 in row 4",
    )


def test_rows_that_the_map_does_not_tell_apart_are_named(tmp_path: Path) -> None:
    text = "kernel,heads,sample,us\nattention,8,0,1.0\nattention,16,1,3.0\n"
    run = read(tmp_path, text, "case=kernel value=us unit==us better=lower")
    (note,) = run.notes
    assert note.endswith("are taken as samples of one value, although they differ in heads")

    told_apart = read(tmp_path, text, "case=kernel value=us parameters=heads unit==us better=lower")
    assert told_apart.notes == ()


def test_a_column_of_a_map_that_the_file_lacks_is_no_word(tmp_path: Path) -> None:
    with pytest.raises(FileImportError, match="has no column provider; it has kernel, us; for the"):
        read(tmp_path, "kernel,us\na,1\n", "case=kernel value=us implementation=provider")

    run = read(tmp_path, "kernel,us\na,1\n", "case=kernel value=us implementation==triton")
    assert [row.implementation for row in run.rows] == ["triton"]


def test_a_name_with_spaces_is_quoted(tmp_path: Path) -> None:
    text = "kernel name,median time\ncopy,5\n"
    run = read(tmp_path, text, 'case="kernel name"', 'value="median time" unit=ms better=lower')

    assert numbers(run) == [("copy", 5, "ms")]


def test_results_of_two_devices_are_two_runs(tmp_path: Path) -> None:
    text = f"kernel,us,gpu,sha,when\na,1,H100,{SHA},2026-05-02\na,2,B200,{SHA},2026-05-02\n"
    words = "case=kernel value=us unit==us better=lower device=gpu commit=sha measured=when"
    run = read(tmp_path, text, words)
    records = list(to_records(run, tmp_path, project="p", revision=None, folder=tmp_path))

    assert [record.environment.device_name for record in records] == ["H100", "B200"]
    assert len({record.cases[0].case_id for record in records}) == 1


def test_commits_without_times_need_a_repository_for_their_order(tmp_path: Path) -> None:
    text = f"kernel,us,sha\na,1,{SHA}\na,2,{SHA[::-1]}\n"
    run = read(tmp_path, text, "case=kernel value=us unit==us better=lower commit=sha")

    with pytest.raises(FileImportError, match=r"no times for its 2 commits.*--repository"):
        list(to_records(run, tmp_path, project="p", revision=None, folder=tmp_path))


def test_a_status_tells_the_outcome(tmp_path: Path) -> None:
    records = [
        {"op": "a", "ms": 1, "state": "passed"},
        {"op": "b", "ms": 2, "state": "OOM"},
        {"op": "c", "ms": None, "state": "timeout"},
        {"op": "d", "ms": 3, "state": None},
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(records))
    table = TableMap.parse(["case=op value=ms unit==ms better=lower status=state"])
    run = import_file(path, "table", table=table)[1]

    assert [row.outcome for row in run.rows] == [
        Outcome.OK,
        Outcome.OUT_OF_MEMORY,
        Outcome.TIMED_OUT,
        Outcome.OK,
    ]
    assert [row.value for row in run.rows] == [1, None, None, 3]
