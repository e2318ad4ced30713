"""Ports of embedded servers: the one at which a folder's server runs, or ran last, and one for the next."""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
from pathlib import Path

from psycopg.pq import PGconn, Ping

HOST = "127.0.0.1"
"""Nobody reaches them but from this machine."""
_GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_000
_PORT_TRIES = 100


def running_port(folder: Path) -> int | None:
    """From the server's own file, which it fills line by line while it starts."""
    try:
        lines = (folder / "data" / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    return int(lines[3]) if len(lines) > 3 and lines[3].isdigit() else None


def last_port(folder: Path) -> int | None:
    """From what the server that ran last was started with: this stays however it ends."""
    try:
        options = (folder / "data" / "postmaster.opts").read_text(errors="replace")
    except FileNotFoundError:
        return None
    found = re.search(r'"-p" "(\d+)"', options)
    return None if found is None else int(found[1])


def is_accepting(port: int) -> bool:
    """Whether a server answers there and takes connections."""
    return PGconn.ping(f"host={HOST} hostaddr={HOST} port={port} connect_timeout=5".encode()) == Ping.OK


def free_port() -> int:
    """One that the system gives to nobody by itself, where there is any: it is free still when a server that ended
    comes back.
    """
    for _ in range(_PORT_TRIES):
        port = _LOWEST_PORT + secrets.randbelow(max(1, _first_given_port() - _LOWEST_PORT))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        given: int = probe.getsockname()[1]
        return given


def _first_given_port() -> int:
    """The system gives this and those above to whoever asks for any."""
    try:
        return int(_GIVEN_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _LOWEST_PORT  # not Linux
