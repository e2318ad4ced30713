"""A worker process as the collector sees it: started when needed, ended when it hangs, replaced when it dies."""

import contextlib
import os
import selectors
import signal
import tempfile
import time
from typing import IO, Self

from roofwatch.collector.errors import CollectorError, SuiteError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.redaction import Redaction, redact
from roofwatch.collector.workers.fork_server import ForkServer, read_tail
from roofwatch.collector.workers.protocol import Failure, Job, Reply, SuiteInfo, WorkerSettings

_START_TIMEOUT_S = 180.0
_KILL_TIMEOUT_S = 5.0
_MAX_REPLY_BYTES = 256 * 2**20

_RESTART_AFTER = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY})
"""Outcomes after which a process or its GPU context may be broken."""


def must_restart(reply: Reply) -> bool:
    """Whether the process that replied must not get another job."""
    failure = reply.failure
    return failure is not None and (failure.outcome in _RESTART_AFTER or failure.must_restart)


class Worker:
    """A process that loads one suite and does one job after another."""

    def __init__(self, fork_server: ForkServer, settings: WorkerSettings) -> None:
        self._fork_server = fork_server
        self._settings = settings
        self._redaction = Redaction.of_this_machine()
        self._pid: int | None = None
        self._resources = contextlib.ExitStack()
        self._jobs: IO[bytes]
        self._replies_fd: int
        self._log: IO[bytes]
        self._pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> SuiteInfo:
        """Start the process and load the suite.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        self.stop()
        self._spawn()
        line = self._exchange(self._settings.model_dump_json(), _START_TIMEOUT_S)
        if line is None:
            path = self._settings.source.path
            name = "roofwatch's own suite" if path is None else str(path)
            raise SuiteError(f"{name}: the suite could not be loaded: {self._end(_START_TIMEOUT_S).message}")
        info = SuiteInfo.model_validate_json(line)
        if info.error is not None:
            self.stop()
            raise SuiteError(info.error)
        return info

    def ensure_started(self) -> None:
        """Start the process unless it is running.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        if self._pid is None:
            self.start()

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        """Do one job, in a new process if none is running.

        Returns:
            The redacted reply; a failure if the kernel failed, crashed the process or took longer than `timeout_s`.

        Raises:
            SuiteError: the suite cannot be loaded.
        """
        self.ensure_started()
        reply = self.ask(job, timeout_s=timeout_s)
        if must_restart(reply):
            self.stop()
        return reply

    def ask(self, job: Job, *, timeout_s: float) -> Reply:
        """Do one job in the running process, and leave the process as it is after a failure."""
        line = self._exchange(job.model_dump_json(), timeout_s)
        reply = Reply(failure=self._end(timeout_s)) if line is None else Reply.model_validate_json(line)
        return redact(reply, self._redaction)

    def kill(self) -> None:
        """End the current job at once, from any thread; the thread that waits for the reply cleans up."""
        pid = self._pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the process and everything it started."""
        self.kill()
        pid, self._pid = self._pid, None
        if pid is not None:
            self._fork_server.exit_status(self._settings.mode, pid, timeout_s=_KILL_TIMEOUT_S)
        self._resources.close()
        self._pending = b""

    def _spawn(self) -> None:
        lifeline_read, lifeline_write = os.pipe()
        jobs_read, jobs_write = os.pipe()
        replies_read, replies_write = os.pipe()
        self._resources.callback(os.close, lifeline_write)
        # unbuffered: closing a buffered pipe to a dead process would write again
        self._jobs = self._resources.enter_context(os.fdopen(jobs_write, "wb", buffering=0))
        self._resources.callback(os.close, replies_read)
        self._replies_fd = replies_read
        self._log = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  closed by the stack
        worker_fds = (lifeline_read, jobs_read, replies_write)
        try:
            self._pid = self._fork_server.fork_worker(self._settings.mode, worker_fds, self._log)
        except CollectorError:
            self._resources.close()
            raise
        finally:
            for fd in worker_fds:  # open here, they would hide the end of the process
                os.close(fd)

    def _exchange(self, message: str, timeout_s: float) -> bytes | None:
        """Send a line and read the answer; None if the process died or the time is over."""
        deadline = time.monotonic() + timeout_s
        try:
            self._jobs.write(message.encode() + b"\n")
        except BrokenPipeError:
            return None
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

    def _end(self, timeout_s: float) -> Failure:
        """End a process that gave no answer, and describe how it ended."""
        assert self._pid is not None
        # the pipe closes shortly before the process is gone
        status = self._fork_server.exit_status(self._settings.mode, self._pid, timeout_s=0.5)
        if status is None:
            self.stop()
            return Failure(outcome=Outcome.TIMED_OUT, message=f"not done after {timeout_s:g} s")
        self._pid = None  # its number may belong to another process now
        tail = read_tail(self._log)
        self.stop()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        last_output = f"; its last output: {tail}" if tail else ""
        return Failure(outcome=Outcome.CRASHED, message=f"the process ended: {how}{last_output}")
