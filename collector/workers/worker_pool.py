"""The worker processes of one suite: a single worker, parallel workers, and groups of ranks."""

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TypeVar

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.run_plan import Subject
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.protocol import (
    CheckAccuracy,
    CompileStatic,
    Failure,
    Job,
    RankPlace,
    Reply,
    SuiteInfo,
    TimeBlock,
    WorkerSettings,
)
from roofwatch.collector.workers.worker import Worker, must_restart

CaseJob = TypeVar("CaseJob", CheckAccuracy, CompileStatic)

_GRACE_S = 2.0
"""Time that the other ranks have to finish after one has failed."""
_MAX_MESSAGE_LENGTH = 2_000


def run_parallel(
    workers: Sequence[Worker], jobs: Sequence[CaseJob], *, group: Callable[[CaseJob], str], timeout_s: float
) -> Iterator[tuple[CaseJob, Reply, Worker]]:
    """Do all jobs, and yield each reply as it arrives, with its worker.

    Args:
        workers: Each is started if needed.
        jobs: What to do.
        group: Jobs of one group share work, so one worker does them if possible.
        timeout_s: For each job.

    Raises:
        SuiteError: the suite cannot be loaded.
    """
    waiting = list(jobs)
    running: dict[Future[Reply], tuple[CaseJob, Worker]] = {}
    latest_group: dict[Worker, str] = {}
    with ThreadPoolExecutor(len(workers)) as pool:

        def begin(worker: Worker) -> None:
            own = [job for job in waiting if group(job) == latest_group.get(worker)]
            new = [job for job in waiting if group(job) not in latest_group.values()]
            job = (own or new or waiting[-1:])[0]
            waiting.remove(job)
            latest_group[worker] = group(job)
            running[pool.submit(worker.request, job, timeout_s=timeout_s)] = (job, worker)

        try:
            list(pool.map(Worker.ensure_started, workers))
            for worker in workers[: len(waiting)]:
                begin(worker)
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    job, worker = running.pop(future)
                    yield job, future.result(), worker
                    if waiting:
                        begin(worker)
        except BaseException:
            for worker in workers:
                worker.kill()
            raise


class RankGroup:
    """Workers that do every job together, one per rank. If one fails, all are restarted.

    Args:
        rank_count: Number of ranks.
        make_worker: Makes the worker of a rank.
    """

    def __init__(self, rank_count: int, make_worker: Callable[[RankPlace], Worker]) -> None:
        self._rank_count = rank_count
        self._make_worker = make_worker
        self._workers: tuple[Worker, ...] = ()
        self._resources = ExitStack()

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        """Do one job on every rank, and return the worst reply, with the name of its rank.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        if not self._workers:
            folder = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-ranks-"))
            rendezvous = Path(folder) / "rendezvous"
            places = [
                RankPlace(index=i, count=self._rank_count, rendezvous=rendezvous) for i in range(self._rank_count)
            ]
            self._workers = tuple(self._resources.enter_context(self._make_worker(place)) for place in places)
        replies: dict[int, Reply] = {}
        with ThreadPoolExecutor(self._rank_count) as pool:
            list(pool.map(Worker.ensure_started, self._workers))
            running = {
                pool.submit(worker.ask, job, timeout_s=timeout_s): rank for rank, worker in enumerate(self._workers)
            }
            try:
                while running:
                    limit_s = _GRACE_S if any(map(_is_bad, replies.values())) else None
                    done, _ = wait(running, timeout=limit_s, return_when=FIRST_COMPLETED)
                    if not done:
                        break
                    for future in done:
                        replies[running.pop(future)] = future.result()
            finally:
                if running:
                    self.kill()
        # after a failure the ranks may be at different collectives
        if len(replies) < self._rank_count or not all(map(_is_in_step, replies.values())):
            self.stop()
        return combined(replies, self._rank_count)

    def kill(self) -> None:
        """End the current job at once, from any thread."""
        for worker in self._workers:
            worker.kill()

    def stop(self) -> None:
        """End all ranks."""
        self._workers = ()
        self._resources.close()


def combined(replies: Mapping[int, Reply], rank_count: int) -> Reply:
    """Combine replies by rank, in order of arrival, into one.

    The first failure is the cause. Without a failure, the reply with the largest error counts. The samples of a block
    are equal on all ranks.
    """
    failures = {rank: reply.failure for rank, reply in replies.items() if reply.failure is not None}
    if failures:
        ranks_of: dict[str, list[int]] = {}
        for rank, failure in failures.items():
            ranks_of.setdefault(failure.message, []).append(rank)
        messages = (
            message if len(ranks) == rank_count else f"{_ranks(ranks)}: {message}"
            for message, ranks in ranks_of.items()
        )
        first = next(iter(failures.values()))
        return Reply(failure=Failure(outcome=first.outcome, message="; ".join(messages)[:_MAX_MESSAGE_LENGTH]))

    def badness(rank: int) -> tuple[bool, float]:
        checked = replies[rank].checked
        tensors = () if checked is None else checked.report.tensors
        return _is_bad(replies[rank]), max((tensor.rmse_ratio for tensor in tensors), default=0.0)

    rank = max(sorted(replies), key=badness)
    reply = replies[rank]
    if reply.checked is None or reply.checked.report.message is None:
        return reply
    report = reply.checked.report
    report = report.model_copy(update={"message": f"rank {rank}: {report.message}"})
    return Reply(checked=reply.checked.model_copy(update={"report": report}))


def _outcome(reply: Reply) -> Outcome:
    if reply.failure is not None:
        return reply.failure.outcome
    return Outcome.OK if reply.checked is None else reply.checked.report.outcome


def _is_bad(reply: Reply) -> bool:
    return _outcome(reply) is not Outcome.OK


def _is_in_step(reply: Reply) -> bool:
    """Whether the rank can go on with the others. An unsupported job was never begun."""
    return _outcome(reply) in {Outcome.OK, Outcome.UNSUPPORTED} and not must_restart(reply)


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}"


class WorkerPool:
    """Does the jobs of one suite.

    Args:
        fork_server: Forks the processes.
        settings: Settings of each worker.
    """

    def __init__(self, fork_server: ForkServer, settings: WorkerSettings) -> None:
        self._fork_server = fork_server
        self._settings = settings
        self._single = Worker(fork_server, settings)
        self._parallel: list[Worker] = []
        self._checked_by: dict[Subject, Worker] = {}
        self._groups: dict[int, RankGroup] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> SuiteInfo:
        """Start the single worker and load the suite.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        return self._single.start()

    def request(self, job: Job, *, timeout_s: float, rank_count: int = 1) -> Reply:
        """Do one job on as many ranks as it needs.

        Returns:
            The reply; a failure if the kernel failed, crashed a process or took longer than `timeout_s`.
        """
        if rank_count > 1:
            if rank_count not in self._groups:
                self._groups[rank_count] = RankGroup(rank_count, self._rank_worker)
            return self._groups[rank_count].request(job, timeout_s=timeout_s)
        if isinstance(job, TimeBlock) and (subject := Subject(job.case_id, job.implementation)) in self._checked_by:
            # the worker that checked it has it compiled
            reply = self._checked_by[subject].request(job, timeout_s=timeout_s)
            if not _may_lack_memory(reply):
                return reply
        return self._single.request(job, timeout_s=timeout_s)

    def check_all(
        self, rank_counts: Mapping[Subject, int], *, worker_count: int, timeout_s: float
    ) -> Generator[tuple[Subject, Reply], None, None]:
        """Check subjects, in parallel if `worker_count` is above 1. The worker that checked a subject also times it.

        A parallel check that crashes or runs out of memory is repeated alone: its neighbours may have used the memory.

        Args:
            rank_counts: Subjects to check, with the number of processes that each needs.
            worker_count: Maximum number of parallel workers.
            timeout_s: For each check.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        jobs = {subject: CheckAccuracy(**subject.named) for subject in rank_counts}
        single = [job for subject, job in jobs.items() if rank_counts[subject] == 1]
        count = min(worker_count, len(single))
        if count > 1:
            settings = self._settings.model_copy(update={"memory_share": 1 / count})
            self._parallel = [Worker(self._fork_server, settings) for _ in range(count)]
            # implementations of a case share inputs, reference and baseline
            checked = run_parallel(self._parallel, single, group=lambda job: job.case_id, timeout_s=timeout_s)
            for job, reply, worker in checked:
                if not _may_lack_memory(reply):
                    subject = Subject(job.case_id, job.implementation)
                    del jobs[subject]
                    self._checked_by[subject] = worker
                    yield subject, reply
        for subject, job in jobs.items():
            yield subject, self.request(job, timeout_s=timeout_s, rank_count=rank_counts[subject])

    def load_compilers(self) -> None:
        """Load what every compilation needs, once for all workers that are started later."""
        self._fork_server.load("triton")

    def compile_all(
        self, jobs: Sequence[CompileStatic], *, worker_count: int, timeout_s: float
    ) -> Iterator[tuple[CompileStatic, Reply]]:
        """Compile in parallel. Cases of a kernel go to one worker: they share code, which is compiled once.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        count = min(worker_count, len(jobs)) - 1
        self._parallel = [Worker(self._fork_server, self._settings) for _ in range(count)]
        workers = [self._single, *self._parallel]
        compiled = run_parallel(workers, jobs, group=lambda job: job.case_id.partition("/")[0], timeout_s=timeout_s)
        for job, reply, _ in compiled:
            yield job, reply

    def stop(self) -> None:
        """End all processes; the next job starts new ones."""
        for worker in (self._single, *self._parallel):
            worker.stop()
        for group in self._groups.values():
            group.stop()

    def _rank_worker(self, place: RankPlace) -> Worker:
        settings = self._settings.model_copy(update={"rank": place, "memory_share": 1 / place.count})
        return Worker(self._fork_server, settings)


def _may_lack_memory(reply: Reply) -> bool:
    """Whether other processes may be the cause: the system kills processes when memory runs out."""
    return reply.failure is not None and reply.failure.outcome in {Outcome.OUT_OF_MEMORY, Outcome.CRASHED}
