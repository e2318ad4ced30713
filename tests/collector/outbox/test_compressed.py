"""Record files with gzip around them."""

import gzip
import io
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.files import TooLargeError, compress, read_document
from roofwatch.collector.record.record import MAX_RECORD_BYTES, RunRecord
from roofwatch.records import read_records
from tests.builders import make_record

ROOT = Path(__file__).parents[3]


def test_a_name_that_ends_in_gz_is_written_compressed_and_the_same_whenever_it_is(tmp_path: Path) -> None:
    record = make_record()
    record.write(tmp_path / "plain.json")
    record.write(tmp_path / "compressed.json.gz")
    document = (tmp_path / "compressed.json.gz").read_bytes()
    assert (tmp_path / "plain.json").read_bytes() == record.to_json() == gzip.decompress(document)
    assert document[4:8] == b"\0\0\0\0", "a time in it would make equal records differ"


@pytest.mark.parametrize("name", ["record.json", "record.json.gz", "record"])
@pytest.mark.parametrize("is_compressed", [True, False])
def test_it_is_read_by_its_content_whatever_its_name(tmp_path: Path, name: str, is_compressed: bool) -> None:
    record = make_record()
    (tmp_path / name).write_bytes(compress(record.to_json()) if is_compressed else record.to_json())
    assert RunRecord.read(tmp_path / name) == record


def test_a_folder_may_hold_both_kinds_and_journals(tmp_path: Path) -> None:
    records = [make_record(number) for number in range(2)]
    records[0].write(tmp_path / "0.json")
    records[1].write(tmp_path / "1.json.gz")
    (tmp_path / "2.json.gz.journal").write_bytes(b"of a run that is not finished")
    assert read_records([tmp_path]) == records


@pytest.mark.parametrize("cut", [1, 5, 30, 200, -9, -1])
def test_a_file_that_is_not_whole_is_one_clear_error(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "record.json.gz"
    file.write_bytes(compress(make_record().to_json())[:cut])
    with pytest.raises(RecordError, match=r"record\.json\.gz: (compressed, and damaged|not a complete JSON document)"):
        RunRecord.read(file)


def test_a_flipped_bit_is_one_clear_error(tmp_path: Path) -> None:
    document = bytearray(compress(make_record().to_json()))
    document[-3] ^= 1
    file = tmp_path / "record.json.gz"
    file.write_bytes(document)
    with pytest.raises(RecordError, match="compressed, and damaged or not whole"):
        RunRecord.read(file)


@pytest.mark.parametrize("parts", [1, 64], ids=["one stream", "many streams"])
def test_what_unfolds_to_more_than_it_may_is_refused_before_it_fills_the_memory(parts: int) -> None:
    bomb = io.BytesIO(gzip.compress(bytes(2**26 // parts)) * parts)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match="more than 4194304 bytes"):
            read_document(bomb, max_bytes=2**22)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2**24


def test_a_bomb_in_a_record_file_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofwatch.collector.record.record.MAX_RECORD_BYTES", 2**20)
    file = tmp_path / "record.json.gz"
    file.write_bytes(gzip.compress(bytes(2**21)))
    with pytest.raises(RecordError, match=r"record\.json\.gz: more than 1048576 bytes, which is the most"):
        RunRecord.read(file)
    assert MAX_RECORD_BYTES == 512 * 2**20


def test_a_full_disk_leaves_the_old_compressed_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "record.json.gz"
    make_record().write(target)
    before = target.read_bytes()
    script = """
import resource, sys
from pathlib import Path
from roofwatch.collector.errors import RecordError
from tests.builders import make_record
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    make_record(1).write(Path(sys.argv[1]))
except RecordError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(target)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert "cannot be written: File too large" in done.stdout
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["record.json.gz"]
