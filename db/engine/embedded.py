"""The embedded server: a real Postgres that lives in one folder and runs while somebody uses it.

    <folder>/data       the database
    <folder>/password   of its superuser, readable by its owner alone
    <folder>/lock       held while the server is created, started or stopped
    <folder>/lease      held, shared, by every process that uses the server: the last one out stops it
    <folder>/alive      held by the server's own processes, so that a dead server is known without trusting process
                        ids, which the kernel gives out again

The three are flock()s, which the kernel takes back however a process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psycopg
from sqlalchemy import URL

from roofwatch.db.engine.ports import HOST, free_port, is_accepting, last_port, running_port
from roofwatch.db.engine.postgres import Postgres, find_postgres
from roofwatch.db.errors import StoreError

_USER = "postgres"
_START_TRIES = 5
_TRIES_AT_ONE_PORT = 2
"""Something else may be in the way for a moment than who has the port now."""
_WAIT_S = 60
_POLL_S = 0.02
_OPTIONS = "-c max_connections=50 -c jit=off -c timezone=UTC -c unix_socket_directories=''"


class ServerHandle:
    """One use of the embedded server. `close` ends it, and stops the server if it was the last one.

    A process that ends without closing does so at its exit, and waits for a thread of it that starts the server
    meanwhile. One that is killed, also by a signal that it does not handle, lets go of the server all the same, which
    runs on: whoever uses the folder next finds it.
    """

    def __init__(self, folder: Path, postgres: Postgres, url: URL, lease_fd: int) -> None:
        self.folder = folder
        self.url = url
        """For SQLAlchemy; printed, it hides the password."""
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
    """Start using the server of a folder: it is created and started where that has not happened yet.

    Raises:
        StoreError: it cannot be created, started or reached; the message says why.
    """
    folder = folder.absolute()
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
    # never given back: a thread that would begin one from here on ends with us before it does
    _changing.acquire()
    with contextlib.ExitStack() as each:  # one that fails holds no other
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
    lease_fd = _open(folder / "lease")
    postgres: Postgres | None = None
    try:
        is_used = not _try_lock(lease_fd)
        fcntl.flock(lease_fd, fcntl.LOCK_SH)
        postgres = find_postgres(folder, folder / "data")
        if not (folder / "data").exists():
            _initialise(folder, postgres)
        url = _url(folder, _serve(folder, postgres, is_used=is_used))
        while not _lets_in(folder, url):
            # it ended since it was found
            url = _url(folder, _serve(folder, postgres, is_used=is_used))
    except BaseException:
        if postgres is not None:
            _leave(folder, postgres, lease_fd)
        os.close(lease_fd)
        raise
    return ServerHandle(folder, postgres, url, lease_fd)


def _initialise(folder: Path, postgres: Postgres) -> None:
    # a name of its own for each try: of one that was killed, initdb may still be running
    for leftover in folder.glob("data.new.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix="data.new.", dir=folder))
    password = folder / "password"
    password.unlink(missing_ok=True)
    password.touch(mode=0o600)
    with password.open("w") as file:
        file.write(secrets.token_urlsafe(24))
        file.flush()
        os.fsync(file.fileno())
    if postgres.account is not None:
        for path in (unfinished, password):
            os.chown(path, postgres.account.uid, postgres.account.gid)
    made = postgres.run(
        "initdb",
        f"--pgdata={unfinished}",
        f"--username={_USER}",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-clean",
    )
    if made.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise StoreError(f"{folder}: the embedded Postgres cannot be created: {_tail(made.stderr)}")
    unfinished.rename(folder / "data")
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def _serve(folder: Path, postgres: Postgres, *, is_used: bool) -> int:
    """Find the folder's server, or start it; returns its port. To be called under `lock`.

    Where the last one ended while others used it, they look for it at its port.
    """
    known_port = running_port(folder) or (last_port(folder) if is_used else None)
    deadline_s = time.monotonic() + _WAIT_S
    tries = 0
    while True:
        alive_fd = _open(folder / "alive")
        try:
            if _try_lock(alive_fd):
                port = known_port if known_port is not None and tries < _TRIES_AT_ONE_PORT else free_port()
                complaint = _launch(folder, postgres, port, alive_fd)
                if complaint is None:
                    return port
                tries += 1
                if tries == _START_TRIES:
                    raise StoreError(f"{folder}: the embedded Postgres does not start: {complaint}")
                continue
        finally:
            # closed, not unlocked: the server has inherited the lock
            os.close(alive_fd)
        found = running_port(folder)
        if found is not None and is_accepting(found):
            return found
        if time.monotonic() > deadline_s:
            raise StoreError(
                f"{folder}: the embedded Postgres is running but has not answered for {_WAIT_S} s; see "
                f"{folder / 'data' / 'server.log'}, or end its processes and try again"
            )
        time.sleep(_POLL_S)


def _launch(folder: Path, postgres: Postgres, port: int, alive_fd: int) -> str | None:
    """Start the server on a port; returns None, or what it said: that the port was taken meanwhile, for example."""
    data = folder / "data"
    (data / "postmaster.pid").unlink(missing_ok=True)
    log = data / "server.log"
    if log.exists():
        log.replace(data / "server.previous.log")
    # the folder is given without a shell to quote for: pg_ctl writes a command line of its -D and -l
    started = postgres.run(
        "pg_ctl",
        "start",
        "--wait",
        f"--timeout={_WAIT_S}",
        "--log=server.log",
        f"--options=-h {HOST} -p {port} {_OPTIONS}",
        cwd=data,
        environment={"PGDATA": str(data)},
        pass_fds=[alive_fd],
    )
    if started.returncode == 0:
        return None
    return _tail(log.read_text(errors="replace") if log.exists() else started.stderr)


def _leave(folder: Path, postgres: Postgres, lease_fd: int) -> None:
    """Give the lease back and stop the server if nobody else has one. To be called under `lock`."""
    if _try_lock(lease_fd) and _is_alive(folder):
        # one that does not stop in time loses nothing: the next to start finds it
        postgres.run(
            "pg_ctl",
            "stop",
            "--mode=fast",
            "--wait",
            f"--timeout={_WAIT_S}",
            environment={"PGDATA": str(folder / "data")},
        )
    fcntl.flock(lease_fd, fcntl.LOCK_UN)


def _url(folder: Path, port: int) -> URL:
    password = folder / "password"
    if not password.exists():
        raise StoreError(
            f"{password}: the password of the embedded Postgres is missing; put it back, or move {folder} away "
            "and ingest the record files again"
        )
    return URL.create(
        "postgresql+psycopg",
        username=_USER,
        password=password.read_text(),
        host=HOST,
        port=port,
        database=_USER,
        # all that a PG... variable of the user's could otherwise turn to another server
        query={
            "hostaddr": HOST,
            "sslmode": "disable",
            "gssencmode": "disable",
            "require_auth": "scram-sha-256",
            "options": "-ctimezone=UTC",
            "connect_timeout": str(_WAIT_S),
        },
    )


def _lets_in(folder: Path, url: URL) -> bool:
    """Whether the server takes our password; False where it is gone.

    Raises:
        StoreError: it is there and refuses us.
    """
    try:
        psycopg.connect(url.set(drivername="postgresql").render_as_string(hide_password=False)).close()
    except psycopg.OperationalError as error:
        assert url.port is not None
        if is_accepting(url.port):
            raise StoreError(f"{folder}: the embedded Postgres cannot be used: {_tail(str(error))}") from None
        return False
    return True


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
        deadline_s = time.monotonic() + 2 * _WAIT_S
        while not _try_lock(fd):
            if time.monotonic() > deadline_s:
                raise StoreError(
                    f"{path}: another process has been starting or stopping the embedded Postgres for "
                    f"{2 * _WAIT_S} s; end that process (fuser {path} names it) and try again"
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
