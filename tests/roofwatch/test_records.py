"""Reading many record files."""

import gc
import random
from pathlib import Path

import pytest

from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.record import RunRecord
from roofwatch.records import read_record_files
from tests.builders import make_record


def write_history(folder: Path, length: int) -> list[int]:
    """Write records into a folder; returns the numbers of their commits, in the order of the files' names."""
    numbers = random.Random(3).sample(range(length), length)
    for place, number in enumerate(numbers):
        make_record(number).write(folder / f"{place:03}.json.gz")
    return numbers


def records_in_memory() -> int:
    return sum(isinstance(one, RunRecord) for one in gc.get_objects())


@pytest.mark.slow
def test_files_are_read_in_commit_order_without_filling_memory(tmp_path: Path) -> None:
    numbers = write_history(tmp_path, 40)
    before = records_in_memory()

    files, most = [], 0
    for file, record in read_record_files([tmp_path]):
        files.append(file.name)
        assert RunRecord.read(file) == record
        most = max(most, records_in_memory() - before)

    assert files == [f"{place:03}.json.gz" for place in sorted(range(40), key=numbers.__getitem__)]
    assert most < 20


def test_a_bad_file_is_reported_before_the_first_record_is_returned(tmp_path: Path) -> None:
    write_history(tmp_path, 2)
    (tmp_path / "999.json.gz").write_bytes(b"{}")

    with pytest.raises(RecordError, match=r"999\.json\.gz"):
        read_record_files([tmp_path])
