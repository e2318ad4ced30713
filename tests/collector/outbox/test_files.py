"""Files that are replaced as a whole, and records with gzip around them."""

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest

from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.files import TooLargeError, atomic_path, compress, read_document
from roofwatch.collector.record.record import RunRecord
from tests.builders import make_record


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
def test_compression_is_detected_from_the_content(tmp_path: Path, name: str, is_compressed: bool) -> None:
    record = make_record()
    (tmp_path / name).write_bytes(compress(record.to_json()) if is_compressed else record.to_json())
    assert RunRecord.read(tmp_path / name) == record


@pytest.mark.parametrize("cut", [1, 5, 30, 200, -9, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "record.json.gz"
    file.write_bytes(compress(make_record().to_json())[:cut])
    with pytest.raises(RecordError, match=r"record\.json\.gz: (compressed, and damaged|not a complete JSON document)"):
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
