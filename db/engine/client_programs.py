"""Postgres' own client programs: which of those on this machine fit a server, and how they reach it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo
from sqlalchemy import Engine, text

from roofwatch.db.engine.embedded import wheel_programs
from roofwatch.db.engine.session import driver_connection
from roofwatch.db.errors import StoreError

_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_BEHIND_A_POOL = (
    "a pool such as PgBouncer stands before this server, and would hand on what pg_dump and pg_restore set for "
    "themselves to other clients, who would find no table: name host and port of the server itself in the "
    "database URL"
)


@dataclass(frozen=True)
class Server:
    """A server as client programs reach it."""

    major_version: int
    conninfo: str
    """Without a password: anybody on the machine can read a command line."""
    password: str | None
    is_encrypted: bool


@dataclass(frozen=True)
class Client:
    programs: Path
    major_version: int
    has_tls: bool


def describe_server(engine: Engine) -> Server:
    """How client programs reach the database of an engine.

    Raises:
        StoreError: it is reached through a connection pool.
    """
    with engine.connect() as connection:
        major_version = int(connection.scalar(text("SHOW server_version_num"))) // 10_000
        driver = driver_connection(connection)
        is_encrypted = driver.pgconn.ssl_in_use
        if connection.scalar(text("SELECT pg_backend_pid()")) != driver.pgconn.backend_pid:
            raise StoreError(_BEHIND_A_POOL)
    _, given = engine.dialect.create_connect_args(engine.url)
    parameters = {name: str(value) for name, value in given.items() if isinstance(value, (str, int))}
    if is_encrypted and parameters.get("sslmode", os.environ.get("PGSSLMODE", "prefer")) in {"allow", "prefer"}:
        # what this process has over TLS must not go unencrypted because the client has none
        parameters["sslmode"] = "require"
    password = parameters.pop("password", None)
    return Server(major_version, make_conninfo("", **parameters), password, is_encrypted)


def find_client(program: str, server: Server) -> Client:
    """The programs to use with a server: of its own major version, else newer ones.

    Args:
        program: `pg_dump` or `pg_restore`.
        server: To work with.

    Raises:
        StoreError: there is none; the message says what to install.
    """
    found = _clients(program)
    fit = [
        client
        for client in found
        if client.major_version >= server.major_version and (client.has_tls or not server.is_encrypted)
    ]
    if not fit:
        there = "; ".join(
            f"{client.programs / program} is of {client.major_version}{'' if client.has_tls else ', without TLS'}"
            for client in found
        )
        raise StoreError(
            f"{program}{' with TLS' if server.is_encrypted else ''} of Postgres {server.major_version} or newer is "
            f"needed for this server ({there or 'there is none here'}); install "
            f"postgresql-client-{server.major_version} and have it on PATH"
        )
    return min(fit, key=lambda client: client.major_version)


def run_client(client: Client, program: str, arguments: Sequence[str], server: Server | None) -> str:
    """Run a program to its end; what it printed.

    Args:
        client: Of which the program is.
        program: Its name.
        arguments: Of it, but for how to reach a server.
        server: To reach; None for a program that only reads a file.

    Raises:
        StoreError: it failed; the message is its own.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    if server is not None and server.password is not None:
        environment["PGPASSWORD"] = server.password
    reach = [] if server is None else [f"--dbname={server.conninfo}", "--no-password"]
    done = subprocess.run(
        [str(client.programs / program), *reach, *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
    )
    if done.returncode < 0:
        raise StoreError(f"{program}: ended by {signal.Signals(-done.returncode).name}")
    if done.returncode != 0:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        complaint = next((line for line in lines if "error:" in line), lines[-1] if lines else "failed")
        raise StoreError(f"{program}: {complaint.partition('error: ')[2] or complaint}")
    return done.stdout.decode(errors="replace")


def _clients(program: str) -> list[Client]:
    """The wheel's, which have no TLS, and those that are installed on the machine."""
    wheel = wheel_programs()
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    clients = []
    for folder in (*(() if wheel is None else (wheel,)), *on_path, *installed):
        if shutil.which(program, path=str(folder)) is None:
            continue
        shown = subprocess.run([folder / program, "--version"], capture_output=True, text=True, check=False).stdout
        version = _VERSION.search(shown)
        if version is not None:
            clients.append(Client(folder, int(version[1]), has_tls=folder != wheel))
    return clients
