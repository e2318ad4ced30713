"""The workers of one suite: they do jobs alone, in parallel, or as a group of ranks."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Self, TypeVar

from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker import Worker
from roofwatch.model.machine import Outcome
from roofwatch.model.worker_protocol import (
    CaseJob,
    CheckAccuracy,
    CompileAhead,
    CompileStatic,
    Failure,
    Job,
    LoadedModule,
    ProveCase,
    Reply,
    Subject,
    SuiteInfo,
    WorkerSettings,
)

SomeJob = TypeVar("SomeJob", CheckAccuracy, CompileAhead, CompileStatic, ProveCase)


OnBegin = Callable[[Subject], None]


class WorkerPool:
    """Does the jobs of one suite."""

    def __init__(self, fork_server: ForkServer, settings: WorkerSettings) -> None:
        self.fork_server = fork_server
        self.settings = settings
        self.gpu_count: int | None = None
        """Of this machine; None on a CPU, or if it is not known yet."""
        self._by_rank_count: dict[int, Worker] = {}
        self._parallel: list[Worker] = []
        self._done_by: dict[Subject, Worker] = {}
        """The parallel worker of a case and implementation, which has it compiled."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> SuiteInfo:
        """Start a worker and load the suite.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        return self._worker(1).start()

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        """Do one job in as many processes as it needs, where it was checked if possible.

        Returns:
            The reply; a failure if the kernel failed, crashed a process or took longer than
            `timeout_s`.
        """
        rank_count = 1
        if isinstance(job, CaseJob):
            rank_count = job.rank_count
            if (worker := self._done_by.get(job.subject)) is not None:
                reply = worker.request(job, timeout_s=timeout_s)
                if not _may_lack_memory(reply):
                    return reply
        # processes with a context each would only say the same
        if self.gpu_count is not None and rank_count > max(self.gpu_count, 1):
            message = f"needs {rank_count} GPUs, one per rank; torch sees {self.gpu_count}"
            return Reply(failure=Failure(outcome=Outcome.UNSUPPORTED, message=message))
        return self._worker(rank_count).request(job, timeout_s=timeout_s)

    def do_all(
        self,
        jobs: Sequence[SomeJob],
        *,
        worker_count: int,
        timeout_s: float,
        on_begin: OnBegin = lambda _: None,
    ) -> Generator[tuple[SomeJob, Reply], None, None]:
        """Do jobs, several at once if `worker_count` is above 1, and yield each reply as it
        arrives.

        A job that crashes or runs out of memory beside others is repeated alone: they may have used
        the memory.

        Args:
            jobs: Those of one group share work, so one worker does them if possible.
            worker_count: Maximum number of parallel workers.
            timeout_s: For each job.
            on_begin: Called when a job begins.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        parallel = [job for job in jobs if job.rank_count == 1]
        count = min(worker_count, len(parallel))
        if count < 2:
            alone = list(jobs)
        else:
            alone = [job for job in jobs if job.rank_count > 1]
        if count > 1:
            settings = self.settings.model_copy(update={"memory_share": 1 / count})
            workers = [Worker(self.fork_server, settings) for _ in range(count)]
            self._parallel += workers
            for job, reply, worker in _do_parallel(
                workers=workers,
                jobs=parallel,
                timeout_s=timeout_s,
                on_begin=on_begin,
            ):
                if _may_lack_memory(reply):
                    alone.append(job)
                else:
                    self._done_by[job.subject] = worker
                    yield job, reply
        for job in alone:
            on_begin(job.subject)
            yield job, self.request(job, timeout_s=timeout_s)

    @property
    def python(self) -> Path | None:
        """Interpreter of the suite's own environment, if it has one."""
        return self.settings.source.python

    @property
    def loaded(self) -> set[LoadedModule]:
        """Files of the project that any worker has loaded."""
        return {module for worker in self._workers for module in worker.loaded}

    @property
    def tracing_ns(self) -> int:
        """Time that workers have spent to find them."""
        return sum(worker.tracing_ns for worker in self._workers)

    @property
    def _workers(self) -> list[Worker]:
        return [*self._by_rank_count.values(), *self._parallel]

    def stop(self) -> None:
        """End all processes; the next job starts a new one."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.stop()
        self._done_by.clear()

    def _worker(self, rank_count: int) -> Worker:
        if rank_count not in self._by_rank_count:
            self._by_rank_count[rank_count] = Worker(
                fork_server=self.fork_server,
                settings=self.settings,
                rank_count=rank_count,
            )
        return self._by_rank_count[rank_count]


def _do_parallel(
    workers: Sequence[Worker],
    jobs: Sequence[SomeJob],
    timeout_s: float,
    on_begin: OnBegin,
) -> Iterator[tuple[SomeJob, Reply, Worker]]:
    """Do jobs in several workers; jobs of one group go to the same worker if they can."""
    waiting = list(jobs)
    running: dict[Future[Reply], tuple[SomeJob, Worker]] = {}
    latest_group: dict[Worker, str] = {}
    with ThreadPoolExecutor(len(workers)) as pool:

        def begin(worker: Worker) -> None:
            """Give a worker its next job: of its group, of a new one, or the last that waits."""
            same_group = [job for job in waiting if job.group == latest_group.get(worker)]
            new = [job for job in waiting if job.group not in latest_group.values()]
            job = (same_group or new or waiting[-1:])[0]
            waiting.remove(job)
            latest_group[worker] = job.group
            on_begin(job.subject)
            running[pool.submit(worker.request, job, timeout_s=timeout_s)] = (job, worker)

        try:
            for worker in workers:
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


def _may_lack_memory(reply: Reply) -> bool:
    """Whether other processes may be the cause: the system kills processes when memory runs out."""
    return reply.failure is not None and reply.failure.outcome in {
        Outcome.OUT_OF_MEMORY,
        Outcome.CRASHED,
    }
