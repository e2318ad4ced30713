"""One run of a suite, on this machine or on all devices of a Ray cluster: measured, and its records written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.cluster.spread import spread_run
from roofwatch.collector.outbox.files import check_writable
from roofwatch.collector.outbox.journal import ALONE, make_header
from roofwatch.collector.record.record import RunRecord, SkippedKernel
from roofwatch.collector.run import collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.measuring.unfinished import finished_record, kept
from roofwatch.terminal import progress

Written = list[tuple[Path, RunRecord]]
"""Records, and where each of them was written."""


@dataclass(frozen=True)
class RunRequest:
    """What to measure, and where the record goes.

    Args:
        suite: At its commit.
        plan: What of it, and how long.
        destination: Of the record; where several kinds of machine take part, of the first one's.
        address: Of a Ray cluster; None for this machine.
        skipped: Kernels that are left out because they cannot differ, for the record to say so.
        is_resumed: Go on with the run that was cut short there, if there is one.
        is_discarded: Forget it.
    """

    suite: SuiteAt
    plan: RunPlan
    destination: Path
    address: str | None = None
    skipped: tuple[SkippedKernel, ...] = ()
    is_resumed: bool = False
    is_discarded: bool = False


def measure(asked: RunRequest) -> Written:
    """Measure, and write what came of it.

    Raises:
        CollectorError: a record cannot be written, or some of it could not be measured; what was is kept to be gone
            on with.
    """
    check_writable(asked.destination)
    finished = finished_record(asked.destination)
    if finished is not None and asked.is_resumed:
        return [(asked.destination, finished)]
    said = None if asked.address is None else {"is_spread": True}
    header = make_header({ALONE: asked.suite}, asked.plan, options=said)
    with kept(asked.destination, header, is_resumed=asked.is_resumed, is_discarded=asked.is_discarded) as journal:
        with progress(asked.suite.project) as on_progress:
            if asked.address is not None:
                records = spread_run(asked.suite, asked.plan, asked.address, on_progress, journal=journal)
            else:
                with ForkServer() as fork_server:
                    records = (
                        collect_run(asked.suite, asked.plan, on_progress, fork_server=fork_server, journal=journal),
                    )
        records = tuple(record.model_copy(update={"skipped": asked.skipped}) for record in records)
        written = list(zip(_places(asked.destination, records), records, strict=True))
        # the first one last: where it is, all are
        for place, record in reversed(written):
            record.write(place)
        journal.remove()
    return written


def _places(destination: Path, records: Sequence[RunRecord]) -> list[Path]:
    """`run.json`, then `run-2.json` and so on."""
    name, dot, endings = destination.name.partition(".")
    others = [destination.with_name(f"{name}-{number}{dot}{endings}") for number in range(2, len(records) + 1)]
    return [destination, *others]
