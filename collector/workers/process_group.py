"""Workers that do every job together, one rank each: what several processes must launch at the same time."""

from __future__ import annotations

import selectors
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from roofwatch.collector.accuracy.check_report import CheckReport
from roofwatch.collector.record.part import Outcome
from roofwatch.collector.record.results import Accuracy
from roofwatch.collector.workers.protocol import Failure, Job, RankPlace, Reply
from roofwatch.collector.workers.worker import Worker, has_spoilt

_GRACE_S = 2.0
"""What the others may still take when one has failed: they may have failed too, or wait for it in vain."""

_MAX_MESSAGE = 2_000

WorkerAtRank = Callable[[RankPlace], Worker]


class RankGroup:
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
    return _outcome(reply) in {Outcome.OK, Outcome.UNSUPPORTED} and not has_spoilt(reply)


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
