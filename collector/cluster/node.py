"""What happens on a machine of the cluster: one share is measured there, as `roofwatch run` would."""

from __future__ import annotations

from pathlib import Path

from roofwatch.collector.cluster.share import Share
from roofwatch.collector.cluster.shipped_suite import ShippedSuite
from roofwatch.collector.run import collect_run
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.workers.fork_server import Nursery


def measure_share(suite: ShippedSuite, plan: RunPlan, share: Share) -> bytes:
    """Measure one share in the current folder, which holds what travelled.

    Returns:
        The record as JSON.

    Raises:
        CollectorError: this machine cannot measure it.
    """
    with Nursery() as nursery:
        return collect_run(suite.unpacked(Path.cwd()), share.plan(plan), nursery=nursery).to_json()
