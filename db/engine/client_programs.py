"""Postgres' client programs: find `pg_dump` and `pg_restore` for a server, and run them."""

from __future__ import annotations

import os
import re
import shutil
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


@dataclass(frozen=True)
class Server:
    """How client programs reach a server."""

    major_version: int
    conninfo: str
    """Without the password: other users can read command lines."""
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
        StoreError: the engine connects through PgBouncer.
    """
    with engine.connect() as connection:
        major_version = int(connection.scalar(text("SHOW server_version_num"))) // 10_000
        driver = driver_connection(connection)
        is_encrypted = driver.pgconn.ssl_in_use
        if connection.scalar(text("SELECT pg_backend_pid()")) != driver.pgconn.backend_pid:
            raise StoreError(
                "backup and restore do not work through PgBouncer; name the server itself in the database URL"
            )
    _, given = engine.dialect.create_connect_args(engine.url)
    parameters = {name: str(value) for name, value in given.items() if isinstance(value, (str, int))}
    if is_encrypted and parameters.get("sslmode", os.environ.get("PGSSLMODE", "prefer")) in {"allow", "prefer"}:
        parameters["sslmode"] = "require"  # never fall back to no encryption
    password = parameters.pop("password", None)
    return Server(major_version, make_conninfo("", **parameters), password, is_encrypted)


def find_client(program: str, server: Server) -> Client:
    """Find the oldest installation of a program that is not older than the server.

    Raises:
        StoreError: there is none; the message says what to install.
    """
    clients = [
        client
        for client in _clients(program)
        if client.major_version >= server.major_version and (client.has_tls or not server.is_encrypted)
    ]
    if not clients:
        raise StoreError(
            f"no {program}{' with TLS' if server.is_encrypted else ''} of Postgres {server.major_version} or newer; "
            f"install postgresql-client-{server.major_version}"
        )
    return min(clients, key=lambda client: client.major_version)


def run_client(client: Client, program: str, arguments: Sequence[str], server: Server | None) -> str:
    """Run a program and return its output. Without a server it only reads a file.

    Raises:
        StoreError: it failed; the message is its own.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    if server is not None and server.password is not None:
        environment["PGPASSWORD"] = server.password
    connection = [] if server is None else [f"--dbname={server.conninfo}", "--no-password"]
    done = subprocess.run(
        [str(client.programs / program), *connection, *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        message = next((line for line in lines if "error:" in line), lines[-1])
        raise StoreError(f"{program}: {message.partition('error: ')[2] or message}")
    return done.stdout


def _clients(program: str) -> list[Client]:
    """The wheel's programs, which have no TLS, and those installed on the machine."""
    wheel = wheel_programs()
    folders = [] if wheel is None else [wheel]
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    clients = []
    for folder in folders:
        if shutil.which(program, path=str(folder)) is not None:
            shown = subprocess.run([folder / program, "--version"], capture_output=True, text=True, check=False).stdout
            if version := _VERSION.search(shown):
                clients.append(Client(folder, int(version[1]), has_tls=folder != wheel))
    return clients
