"""A worker process as the collector sees it: started when needed, ended when it hangs, replaced when it dies."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from roofwatch.collector.errors import CollectorError, SuiteError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.redaction import Redaction, redact
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.fork_server import ForkServer, read_tail
from roofwatch.collector.workers.protocol import Failure, Job, Mode, RankPlace, Reply, SuiteInfo, WorkerSettings

_START_TIMEOUT_S = 180.0
_KILL_TIMEOUT_S = 5.0
_MAX_REPLY_BYTES = 256 * 2**20

_POISONING = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY})
"""After these a process may be in any state, a GPU context for good."""


def must_restart(reply: Reply) -> bool:
    """Whether the process that replied is not to be given another job."""
    failure = reply.failure
    return failure is not None and (failure.outcome in _POISONING or failure.must_restart)


class Worker:
    """One suite in a process of its own.

    Args:
        fork_server: Forks the process.
        source: The suite.
        mode: On the device, or in Triton's interpreter.
        device: `cpu` or `cuda`; None lets the worker see which there is.
        thread_count: Threads that torch may use; None leaves torch's default.
        rank: Its place among workers that do every job together.
        memory_share: Of the machine's memory, on a CPU; an allocation beyond it fails.
        cache_folder: Of its own for what it compiles and tunes; None shares the user's.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        source: SuiteSource,
        mode: Mode = Mode.DEVICE,
        *,
        device: str | None = None,
        thread_count: int | None = None,
        rank: RankPlace | None = None,
        memory_share: float = 1.0,
        cache_folder: Path | None = None,
    ) -> None:
        self._fork_server = fork_server
        self._redaction = Redaction.of_this_machine()
        self._settings = WorkerSettings(
            mode=mode,
            source=source,
            device=device,
            thread_count=thread_count,
            rank=rank,
            memory_share=memory_share,
            cache_folder=None if cache_folder is None else str(cache_folder),
        )
        self._pid: int | None = None
        self._resources = contextlib.ExitStack()
        self._jobs: IO[bytes]
        self._replies_fd: int
        self._log: IO[bytes]
        self._pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> SuiteInfo:
        """Start the process and load the suite.

        Raises:
            SuiteError: the suite cannot be loaded; the message says why.
        """
        self.stop()
        self._spawn()
        line: bytes | None = None
        with contextlib.suppress(BrokenPipeError):
            self._send(self._settings.model_dump_json())
            line = self._read_line(_START_TIMEOUT_S)
        if line is None:
            failure = self._died(_START_TIMEOUT_S)
            raise SuiteError(f"{self._name}: the suite could not be loaded: {failure.message}")
        info = SuiteInfo.model_validate_json(line)
        if info.error is not None:
            self.stop()
            raise SuiteError(info.error)
        return info

    def ensure_started(self) -> None:
        """Start it unless it runs.

        Raises:
            SuiteError: the suite cannot be loaded; the message says why.
        """
        if self._pid is None:
            self.start()

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        """Have one job done.

        Returns:
            The reply; a `failure` where the kernel failed, crashed the process or ran longer than `timeout_s`.
        """
        self.submit(job)
        reply = self.collect(timeout_s=timeout_s)
        if must_restart(reply):
            self.stop()
        return reply

    def submit(self, job: Job) -> None:
        """Give it a job, whose reply `collect` waits for."""
        self.ensure_started()
        with contextlib.suppress(BrokenPipeError):  # it has died: that is its reply
            self._send(job.model_dump_json())

    def fileno(self) -> int:
        """What a selector can wait for: readable once the job is done, or the process gone."""
        return self._replies_fd

    def collect(self, *, timeout_s: float) -> Reply:
        """The reply to the job that was submitted, fit to be kept and shown; the process lives on unless it died or is
        late.
        """
        line = self._read_line(timeout_s)
        reply = Reply(failure=self._died(timeout_s)) if line is None else Reply.model_validate_json(line)
        return redact(reply, self._redaction)

    def kill(self) -> None:
        """Have its present job end at once, from any thread; whoever waits for the reply then cleans up."""
        pid = self._pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the process and all it started; safe to call again."""
        pid, self._pid = self._pid, None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            self._fork_server.exit_status(self._settings.mode, pid, timeout_s=_KILL_TIMEOUT_S)
        self._resources.close()
        self._pending = b""

    @property
    def _name(self) -> str:
        return "roofwatch's own suite" if self._settings.source.path is None else str(self._settings.source.path)

    def _spawn(self) -> None:
        lifeline_read, lifeline_write = os.pipe()
        jobs_read, jobs_write = os.pipe()
        replies_read, replies_write = os.pipe()
        self._resources.callback(os.close, lifeline_write)
        # unbuffered: what a dead process did not take would be written once more when the pipe is closed
        self._jobs = self._resources.enter_context(os.fdopen(jobs_write, "wb", buffering=0))
        self._resources.callback(os.close, replies_read)
        self._replies_fd = replies_read
        self._log = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  closed by the stack
        own_ends = (lifeline_read, jobs_read, replies_write)
        try:
            self._pid = self._fork_server.fork_worker(self._settings.mode, own_ends, self._log)
        except CollectorError:
            self._resources.close()
            raise
        finally:
            for fd in own_ends:  # held here too, they would hide the end of the process
                os.close(fd)

    def _send(self, line: str) -> None:
        self._jobs.write(line.encode() + b"\n")

    def _read_line(self, timeout_s: float) -> bytes | None:
        """The next whole line; None at the end of the stream or of the time."""
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies_fd, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(self._replies_fd, 2**20)
                if not chunk or len(self._pending) > _MAX_REPLY_BYTES:
                    return None
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _died(self, timeout_s: float) -> Failure:
        """Say how the process ended, having made sure that it has."""
        assert self._pid is not None
        # the pipe closes a moment before the process is gone
        status = self._fork_server.exit_status(self._settings.mode, self._pid, timeout_s=0.5)
        if status is None:
            self.stop()
            return Failure(outcome=Outcome.TIMED_OUT, message=f"not done after {timeout_s:g} s")
        self._pid = None  # reaped: the number may be another process's by now
        tail = read_tail(self._log)
        self.stop()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        last_output = f"; its last output: {tail}" if tail else ""
        return Failure(outcome=Outcome.CRASHED, message=f"the process ended: {how}{last_output}")
