"""How a run takes its times: asked of a worker, once for all, before anything is measured."""

from __future__ import annotations

from collections.abc import Collection

from roofwatch.collector.errors import TimerError
from roofwatch.collector.machine_error import machine_error
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.timing.case_timing import CaseTiming
from roofwatch.collector.timing.method import ChosenMethod
from roofwatch.collector.workers.protocol import ChooseTiming
from roofwatch.collector.workers.worker_pool import Workers


def choose_timing(
    workers: Workers, plan: RunPlan, device: str, *, earlier: CaseTiming | None, touched_bytes: Collection[float]
) -> ChosenMethod:
    """The method that the plan asks for, or that an earlier process of the same run took.

    Args:
        workers: One of them tries it out.
        plan: What is asked for.
        device: `cpu` or `cuda`.
        earlier: A measurement of the run that has blocks; None if there is none.
        touched_bytes: Of a launch of each case that is to be timed. None of a share of a run, all of whose shares are
            timed alike, whatever cases one of them holds.

    Raises:
        TimerError: it is not to be had here.
        CollectorError: the worker cannot say.
    """
    timer, cache = (plan.timer, plan.cache) if earlier is None else (earlier.timer, earlier.cache)
    job = ChooseTiming(timer=timer, cache=cache, touched_bytes=tuple(sorted(set(touched_bytes))))
    reply = workers.request(job, timeout_s=plan.environment_timeout_s)
    if reply.timing is None:
        raise machine_error("no timer can be chosen", reply.failure, device)
    if reply.timing.chosen is None:
        raise TimerError(reply.timing.error)
    return reply.timing.chosen
