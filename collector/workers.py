"""The processes of one suite: a worker for most kernels, and groups of ranks for those that several launch together."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from collector.nursery import Nursery
from collector.protocol import Job, Mode, RankPlace, Reply, SuiteInfo
from collector.rank_group import RankGroup
from collector.suite_source import SuiteSource
from collector.worker import Worker


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
        def worker_at(place: RankPlace | None) -> Worker:
            return Worker(
                nursery,
                source,
                mode,
                device=device,
                thread_count=thread_count,
                rank=place,
                cache_folder=cache_folder,
            )

        self._worker_at = worker_at
        self._alone = worker_at(None)
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
            return self._alone.request(job, timeout_s=timeout_s)
        if rank_count not in self._groups:
            self._groups[rank_count] = RankGroup(rank_count, self._worker_at)
        return self._groups[rank_count].request(job, timeout_s=timeout_s)

    def kill(self) -> None:
        """Have the present job end at once, from any thread; whoever waits for the reply then cleans up."""
        for group in tuple(self._groups.values()):
            group.kill()
        self._alone.kill()

    def stop(self) -> None:
        """End all processes; safe to call again."""
        for group in self._groups.values():
            group.stop()
        self._alone.stop()
