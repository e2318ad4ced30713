"""The process that has everything loaded and forks. It is a script of its own: a worker that is forked from it has none
of the tests' modules. It must never start a thread, which would not survive a fork.

    server.py <what to load> <root of this repository> <listening socket's descriptor> <lifeline's descriptor>

It loads at the first request, and ends when the other end of the lifeline closes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

_MAX_REQUEST_BYTES = 2**18
_LOADED = {
    "command": (
        *(
            "pandas",
            "psycopg",
            "sqlalchemy",
            "rich.progress",
            "roofwatch.ci.github.client",
            "roofwatch.db.ingest.ingest",
        ),
        *(
            "roofwatch.cli.main",
            "roofwatch.bisection.backfill",
            "roofwatch.bisection.job",
            "roofwatch.measurement.check",
        ),
        *("roofwatch.measurement.pair", "roofwatch.posting", "roofwatch.profiles.diagnosing", "roofwatch.tables"),
    ),
    "compiling": ("roofwatch.collector.workers.fork_server_main",),
    "interpreting": ("roofwatch.collector.workers.fork_server_main",),
}


def main() -> None:
    kind, root, listener_fd, lifeline_fd = sys.argv[1:]
    job = _serve(kind, root, int(listener_fd), int(lifeline_fd))
    if job is None:
        return
    if kind == "command":
        _run_command(root, job)
    else:
        from roofwatch.collector.workers.fork_server_main import main as serve_forks

        sys.path.append(root)
        serve_forks(job["control_fd"])


def _load(kind: str, root: str) -> None:
    sys.path.insert(0, root)
    for module in _LOADED[kind]:
        importlib.import_module(module)
    if kind == "command":
        _build_command_line()
    sys.path.remove(root)
    gc.freeze()  # the children need not look at what they all share


def _build_command_line() -> None:
    """The tree of all commands and options, which every start would make anew: it takes longer than many a command."""
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
    """Fork until the lifeline closes; in a child, return what it has to do."""
    is_loaded = False
    children: dict[int, tuple[int, socket.socket]] = {}
    with socket.socket(fileno=listener_fd) as listener, selectors.DefaultSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        waiting.register(lifeline_fd, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in waiting.select()}
            if lifeline_fd in ready:
                return None
            for ended in ready & children.keys():
                waiting.unregister(ended)
                pid, asking = children.pop(ended)
                os.close(ended)
                _say(asking, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                asking.close()
            if listener_fd in ready:
                if not is_loaded:
                    _load(kind, root)
                    is_loaded = True
                asking, _ = listener.accept()
                message, fds, _, _ = socket.recv_fds(asking, _MAX_REQUEST_BYTES, 4)
                is_itself, it_is = os.pipe()
                pid = os.fork()
                if pid == 0:
                    job: dict[str, Any] = json.loads(message)
                    _become(job, fds)
                    for fd in (*children, lifeline_fd, is_itself, it_is, asking.fileno()):
                        os.close(fd)
                    return job
                for fd in (*fds, it_is):
                    os.close(fd)
                os.read(is_itself, 1)  # a signal to its process group must find that
                os.close(is_itself)
                _say(asking, pid)
                child_fd = os.pidfd_open(pid)
                children[child_fd] = (pid, asking)
                waiting.register(child_fd, selectors.EVENT_READ)


def _say(asking: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # where nobody waits any more
        asking.send(json.dumps(number).encode())


def _become(job: dict[str, Any], fds: list[int]) -> None:
    if job["is_session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
        os.close(fd)
    job["control_fd"] = fds[3] if fds[3:] else None
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[:0] = [path for path in job["environment"].get("PYTHONPATH", "").split(os.pathsep) if path]
    os.chdir(job["cwd"])


if __name__ == "__main__":
    main()
