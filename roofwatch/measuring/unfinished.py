"""Runs that were cut short: they are gone on with, or discarded, and never written over in silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.journal import Header, Journal, discard, journal_path, read_header
from roofwatch.collector.record.record import RunRecord
from roofwatch.terminal import print_error


def finished_record(destination: Path) -> RunRecord | None:
    """The record, where a process was ended after it had written it and before it had removed the journal, which is
    removed now.
    """
    journal = journal_path(destination)
    header = read_header(journal)
    if header is None or not destination.exists():
        return None
    try:
        record = RunRecord.read(destination)
    except RecordError:
        return None
    if record.run_id not in {suite.run_id for suite in header.suites.values()}:
        return None
    discard(journal)
    return record


@contextmanager
def kept(destination: Path, header: Header, *, is_resumed: bool, is_discarded: bool) -> Iterator[Journal]:
    """A journal beside a destination, which stays there until it is removed. However the block within ends, what was
    measured is not lost, and how to go on is said.

    Args:
        destination: Where the record will go.
        header: What is to be measured.
        is_resumed: Go on with the run that was cut short there, if there is one.
        is_discarded: Remove it.

    Raises:
        JournalError: there is one and it is neither resumed nor discarded, or it cannot be gone on with.
    """
    path = journal_path(destination)
    if is_discarded:
        discard(path)
    with Journal(path, header, is_resumed=is_resumed) as journal:
        if journal.result_count:
            print_error(f"going on with the {journal.result_count} results that are in {path}")
        try:
            yield journal
        except BaseException:
            if journal.result_count:
                print_error(
                    f"{journal.result_count} results are kept in {path}: the same command with --resume goes on from "
                    "there, with --discard it begins anew"
                )
            raise
