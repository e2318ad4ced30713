"""Compile many cases side by side, one worker for each core."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from collector.part import Outcome
from collector.protocol import CompileStatic, Failure, Reply
from collector.results import StaticFacts
from collector.selection import Subject
from collector.worker import Worker


@dataclass(frozen=True)
class Compilation:
    """A case and an implementation, and what to compile them for."""

    subject: Subject
    targets: tuple[str, ...]

    @property
    def kernel(self) -> str:
        return self.subject.case_id.partition("/")[0]

    @property
    def job(self) -> CompileStatic:
        return CompileStatic(
            case_id=self.subject.case_id, implementation=self.subject.implementation, targets=self.targets
        )


def compile_in_parallel(
    workers: Sequence[Worker], compilations: Sequence[Compilation], *, timeout_s: float
) -> Iterator[tuple[Compilation, Reply]]:
    """Have all of it compiled, and yield each reply as it comes.

    A worker that has begun with a kernel goes on with it, as its cases have code in common that is then compiled once;
    towards the end it helps another.

    Args:
        workers: Each is started if it has not been.
        compilations: What to compile.
        timeout_s: For each of them.

    Raises:
        SuiteError: the suite cannot be loaded.
    """
    waiting = list(compilations)
    busy: dict[Worker, tuple[Compilation, float]] = {}
    latest: dict[Worker, str] = {}

    def begin(worker: Worker) -> None:
        others = {kernel for other, kernel in latest.items() if other is not worker}
        compilation = _next(waiting, latest.get(worker), others)
        waiting.remove(compilation)
        latest[worker] = compilation.kernel
        worker.submit(compilation.job)
        busy[worker] = (compilation, time.monotonic() + timeout_s)

    with ThreadPoolExecutor(len(workers)) as pool:
        # each of them loads the suite
        list(pool.map(Worker.ensure_started, workers))
    for worker in workers[: len(waiting)]:
        begin(worker)
    while busy:
        for worker in _ready(busy):
            compilation, deadline = busy.pop(worker)
            if time.monotonic() > deadline:
                reply = Reply(failure=Failure(outcome=Outcome.TIMED_OUT, message=f"not done after {timeout_s:g} s"))
            else:
                reply = worker.collect(timeout_s=timeout_s)
            if reply.failure is not None:
                worker.stop()  # it may be in any state
            yield compilation, reply
            if waiting:
                begin(worker)


def _next(waiting: Sequence[Compilation], own: str | None, others: set[str]) -> Compilation:
    """Of the worker's own kernel, else of one that no other worker has begun with, else whichever is left."""
    ranked = (
        lambda compilation: compilation.kernel == own,
        lambda compilation: compilation.kernel not in others,
    )
    for wanted in ranked:
        for compilation in waiting:
            if wanted(compilation):
                return compilation
    return waiting[-1]


def _ready(busy: dict[Worker, tuple[Compilation, float]]) -> list[Worker]:
    """Workers that have replied or ended, or whose time is over; waits for the first."""
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker, selectors.EVENT_READ, worker)
        soonest = min(deadline for _, deadline in busy.values())
        replied = [key.data for key, _ in selector.select(max(0.0, soonest - time.monotonic()))]
    now = time.monotonic()
    return replied or [worker for worker, (_, deadline) in busy.items() if deadline <= now]


def failed_facts(subject: Subject, target: str, failure: Failure) -> StaticFacts:
    """What stands for the facts of a case that could not be compiled at all."""
    return StaticFacts(
        case_id=subject.case_id,
        implementation=subject.implementation,
        function=subject.implementation,
        target=target,
        outcome=failure.outcome,
        message=failure.message,
    )
