"""Postgres' own client programs: which of those on this machine is right for a server, and how it is let in.

A dump is made and read back by programs of the server's major version where there are any. The wheel's have no TLS.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import Engine, text

from roofwatch.db.engine.postgres import wheel_programs
from roofwatch.db.engine.prepared import THRESHOLD
from roofwatch.db.errors import StoreError

_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_NO_TLS = "SSL support is not compiled in"
_BY_WAY_OF_A_POOL = (
    "a pool such as PgBouncer stands before this server, and would hand on what pg_dump and pg_restore set for "
    "themselves to whoever asks next, who would find no table: name host and port of the server itself in the "
    "database URL"
)
_SECRETS = {"password", "sslpassword"}


@dataclass(frozen=True)
class Server:
    """A server as its clients have to reach it."""

    major_version: int
    conninfo: str
    """Without a password: what stands in a command line, everybody on the machine can read."""
    password: str | None
    is_encrypted: bool


@dataclass(frozen=True)
class Client:
    programs: Path
    major_version: int
    has_tls: bool


def describe_server(engine: Engine) -> Server:
    """How clients reach the database of an engine.

    Raises:
        StoreError: only with a secret that none of them can be given unseen, or by way of a pool.
    """
    with engine.connect() as connection:
        major_version = int(connection.scalar(text("SHOW server_version_num"))) // 10_000
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        is_encrypted = driver.pgconn.ssl_in_use
        if connection.scalar(text("SELECT pg_backend_pid()")) != driver.pgconn.backend_pid:
            raise StoreError(_BY_WAY_OF_A_POOL)
    _, given = engine.dialect.create_connect_args(engine.url)
    parameters = {
        name: str(value) for name, value in given.items() if isinstance(value, (str, int)) and name != THRESHOLD
    }
    if "sslpassword" in parameters:
        raise StoreError("sslpassword: pg_dump can only be given it in the open; use a key without a passphrase")
    if is_encrypted and parameters.get("sslmode", os.environ.get("PGSSLMODE", "prefer")) in {"allow", "prefer"}:
        # what this process has over TLS must not go in the open because the client cannot do better
        parameters["sslmode"] = "require"
    shown = {name: value for name, value in parameters.items() if name not in _SECRETS}
    return Server(major_version, make_conninfo("", **shown), parameters.get("password"), is_encrypted)


def find_client(program: str, server: Server) -> Client:
    """The programs to use with a server: of its own major version, else newer ones.

    Args:
        program: That is needed, `pg_dump` or `pg_restore`.
        server: To work with.

    Raises:
        StoreError: there is none; the message says what to install.
    """
    found = list(_clients(program))
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
        needed = f"{' with TLS' if server.is_encrypted else ''} of Postgres {server.major_version}"
        raise StoreError(
            f"{program}{needed} or newer is needed for this server ({there or 'there is none here'}); install "
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
    done = subprocess.run(
        [
            str(client.programs / program),
            *([] if server is None else [f"--dbname={server.conninfo}", "--no-password"]),
            *arguments,
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
    )
    if done.returncode != 0:
        raise StoreError(f"{program}: {_complaint(done)}")
    return done.stdout.decode(errors="replace")


def _complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    if done.returncode < 0:
        return f"ended by {signal.Signals(-done.returncode).name}"
    said = next((line for line in lines if "error:" in line), lines[-1] if lines else f"status {done.returncode}")
    return said.partition("error: ")[2] or said


def _clients(program: str) -> Iterator[Client]:
    folders = [wheel_programs(), *(Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    seen: set[Path] = set()
    for folder in folders:
        found = None if folder is None else shutil.which(program, path=str(folder))
        if found is None or Path(found).resolve() in seen:
            continue
        seen.add(Path(found).resolve())
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        version = _VERSION.search(said)
        if version is not None:
            yield Client(Path(found).parent, int(version[1]), _has_tls(found))


def _has_tls(found: str) -> bool:
    """Whether it knows of TLS; it is asked for where nobody listens, so that it says so at once."""
    program = Path(found).with_name("pg_dump")
    conninfo = make_conninfo("", host="/nonexistent", sslmode="require")
    said = subprocess.run(
        [str(program), f"--dbname={conninfo}", "--no-password"],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C", "PATH": os.environ.get("PATH", "")},
    )
    return _NO_TLS not in said.stderr
