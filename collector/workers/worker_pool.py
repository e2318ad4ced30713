"""The processes of one suite: a worker for most kernels, and groups of ranks for those that several launch together."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from roofwatch.collector.accuracy.case_check import CaseCheck
from roofwatch.collector.record.part import Outcome
from roofwatch.collector.selection import Subject
from roofwatch.collector.suite_source import SuiteSource
from roofwatch.collector.workers.fork_server import Nursery
from roofwatch.collector.workers.parallel import done_side_by_side
from roofwatch.collector.workers.process_group import RankGroup
from roofwatch.collector.workers.protocol import Job, Mode, RankPlace, Reply, SuiteInfo, TimeBlock
from roofwatch.collector.workers.worker import Worker

_MAY_BE_ITS_NEIGHBOURS = frozenset({Outcome.OUT_OF_MEMORY, Outcome.CRASHED})
"""A process that the system kills for want of memory has crashed too."""


class Workers:
    """Does the jobs of one suite. A group of ranks starts with its first job, and stays for the next.

    Args:
        nursery: Forks the processes.
        source: The suite.
        mode: On the device, or in Triton's interpreter.
        device: `cpu` or `cuda`; None lets the processes see which there is.
        thread_count: Threads that torch may use in each; None leaves torch's default.
        cache_folder: Of their own for what they compile and tune; None shares the user's.
    """

    def __init__(
        self,
        nursery: Nursery,
        source: SuiteSource,
        mode: Mode = Mode.DEVICE,
        *,
        device: str | None = None,
        thread_count: int | None = None,
        cache_folder: Path | None = None,
    ) -> None:
        def worker_at(place: RankPlace | None, memory_share: float) -> Worker:
            return Worker(
                nursery,
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
        self._crew: list[Worker] = []
        self._checked_by: dict[Subject, Worker] = {}
        self._groups: dict[int, RankGroup] = {}

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
            self._groups[rank_count] = RankGroup(rank_count, lambda place: self._worker_at(place, 1 / place.count))
        return self._groups[rank_count].request(job, timeout_s=timeout_s)

    def each(
        self, checks: Sequence[CaseCheck], *, worker_count: int, timeout_s: float
    ) -> Generator[tuple[CaseCheck, Reply], None, None]:
        """Have many checks done: side by side if more than one worker may, each with its share of the memory. Each
        worker then does the other jobs of what it checked, one at a time as ever: what it compiled need not be made
        again.

        What fails for want of memory or crashes may do so because of its neighbours: it is checked once more, alone.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        left = list(checks)
        of_one = [check for check in checks if check.rank_count == 1]
        count = min(worker_count, len(of_one))
        if count > 1:
            self._crew = [self._worker_at(None, 1 / count) for _ in range(count)]
            for check, reply, worker in done_side_by_side(self._crew, of_one, timeout_s=timeout_s):
                if not _may_be_its_neighbours(reply):
                    left.remove(check)
                    self._checked_by[check.subject] = worker
                    yield check, reply
        for check in left:
            yield check, self.request(check.job, timeout_s=timeout_s, rank_count=check.rank_count)

    def _request_of_one(self, job: Job, timeout_s: float) -> Reply:
        """By the worker that checked the same, which has it compiled; where that fails as `each` says, alone."""
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
        for worker in (*self._crew, self._alone):
            worker.kill()

    def stop(self) -> None:
        """End all processes; safe to call again."""
        for group in self._groups.values():
            group.stop()
        for worker in (*self._crew, self._alone):
            worker.stop()


def _may_be_its_neighbours(reply: Reply) -> bool:
    return reply.failure is not None and reply.failure.outcome in _MAY_BE_ITS_NEIGHBOURS
