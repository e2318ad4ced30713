"""A process that has loaded the packages and forks a child for each request.

    server.py <kind> <root of this repository> <listening socket's descriptor> <lifeline's
    descriptor>

It loads at the first request, and ends when the other end of the lifeline closes. It is a separate
script because its children must not have the modules of the tests. It starts no thread, which would
not survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MAX_REQUEST_BYTES = 2**18
_FORK_SERVER = (
    "roofwatch.collector.workers.fork_server",
    "roofwatch.collector.jobs.worker_main",
)
_COMMAND = (
    "pandas",
    "psycopg",
    "sqlalchemy",
    "rich.progress",
    "roofwatch.watch.runner",
    "roofwatch.bisection.job",
    "roofwatch.ci.forges.client",
    "roofwatch.cli.main",
    "roofwatch.db.ingest.ingest",
    "roofwatch.measurement.check",
    "roofwatch.measurement.run",
    "roofwatch.pull_requests.posting",
    "roofwatch.profiles.diagnosing",
    "roofwatch.tables.run",
    "roofwatch.tables.check",
    "roofwatch.tables.kernels",
    "roofwatch.tables.headlines",
    "roofwatch.console.narrow_tables",
)


def main() -> None:
    kind, root, listener_fd, lifeline_fd = sys.argv[1:]
    job = _serve(kind, root, int(listener_fd), int(lifeline_fd))
    if job is None:
        return
    if kind == "command":
        _run_command(root, job)
    else:
        from roofwatch.collector.workers.fork_server import serve

        sys.path.append(root)
        serve(job["control_fd"])


def _load(kind: str, root: str) -> None:
    sys.path.insert(0, root)
    for module in _COMMAND if kind == "command" else _FORK_SERVER:
        importlib.import_module(module)
    if kind == "command":
        _build_command_line()
    sys.path.remove(root)
    gc.freeze()  # keeps the shared objects out of the children's collections


def _build_command_line() -> None:
    """Build the tree of commands and options once: it takes longer than many a command."""
    import typer.main

    from roofwatch.cli.main import app

    built = typer.main.get_command(app)
    vars(typer.main)["get_command"] = lambda _: built


def _run_command(root: str, job: dict[str, Any]) -> None:
    sys.path.insert(0, root)
    import roofwatch.collector.workers.fork_server
    from roofwatch.cli.main import main as run_command
    from tests.preloaded.client import forking

    vars(roofwatch.collector.workers.fork_server)["subprocess"] = forking(Path(job["sockets"]))
    sys.path[0] = ""
    sys.argv = ["-c", *job["arguments"]]
    run_command()


def _serve(kind: str, root: str, listener_fd: int, lifeline_fd: int) -> dict[str, Any] | None:
    """Fork for each request until the lifeline closes; in a child, return its job."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors
    is_loaded = False
    with socket.socket(fileno=listener_fd) as listener:
        while lifeline_fd not in select.select([listener_fd, lifeline_fd], [], [])[0]:
            if not is_loaded:
                _load(kind, root)
                is_loaded = True
            connection, _ = listener.accept()
            message, fds, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 4)
            if os.fork() == 0:
                os.close(lifeline_fd)
                return _supervise(connection, json.loads(message), fds)
            connection.close()
            for fd in fds:
                os.close(fd)
    return None


def _supervise(connection: socket.socket, job: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Fork again: the child sends its process id and returns the job, the parent sends the exit
    status and exits.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        _become(job, fds)
        connection.send(json.dumps(os.getpid()).encode())
        connection.close()
        return job
    for fd in fds:
        os.close(fd)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):  # the client may be gone
        connection.send(json.dumps(status).encode())
    os._exit(0)


def _python_path(environment: Mapping[str, str]) -> list[str]:
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


def _become(job: dict[str, Any], fds: list[int]) -> None:
    if job["is_session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
        os.close(fd)
    job["control_fd"] = fds[3] if fds[3:] else None
    # what the server was started with is no path of the job
    sys.path[:] = [path for path in sys.path if path not in _python_path(os.environ)]
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[:0] = _python_path(job["environment"])
    os.chdir(job["cwd"])


if __name__ == "__main__":
    main()
