"""Files that are there whole or not at all, whoever else writes them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.collector.outbox.files import atomic_file, check_writable, make_folder
from roofwatch.collector.outbox.spool import Spool
from tests.builders import make_record


def test_two_that_write_one_file_at_once_each_put_a_whole_one_there(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    with atomic_file(path) as first:
        first.write(b"of the first, which is longer")
        with atomic_file(path) as second:
            second.write(b"of the second")
        assert path.read_bytes() == b"of the second"

    assert path.read_bytes() == b"of the first, which is longer"
    assert list(tmp_path.iterdir()) == [path]


def put_into_the_spool(folder: Path) -> None:
    Spool(folder).submit(make_record())


def write_a_record(folder: Path) -> None:
    check_writable(folder / "record.json")
    make_record().write(folder / "record.json")


@pytest.mark.parametrize("put", [put_into_the_spool, write_a_record])
def test_folders_that_are_made_for_a_record_survive_a_power_cut_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None]
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink()))
    folder = tmp_path / "new" / "deep"

    put(folder)

    # each has an entry that it had not before
    assert {tmp_path, tmp_path / "new", folder} <= set(synced)


def test_a_folder_that_is_there_is_taken_and_a_file_in_its_place_is_not(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "file").touch()

    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            make_folder(folder)
