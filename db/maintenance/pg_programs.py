"""Postgres' client programs: which installation suits a server, and how they are run."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from psycopg.conninfo import make_conninfo
from sqlalchemy import Engine, text

from roofwatch.db.engine.embedded import all_wheel_programs
from roofwatch.db.engine.session import driver_connection
from roofwatch.db.errors import StoreError

_FIRST_WITH_TRANSACTION_TIMEOUT = 17
"""From this version, `pg_restore` sets a parameter that older servers do not know."""
_TRANSACTION_TIMEOUT = b"SET transaction_timeout"


@dataclass(frozen=True)
class Server:
    """How client programs reach a server."""

    major_version: int
    conninfo: str
    """Without the password: other users can read command lines."""
    password: str | None
    is_encrypted: bool


@dataclass(frozen=True)
class Programs:
    """The client programs of one installation."""

    folder: Path
    major_version: int

    def path(self, name: str) -> str:
        return str(self.folder / name)


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
                "backup and restore do not work through PgBouncer; name the server itself in the "
                "database URL"
            )
    _, arguments = engine.dialect.create_connect_args(engine.url)
    parameters = {
        name: str(value) for name, value in arguments.items() if isinstance(value, (str, int))
    }
    if is_encrypted and parameters.get("sslmode", os.environ.get("PGSSLMODE", "prefer")) in {
        "allow",
        "prefer",
    }:
        parameters["sslmode"] = "require"  # never fall back to no encryption
    password = parameters.pop("password", None)
    return Server(
        major_version,
        make_conninfo("", **parameters),
        password,
        is_encrypted,
    )


def find_programs(server: Server) -> list[Programs]:
    """Find the installations of client programs that suit a server, the nearest version first.

    Older programs do not know the server's catalogues. Newer ones write files that the server's own
    programs cannot read.

    Raises:
        StoreError: there is none; the message says what to install.
    """
    # the wheel's are built without TLS
    folders = []
    if not server.is_encrypted:
        folders = list(all_wheel_programs())
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    suitable = [
        programs
        for programs in _installed(folders)
        if programs.major_version >= server.major_version
    ]
    if not suitable:
        raise StoreError(
            f"no pg_dump{' with TLS' if server.is_encrypted else ''} of Postgres "
            f"{server.major_version} or newer; install postgresql-client-{server.major_version}"
        )
    return sorted(suitable, key=lambda programs: programs.major_version)


def _installed(folders: Sequence[Path]) -> Iterator[Programs]:
    for folder in folders:
        if all(shutil.which(name, path=folder) for name in ("pg_dump", "pg_restore", "psql")):
            command = [str(folder / "pg_restore"), "--version"]
            version_text = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
            ).stdout
            version = re.search(r"\(PostgreSQL\) (\d+)", version_text)
            if version is not None:
                yield Programs(folder, int(version[1]))


def run_program(program: str, arguments: Sequence[str], server: Server | None) -> str:
    """Run a client program and return its output. Without a server it only reads a file.

    Raises:
        StoreError: it failed; the message is its own.
    """
    connection = []
    if server is not None:
        connection = [f"--dbname={server.conninfo}", "--no-password"]
    done = subprocess.run(
        [program, *connection, *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=_environment(server),
    )
    if done.returncode != 0:
        raise StoreError(_failure(program, done.returncode, done.stderr))
    return done.stdout


def load_archive(programs: Programs, path: Path, server: Server) -> None:
    """Load a backup in one transaction.

    Raises:
        StoreError: a program failed.
    """
    options = ["--no-owner", "--no-privileges", "--exit-on-error"]
    pg_restore = programs.path("pg_restore")
    if programs.major_version < _FIRST_WITH_TRANSACTION_TIMEOUT or (
        server.major_version >= _FIRST_WITH_TRANSACTION_TIMEOUT
    ):
        run_program(pg_restore, [*options, "--single-transaction", str(path)], server)
        return
    loading_options = ["--no-psqlrc", "--quiet", "--no-password", "--single-transaction"]
    reading = subprocess.Popen(
        [pg_restore, *options, "--file=-", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    loading = subprocess.Popen(
        [
            programs.path("psql"),
            *loading_options,
            "--set=ON_ERROR_STOP=1",
            f"--dbname={server.conninfo}",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_environment(server),
    )
    with reading, loading:
        assert reading.stdout is not None
        assert loading.stdin is not None
        try:
            _copy_without_unknown_parameter(reading.stdout, loading.stdin)
        except BrokenPipeError:
            reading.kill()
        is_cut_short = reading.wait() != 0
        if is_cut_short:
            # before the end of its input, so that nothing is committed
            loading.kill()
        _, errors = loading.communicate()
    if is_cut_short or loading.returncode != 0:
        raise StoreError(_failure("psql", loading.returncode, errors.decode(errors="replace")))


def _copy_without_unknown_parameter(reading: IO[bytes], loading: IO[bytes]) -> None:
    for line in reading:
        if line.startswith(_TRANSACTION_TIMEOUT):
            # among the first lines; what follows may be large, and is data
            break
        loading.write(line)
    shutil.copyfileobj(reading, loading)


def _environment(server: Server | None) -> dict[str, str]:
    environment = {**os.environ, "LC_ALL": "C"}
    if server is not None and server.password is not None:
        environment["PGPASSWORD"] = server.password
    return environment


def _failure(program: str, status: int, errors: str) -> str:
    messages = [
        line.partition("error: ")[2] or line.partition("ERROR:  ")[2]
        for line in errors.splitlines()
        if "error: " in line or "ERROR:  " in line
    ]
    return f"{Path(program).name}: {messages[0] if messages else f'exit status {status}'}"
