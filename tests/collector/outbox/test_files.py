"""Files that are replaced as a whole, compressed records, and the files beside them, without what
must not leave.
"""

import gzip
import hashlib
import io
import tracemalloc
from pathlib import Path

import pytest

from roofwatch.collector.outbox.artefact_folder import ArtefactFolder, artefact_name
from roofwatch.collector.redaction import EVERYTHING, Redaction, RedactionError
from roofwatch.model.errors import RecordError
from roofwatch.model.files import TooLargeError, atomic_path, compress, read_document
from roofwatch.model.record import ArtefactKind, RunRecord
from tests.builders import make_artefact, make_record


def test_concurrent_writers_of_a_file_each_write_a_complete_one(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    with atomic_path(path) as first:
        first.write_bytes(b"of the first, which is longer")
        with atomic_path(path) as second:
            second.write_bytes(b"of the second")
        assert path.read_bytes() == b"of the second"

    assert path.read_bytes() == b"of the first, which is longer"
    assert list(tmp_path.iterdir()) == [path]


def test_compressed_records_are_reproducible(tmp_path: Path) -> None:
    record = make_record()
    record.write(tmp_path / "plain.json")
    record.write(tmp_path / "compressed.json.gz")
    document = (tmp_path / "compressed.json.gz").read_bytes()
    assert (tmp_path / "plain.json").read_bytes() == record.to_json() == gzip.decompress(document)
    assert document[4:8] == b"\0\0\0\0", "a time in it would make equal records differ"


@pytest.mark.parametrize("name", ["record.json", "record.json.gz", "record"])
@pytest.mark.parametrize("is_compressed", [True, False])
def test_compression_is_detected_from_the_content(
    tmp_path: Path, name: str, is_compressed: bool
) -> None:
    record = make_record()
    (tmp_path / name).write_bytes(compress(record.to_json()) if is_compressed else record.to_json())
    assert RunRecord.read(tmp_path / name) == record


@pytest.mark.parametrize("cut", [1, 5, 30, 200, -9, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "record.json.gz"
    file.write_bytes(compress(make_record().to_json())[:cut])
    with pytest.raises(
        RecordError,
        match=r"record\.json\.gz: (compressed, and damaged|not a complete JSON document)",
    ):
        RunRecord.read(file)


@pytest.mark.parametrize("parts", [1, 64], ids=["one stream", "many streams"])
def test_a_gzip_bomb_is_refused(parts: int) -> None:
    bomb = io.BytesIO(gzip.compress(bytes(2**26 // parts)) * parts)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match="more than 4194304 bytes"):
            read_document(bomb, max_bytes=2**22)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2**24


# --- artefacts beside records


REDACTION = Redaction(users=frozenset({"jdoe"}), secrets=frozenset({"hunter2"}))


@pytest.fixture
def folder(tmp_path: Path) -> ArtefactFolder:
    return ArtefactFolder(tmp_path / "records" / "artefacts")


def test_equal_files_are_stored_once_by_their_sha256(
    folder: ArtefactFolder, tmp_path: Path
) -> None:
    for name in ("first.sass", "second.sass"):
        (tmp_path / name).write_bytes(b"MOV R1, R2")

    first, second = (folder.add(tmp_path / name) for name in ("first.sass", "second.sass"))

    assert first.sha256 == second.sha256 == hashlib.sha256(b"MOV R1, R2").hexdigest()
    assert (first.name, first.kind, first.size_bytes) == (
        "first.sass",
        ArtefactKind.DISASSEMBLY,
        10,
    )
    assert [path.name for path in folder.folder.iterdir()] == [first.sha256]
    found = folder.find(first)
    assert found is not None
    assert found.read_bytes() == b"MOV R1, R2"


def test_a_text_file_is_redacted(folder: ArtefactFolder, tmp_path: Path) -> None:
    (tmp_path / "of jdoe.html").write_text("<p>of jdoe</p>\n<p>password hunter2</p>\n")

    artefact = folder.add(tmp_path / "of jdoe.html", REDACTION)

    assert artefact.name == "of__user_.html"
    assert (
        folder.folder / artefact.sha256
    ).read_text() == "<p>of <user></p>\n<p>password <secret></p>\n"


def test_a_missing_file_is_named(folder: ArtefactFolder, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"absent\.html: cannot be stored"):
        folder.add(tmp_path / "absent.html")


@pytest.mark.parametrize("name", ["report.ncu-rep", "dump.bin"])
def test_a_binary_file_is_refused_unless_everything_is_kept(
    folder: ArtefactFolder, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"NVR\0\xff\xfe")

    with pytest.raises(RedactionError):
        folder.add(tmp_path / name, REDACTION)

    assert list(folder.folder.iterdir()) == []
    assert folder.add(tmp_path / name, Redaction(kept_kinds=EVERYTHING)).size_bytes == 6


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
    [
        ("trace rank 0.json", "trace_rank_0.json"),
        (".hidden", "_.hidden"),
        ("-rf", "_-rf"),
        ("a;b`c", "a_b_c"),
    ],
)
def test_names_of_artefacts_are_safe(name: str, harmless: str) -> None:
    assert artefact_name(name) == harmless
