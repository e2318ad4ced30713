"""`roofwatch run --ray`: one run on all devices of a Ray cluster, a record for each kind of machine in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collector.fleet.spread import spread_run
from collector.keeping.journal_header import ALONE, header_of
from collector.record import RunRecord
from collector.revision import SuiteAt
from collector.suite_run import RunPlan
from roofwatch.measuring.unfinished import kept
from roofwatch.terminal import progress


def spread(
    suite: SuiteAt, plan: RunPlan, address: str, destination: Path, *, is_resumed: bool, is_discarded: bool
) -> list[tuple[Path, RunRecord]]:
    """Measure on a cluster and write what came back.

    Args:
        suite: What to measure.
        plan: What of it, and how long.
        address: Of the cluster.
        destination: Of the record; where several kinds of machine took part, of the first one's.
        is_resumed: Go on with the run that was cut short there, if there is one.
        is_discarded: Remove it.

    Returns:
        The records, and where each was written.

    Raises:
        CollectorError: some of it could not be measured; what was is kept to be gone on with.
    """
    header = header_of({ALONE: suite}, plan, asked={"is_spread": True})
    with kept(destination, header, is_resumed=is_resumed, is_discarded=is_discarded) as journal:
        with progress(suite.project) as on_progress:
            records = spread_run(suite, plan, address, on_progress, journal=journal)
        written = list(zip(_places(destination, records), records, strict=True))
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
