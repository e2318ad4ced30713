"""An interrupt while a result is written: what is on the disk counts, whether or not this process came to note it."""

import os
from pathlib import Path

import pytest

from roofwatch.collector.errors import JournalError
from roofwatch.collector.outbox.journal import Journal, journal_path
from tests.collector.outbox.test_journal import keep, kept, make_header


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return journal_path(tmp_path / "record.json.gz")


def test_an_interrupt_after_the_first_result_was_written_does_not_lose_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    header = make_header()
    with Journal.begin(path, header) as journal:
        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            keep(journal, "a")
        monkeypatch.undo()
        assert journal.result_count == 1

    with Journal.resume(path, header) as journal:
        assert kept(journal) == ["a"]


def test_an_interrupt_within_a_line_costs_that_line_and_nothing_is_written_behind_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(fd: int, content: memoryview) -> int:
        written(fd, content[: len(content) // 2])
        raise KeyboardInterrupt

    written = os.write
    header = make_header()
    with Journal.begin(path, header) as journal:
        keep(journal, "a")
        monkeypatch.setattr(os, "write", write_half)
        with pytest.raises(KeyboardInterrupt):
            keep(journal, "b")
        monkeypatch.undo()
        with pytest.raises(JournalError, match="could not be written a moment ago"):
            keep(journal, "c")
        assert journal.result_count == 1

    with Journal.resume(path, header) as journal:
        keep(journal, "b")
    with Journal.resume(path, header) as journal:
        assert kept(journal) == ["a", "b"]
