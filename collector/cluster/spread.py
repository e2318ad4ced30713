"""One run, spread over the devices of a cluster."""

from __future__ import annotations

from dataclasses import replace

from roofwatch.collector.cluster.cluster import Cluster
from roofwatch.collector.cluster.joined_record import join
from roofwatch.collector.cluster.share import deal
from roofwatch.collector.cluster.shipped_suite import ship
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.outbox.journal import Journal
from roofwatch.collector.outbox.journal_header import ALONE
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.revision import SuiteAt
from roofwatch.collector.run import OnProgress, Progress
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.selection import Selected, Selection
from roofwatch.collector.workers.fork_server import Nursery
from roofwatch.collector.workers.worker import Worker

_SHARES_PER_DEVICE = 4
"""Few enough that starting is a small part of each, enough that a device that is quicker takes more, and that a machine
that is lost costs a fraction of what it was to do."""


def spread_run(
    suite: SuiteAt, plan: RunPlan, address: str, on_progress: OnProgress = lambda _: None, *, journal: Journal
) -> tuple[RunRecord, ...]:
    """Check, compile and time a suite at one commit on all devices of a Ray cluster.

    Args:
        suite: What to measure.
        plan: What of it, and how long.
        address: Of the cluster, as `ray.init` has it.
        on_progress: Called after every share.
        journal: Takes every share's result as it comes, and has those of a run that was cut short.

    Returns:
        A record for each kind of machine that took part.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        CollectorError: there is no such cluster, or it has nothing to measure on, or some shares came to nothing: what
            the others brought is in the journal.
        JournalError: a result cannot be kept.
    """
    on_progress(Progress(0, 0, "connecting to the cluster"))
    with Cluster(address, ship(suite)) as cluster:
        if not cluster.device_count:
            raise CollectorError(f"Ray cluster {address}: no machine of it has a GPU or a CPU to offer")
        device = plan.device or ("cuda" if cluster.has_gpus else "cpu")
        plan = replace(plan, device=device, usual_tag=plan.usual_tag or ("quick" if device == "cuda" else "small"))
        selected = _selected(suite, plan)
        records = [entry.share for entry in journal.entries(ALONE) if entry.share is not None]
        measured = {case.case_id for record in records for case in record.cases}
        shares = deal(
            [one for one in selected if one.case.case_id not in measured], _SHARES_PER_DEVICE * cluster.device_count
        )
        where = f"{cluster.device_count} {'GPU' if cluster.has_gpus else 'machine'}(s)"
        on_progress(Progress(0, len(shares), f"measuring on {where}"))
        failures = []
        for done_count, (share, result) in enumerate(cluster.measure(plan, shares), start=1):
            if isinstance(result, CollectorError):
                failures.append(f"{len(share.case_ids)} cases from {share.case_ids[0]}: {result}")
            else:
                journal.log().append({}, share=result)
                records.append(result)
            on_progress(Progress(done_count, len(shares), f"measured {share.case_ids[-1]}"))
    if failures:
        raise CollectorError(f"{len(failures)} of {len(shares)} shares came to nothing: {'; '.join(failures)}")
    position = {one.case.case_id: number for number, one in enumerate(selected)}
    records.sort(key=lambda record: position[record.cases[0].case_id])
    return join(records, journal.header.suites[ALONE].run_id)


def _selected(suite: SuiteAt, plan: RunPlan) -> tuple[Selected, ...]:
    with Nursery() as nursery, Worker(nursery, suite.source, device="cpu") as worker:
        info = worker.start()
    return Selection(plan.kernels, plan.implementations, plan.tags, plan.usual_tag, plan.cases).of(info)
