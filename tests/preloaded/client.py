"""Start processes that are forked from the preloaded servers."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_ROOT = Path(__file__).parents[2]
_COMMAND, _COMPILING, _INTERPRETING = "command", "compiling", "interpreting"
_SHARED = "ROOFWATCH_TEST_PRELOADED"
_running = contextlib.ExitStack()


def share_servers() -> None:
    """Start the servers and let pytest's workers, which this process starts, use them too."""
    os.environ[_SHARED] = str(servers())
    _running.callback(os.environ.pop, _SHARED)


@cache
def servers() -> Path:
    """Folder of the servers' sockets. They run until `stop_servers`, or until the process that
    started them ends.
    """
    if _SHARED in os.environ:
        return Path(os.environ[_SHARED])
    folder = Path(_running.enter_context(tempfile.TemporaryDirectory(prefix="preloaded-")))
    theirs, ours = os.pipe()
    for kind in (_COMMAND, _COMPILING, _INTERPRETING):
        _running.callback(_start(kind, folder / kind, theirs).wait)
    os.close(theirs)
    _running.callback(os.close, ours)  # called first: ends the servers
    return folder


def stop_servers() -> None:
    """Stop the servers that this process started."""
    servers.cache_clear()
    _running.close()


def _start(kind: str, path: Path, lifeline_fd: int) -> subprocess.Popen[bytes]:
    environment = {
        name: value
        for name, value in os.environ.items()
        # a machine with a GPU may have our dependencies on its PYTHONPATH only
        if name != "TRITON_INTERPRET"
    }
    if kind == _INTERPRETING:
        environment["TRITON_INTERPRET"] = "1"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        fds = (listener.fileno(), lifeline_fd)
        server = Path(__file__).with_name("server.py")
        return subprocess.Popen(
            [sys.executable, "-P", str(server), kind, str(_ROOT), *map(str, fds)],
            pass_fds=fds,
            env=environment,
            stdin=subprocess.DEVNULL,
        )


class _Forked:
    """A forked process, with the interface of `subprocess.Popen`."""

    def __init__(
        self, server: Path, fds: Sequence[int], environment: Mapping[str, str], **job: Any
    ) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(str(server))
        request = json.dumps({"environment": dict(environment), **job}).encode()
        socket.send_fds(self._connection, [request], fds)
        self.pid: int = json.loads(self._connection.recv(64))

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = json.loads(self._connection.recv(64))
            self._connection.close()
        assert self.returncode is not None
        return self.returncode


def run_command(
    arguments: Sequence[str], cwd: Path | None, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run the command line and return its exit status, output and errors."""
    sockets = servers()
    with (
        Path(os.devnull).open("rb") as nothing,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        fds = [file.fileno() for file in (nothing, output, errors)]
        job = {
            "cwd": str(cwd or Path.cwd()),
            "is_session": False,
            "arguments": arguments,
            "sockets": str(sockets),
        }
        status = _Forked(sockets / _COMMAND, fds, environment, **job).wait()
        output.seek(0)
        errors.seek(0)
        return status, output.read().decode(), errors.read().decode()


def forking(sockets: Path) -> SimpleNamespace:
    """Replacement of `subprocess` in `roofwatch.collector.workers.fork_server` that forks the fork
    servers.

    Args:
        sockets: Folder of the servers' sockets.
    """

    def start(
        _: list[str],
        *,
        stdout: Any,
        stderr: Any,
        pass_fds: Sequence[int],
        env: Mapping[str, str],
        **__: Any,
    ) -> _Forked:
        device_fd, interpreter_fd = pass_fds
        with Path(os.devnull).open("rb") as nothing:
            streams = [nothing.fileno(), stdout.fileno(), stderr.fileno()]
            job = {"cwd": str(Path.cwd()), "is_session": True}
            # ends when the other end of its socket closes
            _Forked(
                sockets / _INTERPRETING,
                [*streams, interpreter_fd],
                {**env, "TRITON_INTERPRET": "1"},
                **job,
            )
            return _Forked(sockets / _COMPILING, [*streams, device_fd], env, **job)

    return SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
