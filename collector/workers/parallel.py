"""Have many tasks done side by side, by one worker for each core."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from roofwatch.collector.record.part import Outcome
from roofwatch.collector.workers.protocol import Failure, Job, Reply
from roofwatch.collector.workers.worker import Worker, has_spoilt


class Task(Protocol):
    """One job of many that any worker may do."""

    @property
    def job(self) -> Job: ...

    @property
    def group(self) -> str:
        """Tasks of one group have work in common, which a worker does once."""


AnyTask = TypeVar("AnyTask", bound=Task)


def done_side_by_side(
    workers: Sequence[Worker], tasks: Sequence[AnyTask], *, timeout_s: float
) -> Iterator[tuple[AnyTask, Reply, Worker]]:
    """Have all of them done, and yield each reply as it comes, with the worker that gave it.

    A worker that has begun with a group goes on with it; towards the end it helps another.

    Args:
        workers: Each is started if it has not been.
        tasks: What to do.
        timeout_s: For each of them.

    Raises:
        SuiteError: the suite cannot be loaded.
    """
    waiting = list(tasks)
    busy: dict[Worker, tuple[AnyTask, float]] = {}
    latest: dict[Worker, str] = {}

    def begin(worker: Worker) -> None:
        others = {group for other, group in latest.items() if other is not worker}
        task = _next(waiting, latest.get(worker), others)
        waiting.remove(task)
        latest[worker] = task.group
        worker.submit(task.job)
        busy[worker] = (task, time.monotonic() + timeout_s)

    with ThreadPoolExecutor(len(workers)) as pool:
        # each of them loads the suite
        list(pool.map(Worker.ensure_started, workers))
    for worker in workers[: len(waiting)]:
        begin(worker)
    while busy:
        for worker in _ready(busy):
            task, deadline = busy.pop(worker)
            if time.monotonic() > deadline:
                reply = Reply(failure=Failure(outcome=Outcome.TIMED_OUT, message=f"not done after {timeout_s:g} s"))
            else:
                reply = worker.collect(timeout_s=timeout_s)
            if has_spoilt(reply):
                worker.stop()
            yield task, reply, worker
            if waiting:
                begin(worker)


def _next(waiting: Sequence[AnyTask], own: str | None, others: set[str]) -> AnyTask:
    """Of the worker's own group, else of one that no other worker has begun with, else whichever is left."""
    ranked = (
        lambda task: task.group == own,
        lambda task: task.group not in others,
    )
    for wanted in ranked:
        for task in waiting:
            if wanted(task):
                return task
    return waiting[-1]


def _ready(busy: dict[Worker, tuple[AnyTask, float]]) -> list[Worker]:
    """Workers that have replied or ended, or whose time is over; waits for the first."""
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker, selectors.EVENT_READ, worker)
        soonest = min(deadline for _, deadline in busy.values())
        replied = [key.data for key, _ in selector.select(max(0.0, soonest - time.monotonic()))]
    now = time.monotonic()
    return replied or [worker for worker, (_, deadline) in busy.items() if deadline <= now]
