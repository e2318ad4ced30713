"""The processes of one suite: one worker, several that share many checks, or a group of ranks."""

from __future__ import annotations

import selectors
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from roofwatch.collector.accuracy.check_report import CheckReport
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import Accuracy
from roofwatch.collector.run_plan import Subject
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import (
    CheckAccuracy,
    CompileStatic,
    Failure,
    Job,
    Mode,
    RankPlace,
    Reply,
    SuiteInfo,
    TimeBlock,
)
from roofwatch.collector.workers.worker import Worker, must_restart

CaseJob = TypeVar("CaseJob", CheckAccuracy, CompileStatic)


def run_parallel(
    workers: Sequence[Worker], jobs: Sequence[CaseJob], *, group: Callable[[CaseJob], str], timeout_s: float
) -> Iterator[tuple[CaseJob, Reply, Worker]]:
    """Do all jobs, and yield each reply as it comes, with the worker that gave it.

    Args:
        workers: Each is started unless it runs.
        jobs: What to do.
        group: Jobs of one group share work, so one worker does them if it can; towards the end others help.
        timeout_s: For each job.

    Raises:
        SuiteError: the suite cannot be loaded.
    """
    waiting = list(jobs)
    busy: dict[Worker, tuple[CaseJob, float]] = {}
    latest: dict[Worker, str] = {}

    def begin(worker: Worker) -> None:
        taken = set(latest.values())
        of_own = (job for job in waiting if group(job) == latest.get(worker))
        of_none = (job for job in waiting if group(job) not in taken)
        job = next(chain(of_own, of_none), waiting[-1])
        waiting.remove(job)
        latest[worker] = group(job)
        worker.submit(job)
        busy[worker] = (job, time.monotonic() + timeout_s)

    with ThreadPoolExecutor(len(workers)) as pool:
        # each of them loads the suite
        list(pool.map(Worker.ensure_started, workers))
    for worker in workers[: len(waiting)]:
        begin(worker)
    while busy:
        for worker in _ready(busy):
            job, deadline = busy.pop(worker)
            if time.monotonic() > deadline:
                reply = Reply(failure=Failure(outcome=Outcome.TIMED_OUT, message=f"not done after {timeout_s:g} s"))
            else:
                reply = worker.collect(timeout_s=timeout_s)
            if must_restart(reply):
                worker.stop()
            yield job, reply, worker
            if waiting:
                begin(worker)


def _ready(busy: Mapping[Worker, tuple[Any, float]]) -> list[Worker]:
    """Workers that have replied or ended, or whose time is over; waits for the first."""
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            selector.register(worker, selectors.EVENT_READ, worker)
        soonest = min(deadline for _, deadline in busy.values())
        replied = [key.data for key, _ in selector.select(max(0.0, soonest - time.monotonic()))]
    now = time.monotonic()
    return replied or [worker for worker, (_, deadline) in busy.items() if deadline <= now]


_GRACE_S = 2.0
"""What the others may still take when one has failed: they may have failed too, or wait for it in vain."""

_MAX_MESSAGE = 2_000

WorkerAtRank = Callable[[RankPlace], Worker]


class ProcessGroup:
    """Ranks of one suite that find each other in a file of their own. A failure of one is the group's: it ends all of
    them, and the next job gets a fresh group.

    Args:
        rank_count: How many.
        worker_at: Makes the worker of a rank.
    """

    def __init__(self, rank_count: int, worker_at: WorkerAtRank) -> None:
        self._rank_count = rank_count
        self._worker_at = worker_at
        self._workers: tuple[Worker, ...] = ()
        self._resources = ExitStack()

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        """Have every rank do one job.

        Returns:
            One reply for all: the worst of them, which names its rank.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        if not self._workers:
            self._start()
        for worker in self._workers:
            worker.submit(job)
        replies = self._collect(timeout_s)
        # ranks that failed, or of which some failed, may not stand at the same collective any more
        if len(replies) < self._rank_count or not all(map(_leaves_in_step, replies.values())):
            self.stop()
        return combined(replies, self._rank_count, timeout_s)

    def kill(self) -> None:
        """Have the present job end at once, from any thread; whoever waits for the reply then cleans up."""
        for worker in self._workers:
            worker.kill()

    def stop(self) -> None:
        """End all ranks; safe to call again."""
        self._workers = ()
        self._resources.close()

    def _start(self) -> None:
        folder = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-ranks-"))
        places = [
            RankPlace(index=index, count=self._rank_count, rendezvous=Path(folder) / "rendezvous")
            for index in range(self._rank_count)
        ]
        workers = tuple(self._resources.enter_context(self._worker_at(place)) for place in places)
        try:
            with ThreadPoolExecutor(self._rank_count) as pool:
                for started in [pool.submit(worker.start) for worker in workers]:
                    started.result()
        except BaseException:
            self.stop()
            raise
        self._workers = workers

    def _collect(self, timeout_s: float) -> dict[int, Reply]:
        """The replies by rank, in the order that they came; without those that came too late."""
        replies: dict[int, Reply] = {}
        ends_at = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for rank, worker in enumerate(self._workers):
                selector.register(worker, selectors.EVENT_READ, rank)
            while len(replies) < self._rank_count:
                ready = selector.select(max(0.0, ends_at - time.monotonic()))
                if not ready:
                    break
                for key, _ in ready:
                    selector.unregister(key.fileobj)
                    replies[key.data] = self._workers[key.data].collect(timeout_s=timeout_s)
                    if _is_bad(replies[key.data]):
                        ends_at = min(ends_at, time.monotonic() + _GRACE_S)
        return replies


def combined(replies: Mapping[int, Reply], rank_count: int, timeout_s: float) -> Reply:
    """One reply for the whole group.

    Args:
        replies: By rank, in the order that they came: where several failed, the first is the cause.
        rank_count: Ranks that were asked.
        timeout_s: What they were given.
    """
    failures = {rank: reply.failure for rank, reply in replies.items() if reply.failure is not None}
    if failures:
        return Reply(failure=_combined_failure(failures, rank_count))
    late = [rank for rank in range(rank_count) if rank not in replies]
    if late and not any(map(_is_bad, replies.values())):
        message = f"{_ranks(late)}: not done after {timeout_s:g} s"
        return Reply(failure=Failure(outcome=Outcome.TIMED_OUT, message=message))
    # a block has the same samples on every rank, those of the slowest
    return _worst(replies)


def _combined_failure(failures: Mapping[int, Failure], rank_count: int) -> Failure:
    ranks_of: dict[str, list[int]] = {}
    for rank, failure in failures.items():
        ranks_of.setdefault(failure.message, []).append(rank)
    messages = [
        message if len(ranks) == rank_count else f"{_ranks(sorted(ranks))}: {message}"
        for message, ranks in ranks_of.items()
    ]
    first = next(iter(failures.values()))
    return Failure(outcome=first.outcome, message="; ".join(messages)[:_MAX_MESSAGE])


def _worst(replies: Mapping[int, Reply]) -> Reply:
    """The reply of the rank with the largest error, a bad one before all others."""

    def badness(rank: int) -> tuple[bool, float]:
        found = _verdict(replies[rank])
        tensors = found.tensors if isinstance(found, (Accuracy, CheckReport)) else ()
        return _is_bad(replies[rank]), max((tensor.rmse_ratio for tensor in tensors), default=0.0)

    rank = max(sorted(replies), key=badness)
    reply = replies[rank]
    found = _verdict(reply)
    if found is None or found.message is None:
        return reply
    named = {"message": f"rank {rank}: {found.message}"}
    if reply.accuracy is not None:
        return Reply(accuracy=reply.accuracy.model_copy(update=named))
    assert reply.fully_checked is not None
    report = reply.fully_checked.report.model_copy(update=named)
    return Reply(fully_checked=reply.fully_checked.model_copy(update={"report": report}))


def _verdict(reply: Reply) -> Accuracy | CheckReport | Failure | None:
    """What a rank says of the kernel; None of a reply that is no check."""
    checked = None if reply.fully_checked is None else reply.fully_checked.report
    return reply.failure or reply.accuracy or checked


def _outcome(reply: Reply) -> Outcome:
    found = _verdict(reply)
    return Outcome.OK if found is None else found.outcome


def _is_bad(reply: Reply) -> bool:
    return _outcome(reply) is not Outcome.OK


def _leaves_in_step(reply: Reply) -> bool:
    """Whether a rank stands where the others do, and may go on: one that found that it cannot do the job has not begun
    it.
    """
    return _outcome(reply) in {Outcome.OK, Outcome.UNSUPPORTED} and not must_restart(reply)


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


_MAY_BE_ITS_NEIGHBOURS = frozenset({Outcome.OUT_OF_MEMORY, Outcome.CRASHED})
"""A process that the system kills for want of memory has crashed too."""


class WorkerPool:
    """Does the jobs of one suite. A group of ranks starts with its first job, and stays for the next.

    Args:
        fork_server: Forks the processes.
        source: The suite.
        mode: On the device, or in Triton's interpreter.
        device: `cpu` or `cuda`; None lets the processes see which there is.
        thread_count: Threads that torch may use in each; None leaves torch's default.
        cache_folder: Of their own for what they compile and tune; None shares the user's.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        source: SuiteSource,
        mode: Mode = Mode.DEVICE,
        *,
        device: str | None = None,
        thread_count: int | None = None,
        cache_folder: Path | None = None,
    ) -> None:
        def worker_at(place: RankPlace | None, memory_share: float) -> Worker:
            return Worker(
                fork_server,
                source,
                mode,
                device=device,
                thread_count=thread_count,
                rank=place,
                memory_share=memory_share,
                cache_folder=cache_folder,
            )

        self._worker_at = worker_at
        self._alone = worker_at(None, 1.0)
        self._parallel_workers: list[Worker] = []
        self._checked_by: dict[Subject, Worker] = {}
        self._groups: dict[int, ProcessGroup] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> SuiteInfo:
        """Start the worker that works alone, and load the suite.

        Raises:
            SuiteError: the suite cannot be loaded; the message says why.
        """
        return self._alone.start()

    def request(self, job: Job, *, timeout_s: float, rank_count: int = 1) -> Reply:
        """Have one job done, by as many ranks as it needs.

        Returns:
            The reply; a `failure` where the kernel failed, crashed a process or ran longer than `timeout_s`.
        """
        if rank_count == 1:
            return self._request_of_one(job, timeout_s)
        if rank_count not in self._groups:
            self._groups[rank_count] = ProcessGroup(rank_count, lambda place: self._worker_at(place, 1 / place.count))
        return self._groups[rank_count].request(job, timeout_s=timeout_s)

    def check_all(
        self, rank_counts: Mapping[Subject, int], *, worker_count: int, timeout_s: float
    ) -> Generator[tuple[Subject, Reply], None, None]:
        """Check many subjects: in parallel if more than one worker may, each with its share of the memory. Each worker
        then also times what it checked and so has compiled, one at a time.

        What runs out of memory or crashes may do so because of what runs beside it: it is checked once more, alone.

        Args:
            rank_counts: What to check, and the processes that each takes.
            worker_count: The most processes that check in parallel.
            timeout_s: For each check.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        jobs = {subject: CheckAccuracy(**subject.named) for subject in rank_counts}
        of_one = [job for subject, job in jobs.items() if rank_counts[subject] == 1]
        count = min(worker_count, len(of_one))
        if count > 1:
            self._parallel_workers = [self._worker_at(None, 1 / count) for _ in range(count)]
            # a case's implementations share its inputs, its reference and its baseline
            checked = run_parallel(self._parallel_workers, of_one, group=lambda job: job.case_id, timeout_s=timeout_s)
            for job, reply, worker in checked:
                if not _may_be_its_neighbours(reply):
                    subject = Subject(job.case_id, job.implementation)
                    del jobs[subject]
                    self._checked_by[subject] = worker
                    yield subject, reply
        for subject, job in jobs.items():
            yield subject, self.request(job, timeout_s=timeout_s, rank_count=rank_counts[subject])

    def _request_of_one(self, job: Job, timeout_s: float) -> Reply:
        """By the worker that checked the same, which has it compiled; where that fails as `check_all` says, alone."""
        checker = self._checked_by.get(Subject(job.case_id, job.implementation)) if isinstance(job, TimeBlock) else None
        if checker is not None:
            reply = checker.request(job, timeout_s=timeout_s)
            if not _may_be_its_neighbours(reply):
                return reply
        return self._alone.request(job, timeout_s=timeout_s)

    def kill(self) -> None:
        """Have the present job end at once, from any thread; whoever waits for the reply then cleans up."""
        for group in tuple(self._groups.values()):
            group.kill()
        for worker in (*self._parallel_workers, self._alone):
            worker.kill()

    def stop(self) -> None:
        """End all processes; safe to call again."""
        for group in self._groups.values():
            group.stop()
        for worker in (*self._parallel_workers, self._alone):
            worker.stop()


def _may_be_its_neighbours(reply: Reply) -> bool:
    return reply.failure is not None and reply.failure.outcome in _MAY_BE_ITS_NEIGHBOURS
