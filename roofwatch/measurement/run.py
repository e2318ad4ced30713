"""Measure a suite, on this machine or a Ray cluster, and write its records; an interrupted run can be resumed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roofwatch.collector.cluster import spread_run
from roofwatch.collector.outbox.files import check_writable
from roofwatch.collector.outbox.journal import ALONE, Header, Journal, journal_path, make_header
from roofwatch.collector.record.record import RunRecord
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
    skipped: tuple[str, ...] = (),
    is_resumed: bool = False,
) -> list[tuple[Path, RunRecord]]:
    """Measure a suite on this machine, or on the Ray cluster at an address, and write a record per kind of machine.

    An interrupted run at the destination is continued if asked. The record names the kernels that were skipped.

    Returns:
        Each record with its path.

    Raises:
        CollectorError: a record cannot be written, or something cannot be measured; results so far can be resumed.
    """
    check_writable(destination)
    header = make_header({ALONE: suite}, plan, is_spread=address is not None)
    with (
        resumable(destination, header, is_resumed=is_resumed) as journal,
        progress(suite.project) as on_progress,
    ):
        if address is not None:
            records = spread_run(suite, plan, address, on_progress, journal=journal)
        else:
            with ForkServer() as fork_server:
                records = measure([suite], plan, on_progress, fork_server=fork_server, journal=journal)
        written = [
            (path, record.model_copy(update={"skipped": skipped}))
            for path, record in zip(_paths(destination, len(records)), records, strict=True)
        ]
        for path, record in reversed(written):  # the first one last: if it exists, all do
            record.write(path)
        journal.remove()
    return written


@contextmanager
def resumable(destination: Path, header: Header, *, is_resumed: bool) -> Iterator[Journal]:
    """Keep a journal beside the record's destination, or continue that of an interrupted run. If the block fails, print
    how to resume.

    Raises:
        JournalError: there is an interrupted run that was not to be resumed, or it cannot be.
    """
    path = journal_path(destination)
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
                    "or delete the file to start again"
                )
            raise


def _paths(destination: Path, count: int) -> list[Path]:
    """`run.json`, then `run-2.json` and so on."""
    name, dot, endings = destination.name.partition(".")
    return [destination, *(destination.with_name(f"{name}-{number}{dot}{endings}") for number in range(2, count + 1))]
