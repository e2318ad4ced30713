"""`roofwatch report` reads everything that `roofwatch ab` writes, with the core alone."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from roofwatch.ci.report.not_measured import FILE_NAME, NotMeasured
from tests.builders import make_commit
from tests.ci.situations import SITUATIONS, write_records
from tests.roofwatch.command import roofwatch, started_roofwatch
from tests.roofwatch.extras import only_with

NOTES = {
    "documentation": (NotMeasured.of(make_commit(1)), 0, "no kernel touched"),
    "broken head": (
        NotMeasured.of(make_commit(1), "ImportError: no module named qk", side="head"),
        1,
        "The benchmark cannot be loaded",
    ),
    "broken base": (
        NotMeasured.of(make_commit(1), "ImportError: no module named qk", side="base"),
        2,
        "The base cannot be loaded",
    ),
    "no machine": (NotMeasured.of(make_commit(1), "no device"), 2, "No result"),
}


@pytest.mark.parametrize("argument", ["", FILE_NAME], ids=["folder", "file"])
@pytest.mark.parametrize("note", NOTES)
def test_the_note_of_a_change_without_records_is_reported(
    tmp_path: Path, note: str, argument: str
) -> None:
    written, status, words = NOTES[note]
    (tmp_path / FILE_NAME).write_text(written.model_dump_json())
    junit, sarif, page = (tmp_path / name for name in ("junit.xml", "findings.sarif", "page.html"))

    done = roofwatch(
        "report", tmp_path / argument, "--junit", junit, "--sarif", sarif, "--html", page
    )

    assert (done.status, words in done.output) == (status, True)
    suite = ElementTree.parse(junit).getroot()[0]  # noqa: S314  our own file
    assert suite.get("failures") == str(int(note == "broken head"))
    (run,) = json.loads(sarif.read_text())["runs"]
    assert run["results"] == []
    assert run["invocations"][0]["executionSuccessful"] == (note == "documentation")
    assert words in page.read_text()


def test_a_folder_of_records_is_reported_like_its_two_files(tmp_path: Path) -> None:
    base, head = write_records(tmp_path, SITUATIONS["regression"]())

    of_folder, of_files = roofwatch("report", tmp_path), roofwatch("report", base, head)

    assert of_folder == of_files
    assert of_folder.status == 1


def test_a_folder_without_files_of_ours_is_an_error(tmp_path: Path) -> None:
    done = roofwatch("report", tmp_path)

    assert done.status == 2
    assert "contains no record and no note of roofwatch ab" in done.error


def test_a_report_of_records_needs_no_numpy(tmp_path: Path) -> None:
    base, head = write_records(tmp_path, SITUATIONS["regression"]())
    environment = only_with(tmp_path)

    for command in ("report", "compare"):
        done = started_roofwatch(command, base, head, cwd=tmp_path, **environment)
        assert (done.status, done.error) == (1, "")
