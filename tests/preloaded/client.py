"""Asks for processes that have everything loaded."""

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
    """Start them for the processes that this one starts, so that everything is loaded once for all of pytest's workers;
    what is loaded is so at the first request.
    """
    os.environ[_SHARED] = str(servers())
    _running.callback(os.environ.pop, _SHARED)


@cache
def servers() -> Path:
    """The folder of their sockets; they run until whoever started them stops them or is gone."""
    if _SHARED in os.environ:
        return Path(os.environ[_SHARED])
    folder = Path(_running.enter_context(tempfile.TemporaryDirectory(prefix="preloaded-")))
    theirs, ours = os.pipe()
    for kind in (_COMMAND, _COMPILING, _INTERPRETING):
        _running.callback(_start(kind, folder / kind, theirs).wait)
    os.close(theirs)
    _running.callback(os.close, ours)  # first of all
    return folder


def stop_servers() -> None:
    """Stop those that run, if any do."""
    servers.cache_clear()
    _running.close()


def _start(kind: str, path: Path, lifeline_fd: int) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "TRITON_INTERPRET"}}
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
    """One process, as `subprocess.Popen` shows it."""

    def __init__(self, server: Path, fds: Sequence[int], environment: Mapping[str, str], **job: Any) -> None:
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


def run_command(arguments: Sequence[str], cwd: Path | None, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run the command line to its end.

    Returns:
        Its exit status, what it wrote to its output, and what it wrote to its errors.
    """
    sockets = servers()
    with (
        Path(os.devnull).open("rb") as nothing,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        fds = [file.fileno() for file in (nothing, output, errors)]
        job = {"cwd": str(cwd or Path.cwd()), "is_session": False, "arguments": arguments, "sockets": str(sockets)}
        status = _Forked(sockets / _COMMAND, fds, environment, **job).wait()
        output.seek(0)
        errors.seek(0)
        return status, output.read().decode(), errors.read().decode()


def forking(sockets: Path) -> SimpleNamespace:
    """Takes the place of `subprocess` in `roofwatch.collector.workers.fork_server`, to have fork servers forked.

    Args:
        sockets: The folder of the servers' sockets.
    """

    def start(
        _: list[str], *, stdout: Any, stderr: Any, pass_fds: Sequence[int], env: Mapping[str, str], **__: Any
    ) -> _Forked:
        kind = _INTERPRETING if env.get("TRITON_INTERPRET") == "1" else _COMPILING
        with Path(os.devnull).open("rb") as nothing:
            fds = [nothing.fileno(), stdout.fileno(), stderr.fileno(), *pass_fds]
            return _Forked(sockets / kind, fds, env, cwd=str(Path.cwd()), is_session=True)

    return SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
