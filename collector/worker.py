"""A worker process as the collector sees it: started when needed, ended when it hangs, replaced when it dies."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from collector.errors import CollectorError, SuiteError
from collector.protocol import Failure, Job, Mode, Reply, SuiteInfo, WorkerSettings
from collector.record import Outcome
from collector.suite_source import SuiteSource

_START_TIMEOUT_S = 180.0
_INSTALL_ROOT = Path(__file__).resolve().parent.parent
_LOG_TAIL_BYTES = 1_500
_MAX_REPLY_BYTES = 256 * 2**20

# Ours first while the worker's own modules are imported, then last: a suite finds its own packages before ours.
_BOOT = """
import sys
root = sys.argv.pop(1)
sys.path.insert(0, root)
from collector.worker_main import main
sys.path.remove(root)
sys.path.append(root)
main(*(int(argument) for argument in sys.argv[1:4]))
"""

# After these a process may be in any state, a GPU context for good.
_POISONING = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY})


class Worker:
    """One suite in a process of its own.

    Args:
        source: The suite.
        mode: On the device, or in Triton's interpreter.
        device: `cpu` or `cuda`; None lets the worker see which there is.
        thread_count: Threads that torch may use; None leaves torch's default.
        extra_environment: Put into the process's environment, for example cache folders.
    """

    def __init__(
        self,
        source: SuiteSource,
        mode: Mode = Mode.DEVICE,
        *,
        device: str | None = None,
        thread_count: int | None = None,
        extra_environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = WorkerSettings(mode=mode, source=source, device=device, thread_count=thread_count)
        self._extra_environment = dict(extra_environment or {})
        self._process: subprocess.Popen[bytes] | None = None
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

    def request(self, job: Job, *, timeout_s: float) -> Reply:
        """Have one job done.

        Returns:
            The reply; a `failure` where the kernel failed, crashed the process or ran longer than `timeout_s`.
        """
        if self._process is None:
            self.start()
        line: bytes | None = None
        with contextlib.suppress(BrokenPipeError):
            self._send(job.model_dump_json())
            line = self._read_line(timeout_s)
        if line is None:
            return Reply(failure=self._died(timeout_s))
        reply = Reply.model_validate_json(line)
        if reply.failure is not None and reply.failure.outcome in _POISONING:
            self.stop()
        return reply

    def stop(self) -> None:
        """End the process and all it started; safe to call again."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
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
        self._jobs = self._resources.enter_context(os.fdopen(jobs_write, "wb"))
        self._resources.callback(os.close, replies_read)
        self._replies_fd = replies_read
        self._log = self._resources.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  closed by the stack
        environment = {**os.environ, **self._extra_environment}
        environment.pop("TRITON_INTERPRET", None)
        if self._settings.mode is Mode.INTERPRETER:
            environment["TRITON_INTERPRET"] = "1"
        own_ends = (lifeline_read, jobs_read, replies_write)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, str(_INSTALL_ROOT), *(str(fd) for fd in own_ends)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=own_ends,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            self._resources.close()
            raise CollectorError(f"a worker process could not be started: {error.strerror}") from None
        finally:
            for fd in own_ends:  # held here too, they would hide the end of the process
                os.close(fd)

    def _send(self, line: str) -> None:
        self._jobs.write(line.encode() + b"\n")
        self._jobs.flush()

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
        assert self._process is not None
        try:
            # the pipe closes a moment before the process is gone
            status = self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self.stop()
            return Failure(outcome=Outcome.TIMED_OUT, message=f"not done after {timeout_s:g} s")
        tail = self._log_tail()
        self.stop()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return Failure(outcome=Outcome.CRASHED, message=f"the process ended: {how}{tail}")

    def _log_tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL_BYTES))
        text = self._log.read().decode(errors="replace").replace("\0", "").strip()
        return f"; its last output: {text}" if text else ""
