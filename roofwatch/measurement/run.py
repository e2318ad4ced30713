"""Measure a suite, on this machine or a Ray cluster, and write its records; an interrupted run can be resumed."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from roofwatch.collector.cluster import spread_run
from roofwatch.collector.errors import RecordError
from roofwatch.collector.outbox.files import check_writable
from roofwatch.collector.outbox.journal import ALONE, Header, Journal, discard, journal_path, make_header, read_header
from roofwatch.collector.record.record import RunRecord, SkippedKernel
from roofwatch.collector.run import measure
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.terminal import print_error, progress


def measure_suite(
    suite: SuiteAt,
    plan: RunPlan,
    destination: Path,
    *,
    address: str | None = None,
    skipped: tuple[SkippedKernel, ...] = (),
    is_resumed: bool = False,
    is_discarded: bool = False,
) -> list[tuple[Path, RunRecord]]:
    """Measure, and write the records.

    Args:
        suite: At its commit.
        plan: What to measure, and for how long.
        destination: Of the record; with several kinds of machine, of the first one's.
        address: Of a Ray cluster; None for this machine.
        skipped: Kernels left out because the change cannot affect them, for the record.
        is_resumed: Continue an interrupted run, if there is one.
        is_discarded: Discard it.

    Returns:
        Each record with its path.

    Raises:
        CollectorError: a record cannot be written, or something cannot be measured; results so far can be resumed.
    """
    check_writable(destination)
    finished = finished_record(destination)
    if finished is not None and is_resumed:
        return [(destination, finished)]
    header = make_header({ALONE: suite}, plan, options=None if address is None else {"is_spread": True})
    with resumable(destination, header, is_resumed=is_resumed, is_discarded=is_discarded) as journal:
        with progress(suite.project) as on_progress:
            if address is not None:
                records = spread_run(suite, plan, address, on_progress, journal=journal)
            else:
                with ForkServer() as fork_server:
                    records = measure([suite], plan, on_progress, fork_server=fork_server, journal=journal)
        records = tuple(record.model_copy(update={"skipped": skipped}) for record in records)
        written = list(zip(_paths(destination, records), records, strict=True))
        write_records(written[::-1])  # the first one last: if it exists, all do
        journal.remove()
    return written


def finished_record(destination: Path) -> RunRecord | None:
    """The record of a process that ended after writing it and before removing the journal, which is removed now."""
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


def write_records(files: Sequence[tuple[Path, RunRecord]]) -> None:
    """Write measured records; one that cannot be written to its path is saved in a temporary folder.

    Raises:
        RecordError: not all are at their paths; the message says where each is.
    """
    failures = []
    for path, record in files:
        try:
            record.write(path)
        except RecordError as error:
            rescued = Path(tempfile.mkdtemp(prefix="roofwatch-rescued-")) / path.name
            record.write(rescued)
            failures.append(f"{error}; the record is in {rescued}")
    if failures:
        raise RecordError("; ".join(failures))


@contextmanager
def resumable(destination: Path, header: Header, *, is_resumed: bool, is_discarded: bool) -> Iterator[Journal]:
    """Keep a journal beside the destination; if the block fails, print how to resume.

    Args:
        destination: Of the record.
        header: What is measured.
        is_resumed: Continue an interrupted run, if there is one.
        is_discarded: Discard it.

    Raises:
        JournalError: there is an interrupted run and neither option, or it cannot be resumed.
    """
    path = journal_path(destination)
    if is_discarded:
        discard(path)
    with Journal(path, header, is_resumed=is_resumed) as journal:
        if journal.result_count:
            print_error(f"resuming with {journal.result_count} results in {path}")
        for number in journal.damaged_lines:
            print_error(f"{path}: line {number} is damaged and was skipped; its result is measured again")
        try:
            yield journal
        except BaseException:
            if journal.result_count:
                print_error(
                    f"{journal.result_count} results are kept in {path}: repeat the command with --resume to continue, "
                    "or with --discard to start again"
                )
            raise


def _paths(destination: Path, records: Sequence[RunRecord]) -> list[Path]:
    """`run.json`, then `run-2.json` and so on."""
    name, dot, endings = destination.name.partition(".")
    others = [destination.with_name(f"{name}-{number}{dot}{endings}") for number in range(2, len(records) + 1)]
    return [destination, *others]
