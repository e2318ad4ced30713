"""Files beside records: whole or not there, one per content, and without what must not leave the machine."""

import hashlib
from pathlib import Path

import pytest

from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.artefact_folder import ArtefactFolder, artefact_name
from roofwatch.collector.record.record import ArtefactKind
from roofwatch.collector.redaction import EVERYTHING, Redaction, RedactionError
from tests.builders import make_artefact

REDACTION = Redaction(users=frozenset({"jdoe"}), secrets=frozenset({"hunter2"}))


@pytest.fixture
def folder(tmp_path: Path) -> ArtefactFolder:
    return ArtefactFolder(tmp_path / "records" / "artefacts")


def test_equal_files_are_stored_once_by_their_sha256(folder: ArtefactFolder, tmp_path: Path) -> None:
    for name in ("first.sass", "second.sass"):
        (tmp_path / name).write_bytes(b"MOV R1, R2")

    first, second = (folder.add(tmp_path / name) for name in ("first.sass", "second.sass"))

    assert first.sha256 == second.sha256 == hashlib.sha256(b"MOV R1, R2").hexdigest()
    assert (first.name, first.kind, first.size_bytes) == ("first.sass", ArtefactKind.DISASSEMBLY, 10)
    assert [path.name for path in folder.folder.iterdir()] == [first.sha256]
    found = folder.find(first)
    assert found is not None
    assert found.read_bytes() == b"MOV R1, R2"


def test_a_text_file_is_redacted(folder: ArtefactFolder, tmp_path: Path) -> None:
    (tmp_path / "of jdoe.html").write_text("<p>of jdoe</p>\n<p>password hunter2</p>\n")

    artefact = folder.add(tmp_path / "of jdoe.html", REDACTION)

    assert artefact.name == "of__user_.html"
    assert (folder.folder / artefact.sha256).read_text() == "<p>of <user></p>\n<p>password <secret></p>\n"


@pytest.mark.parametrize("name", ["report.ncu-rep", "dump.bin"])
def test_a_binary_file_is_refused_unless_everything_is_kept(folder: ArtefactFolder, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"NVR\0\xff\xfe")

    with pytest.raises(RedactionError):
        folder.add(tmp_path / name, REDACTION)

    assert list(folder.folder.iterdir()) == []
    assert folder.add(tmp_path / name, Redaction(kept=EVERYTHING)).size_bytes == 6


def test_a_missing_file_is_named(folder: ArtefactFolder, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"absent\.html: cannot be stored"):
        folder.add(tmp_path / "absent.html")


@pytest.mark.parametrize("wrong", [[b"whole", b"!"], [b"whale"], []])
def test_a_download_is_written_only_if_its_hash_matches(tmp_path: Path, wrong: list[bytes]) -> None:
    path, folder = tmp_path / "trace.json", ArtefactFolder(tmp_path)
    path.write_text("before")

    with pytest.raises(RecordError, match="differs from its record"):
        folder.receive(make_artefact(b"whole"), wrong, path)
    assert path.read_text() == "before"
    folder.receive(make_artefact(b"whole"), [b"wh", b"ole"], path)
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "harmless"),
    [("trace rank 0.json", "trace_rank_0.json"), (".hidden", "_.hidden"), ("-rf", "_-rf"), ("a;b`c", "a_b_c")],
)
def test_names_of_artefacts_are_safe(name: str, harmless: str) -> None:
    assert artefact_name(name) == harmless
