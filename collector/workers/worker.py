"""Worker processes as the collector sees them: started when needed, ended when they hang, replaced
when they die.
"""

import contextlib
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from roofwatch.collector.redaction import Redaction, redact
from roofwatch.collector.workers.fork_server import ForkServer, read_tail
from roofwatch.model.check_report import TensorReport
from roofwatch.model.errors import SuiteError
from roofwatch.model.grouping import group_by
from roofwatch.model.machine import Outcome
from roofwatch.model.worker_mode import Mode
from roofwatch.model.worker_protocol import (
    CaseJob,
    Failure,
    Job,
    LoadedModule,
    RankPlace,
    Reply,
    SuiteInfo,
    TimeBlock,
    WorkerSettings,
)

_START_TIMEOUT_S = 180.0
_KILL_TIMEOUT_S = 5.0
_GRACE_S = 2.0
"""Time that the other ranks have to finish after one has failed."""
_MAX_REPLY_BYTES = 256 * 2**20
"""A kernel may write into the pipe of its worker without end."""
_MAX_MESSAGE_LENGTH = 2_000
_ADVICE = "; --timeout allows more for a slow kernel that does not hang"

_RESTART_AFTER = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY})
"""Outcomes after which a process or its GPU context may be broken."""


class Worker:
    """Loads one suite and does one job after another, in one process per rank."""

    def __init__(
        self,
        fork_server: ForkServer,
        settings: WorkerSettings,
        rank_count: int = 1,
    ) -> None:
        self._fork_server = fork_server
        self._settings = settings
        self._rank_count = rank_count
        self._redaction = Redaction.of_this_machine()
        self._processes: list[_Process] = []
        self._resources = contextlib.ExitStack()
        self.loaded: set[LoadedModule] = set()
        """Files of the project that any of its processes has loaded."""
        self.tracing_ns = 0
        """Time that its processes have spent to find them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> SuiteInfo:
        """Start the processes and load the suite.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        self.stop()
        try:
            for settings in self._settings_by_rank():
                process = _Process(
                    fork_server=self._fork_server,
                    mode=settings.mode,
                    python=settings.source.python,
                )
                self._processes.append(process)
                process.send(settings.model_dump_json())
            replies = self._receive(_START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        suites = [reply.suite for reply in replies.values() if reply.suite is not None]
        failed = next((reply for reply in replies.values() if reply.suite is None), None)
        if failed is None:
            return suites[0]
        self.stop()
        raise SuiteError(failed.error or self._describe_failed_start(failed))

    def _describe_failed_start(self, reply: Reply) -> str:
        """Why the suite could not be loaded, in words."""
        path = self._settings.source.path
        name = "roofwatch's own suite"
        if path is not None:
            name = str(path)
        reason = "no reason was given"
        if reply.failure is not None:
            reason = reply.failure.message
        return f"{name}: the suite could not be loaded: {reason}"

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        """Do one job, in new processes if none are running.

        Returns:
            The redacted reply; a failure if the kernel failed, crashed a process or took longer
            than `timeout_s`. Of several ranks it is the worst reply, with the name of its rank.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        if not self._processes:
            self.start()
        for process in self._processes:
            process.send(job.model_dump_json())
        # A job without a case does not take longer with a slow kernel.
        advice = _ADVICE if isinstance(job, CaseJob) else ""
        replies = self._receive(timeout_s, advice)
        # After a failure the ranks may be at different collectives.
        is_complete = len(replies) == self._rank_count
        is_in_step = is_complete and all(_is_in_step(reply) for reply in replies.values())
        failures = [reply.failure for reply in replies.values() if reply.failure is not None]
        # After a failed capture, torch's allocator cannot free memory or capture again:
        # CUDAGraph::capture_end does not reset it if CUDA's part fails.
        is_spoilt = any(
            isinstance(job, TimeBlock) or failure.outcome in _RESTART_AFTER for failure in failures
        )
        if is_spoilt or (self._rank_count > 1 and not is_in_step):
            self.stop()
        return redact(combined(replies, self._rank_count), self._redaction)

    def kill(self) -> None:
        """End the current job at once, from any thread; the thread that waits for the reply cleans
        up.
        """
        for process in self._processes:
            process.kill()

    def stop(self) -> None:
        """End the processes and everything they started."""
        self.kill()
        for process in self._processes:
            process.close()
        self._processes = []
        self._resources.close()

    def _settings_by_rank(self) -> Iterator[WorkerSettings]:
        """Settings of each process; several ranks share the device's memory."""
        if self._rank_count == 1:
            yield self._settings
            return
        folder = self._resources.enter_context(
            tempfile.TemporaryDirectory(prefix="roofwatch-ranks-")
        )
        # The ranks find each other by a file, so that no port is taken.
        rendezvous = Path(folder) / "rendezvous"
        for index in range(self._rank_count):
            rank_place = RankPlace(
                index=index,
                count=self._rank_count,
                rendezvous=rendezvous,
            )
            update = {"rank": rank_place, "memory_share": 1 / self._rank_count}
            yield self._settings.model_copy(update=update)

    def _receive(self, timeout_s: float, advice: str = "") -> dict[int, Reply]:
        """Wait for the replies, by rank and in order of arrival. Ranks that hang after another has
        failed have none.
        """
        replies: dict[int, Reply] = {}
        too_long = f"not done after {timeout_s:g} s{advice}"
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for rank, process in enumerate(self._processes):
                selector.register(process.replies_fd, selectors.EVENT_READ, rank)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    break
                for key, _ in ready:
                    reply = self._read_reply(key.data, too_long)
                    if reply is None:
                        continue
                    selector.unregister(key.fd)
                    replies[key.data] = reply
                    self.loaded.update(reply.loaded)
                    self.tracing_ns += reply.tracing_ns
                    # The others wait for a failed rank in a collective, for ever.
                    if _outcome(reply) is not Outcome.OK:
                        deadline = min(deadline, time.monotonic() + _GRACE_S)
        if all(_outcome(reply) is Outcome.OK for reply in replies.values()):
            for rank in range(self._rank_count):
                if rank not in replies:
                    replies[rank] = Reply(failure=self._processes[rank].end(too_long))
        return replies

    def _read_reply(self, rank: int, too_long: str) -> Reply | None:
        """The reply of a rank: None if it is incomplete, a failure if the process ended."""
        process = self._processes[rank]
        line = process.read_line()
        if line is None:
            return None
        if not line:
            return Reply(failure=process.end(too_long))
        return Reply.model_validate_json(line)


class _Process:
    """One forked process with its pipes and its output."""

    def __init__(self, fork_server: ForkServer, mode: Mode, python: Path | None) -> None:
        self._fork_server = fork_server
        self._mode = mode
        self._python = python
        self._pid: int | None = None
        self._pending = b""
        lifeline_read, lifeline_write = os.pipe()
        jobs_read, jobs_write = os.pipe()
        self.replies_fd, replies_write = os.pipe()
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, lifeline_write)
            # Unbuffered: closing a buffered pipe to a dead process would write again.
            self._jobs = stack.enter_context(os.fdopen(jobs_write, "wb", buffering=0))
            stack.callback(os.close, self.replies_fd)
            self._log = stack.enter_context(tempfile.TemporaryFile())
            worker_fds = (lifeline_read, jobs_read, replies_write)
            try:
                self._pid = fork_server.fork_worker(
                    mode=mode,
                    fds=worker_fds,
                    log=self._log,
                    python=python,
                )
            finally:
                for fd in worker_fds:  # open here, they would hide the end of the process
                    os.close(fd)
            self._resources = stack.pop_all()

    def send(self, message: str) -> None:
        # It may have ended, which is found when it is read from.
        with contextlib.suppress(BrokenPipeError):
            self._jobs.write(message.encode() + b"\n")

    def read_line(self) -> bytes | None:
        """Read what there is: a line, None if it is incomplete, or nothing if the process has
        ended.
        """
        chunk = os.read(self.replies_fd, 2**20)
        self._pending += chunk
        if b"\n" in chunk:
            line, _, self._pending = self._pending.partition(b"\n")
            return line
        if chunk and len(self._pending) <= _MAX_REPLY_BYTES:
            return None
        return b""

    def end(self, too_long: str) -> Failure:
        """End a process that gave no answer, and describe how it ended; a message in case it still
        runs.
        """
        assert self._pid is not None
        # The pipe closes shortly before the process is gone.
        status = self._fork_server.exit_status(
            self._mode,
            self._pid,
            self._python,
            timeout_s=0.5,
        )
        if status is None:
            self.kill()
            return Failure(outcome=Outcome.TIMED_OUT, message=too_long)
        self._pid = None  # its number may belong to another process now
        tail = read_tail(self._log)
        how = f"exit status {status}"
        if status < 0:
            how = f"killed by {signal.Signals(-status).name}"
        message = f"the process ended: {how}"
        # Python's or CUDA's last words often say what happened.
        if tail:
            message += f"; its last output: {tail}"
        return Failure(outcome=Outcome.CRASHED, message=message)

    def kill(self) -> None:
        pid = self._pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                # The whole group: what a kernel started must end too.
                os.killpg(pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for a killed process, and close the pipes."""
        pid = self._pid
        self._pid = None
        if pid is not None:
            self._fork_server.exit_status(
                self._mode,
                pid,
                self._python,
                timeout_s=_KILL_TIMEOUT_S,
            )
        self._resources.close()


def combined(replies: Mapping[int, Reply], rank_count: int) -> Reply:
    """Combine replies by rank, in order of arrival, into one.

    The first failure is the cause. Without a failure, the reply with the largest error counts. The
    samples of a block are equal on all ranks.
    """
    if rank_count == 1:
        return replies[0]
    failures: dict[int, Failure] = {}
    for rank, reply in replies.items():
        if reply.failure is not None:
            failures[rank] = reply.failure
    if failures:
        return Reply(failure=_combined_failure(failures, rank_count))

    def badness(rank: int) -> tuple[bool, float]:
        """Failures first, then the largest error."""
        reply = replies[rank]
        tensors: tuple[TensorReport, ...] = ()
        if reply.checked is not None:
            tensors = reply.checked.report.tensors
        largest_error = max((tensor.errors.rmse_ratio for tensor in tensors), default=0.0)
        return _outcome(reply) is not Outcome.OK, largest_error

    rank = max(sorted(replies), key=badness)
    reply = replies[rank]
    if reply.checked is None or reply.checked.report.message is None:
        return reply
    report = reply.checked.report
    report = report.model_copy(update={"message": f"rank {rank}: {report.message}"})
    return Reply(checked=reply.checked.model_copy(update={"report": report}))


def _combined_failure(failures: Mapping[int, Failure], rank_count: int) -> Failure:
    """One failure for all ranks; equal messages are said once."""
    ranks_by_message = group_by(failures, key=lambda rank: failures[rank].message)
    messages: list[str] = []
    for message, ranks in ranks_by_message.items():
        if len(ranks) == rank_count:
            messages.append(message)
        else:
            messages.append(f"{_ranks(ranks)}: {message}")
    first = next(iter(failures.values()))
    return Failure(outcome=first.outcome, message="; ".join(messages)[:_MAX_MESSAGE_LENGTH])


def _outcome(reply: Reply) -> Outcome:
    if reply.failure is not None:
        return reply.failure.outcome
    if reply.checked is None:
        return Outcome.OK
    return reply.checked.report.outcome


def _is_in_step(reply: Reply) -> bool:
    """Whether the rank can go on with the others. An unsupported job was never begun."""
    return _outcome(reply) in {Outcome.OK, Outcome.UNSUPPORTED}


def _ranks(numbers: list[int]) -> str:
    word = "ranks" if len(numbers) > 1 else "rank"
    return f"{word} {', '.join(map(str, sorted(numbers)))}"
