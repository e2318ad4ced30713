"""A store and its door as they run in service, each a process of its own that can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Engine

from roofwatch.db.auth.values import Scope
from roofwatch.db.engine import embedded, migrate
from roofwatch.db.engine.session import make_engine
from roofwatch.store.access import create_project_token

_COMMAND = (sys.executable, "-c", "from roofwatch.cli.main import main; main()")
_WAIT_S = 120.0
_POLL_S = 0.02


class Service:
    """Postgres, embedded in a folder, and `roofwatch api` in front of it at an address that stays the same.

    Args:
        folder: An empty one; the store, the logs and the token's holder live there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._api: subprocess.Popen[bytes] | None = None
        self._held: list[int] = []
        self._server = embedded.start(folder / "store")
        self.engine: Engine = make_engine(self._server.url, pool_pre_ping=True)
        migrate.upgrade(self.engine)
        self.token = self.make_token("everything")
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.repair()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._resume_postgres()
        if self._api is not None:
            self._api.terminate()
            self._api.wait()
        self.engine.dispose()
        self._server.close()

    def make_token(self, name: str) -> str:
        """One that may send and read everything."""
        return create_project_token(
            self.engine,
            name=name,
            project=None,
            all_projects=True,
            scopes=[Scope.INGEST, Scope.READ],
            days=1,
            is_quarantined=False,
        ).text

    def repair(self) -> None:
        """Start again what is not running, and wait until records are taken."""
        self._resume_postgres()
        while True:
            server = embedded.start(self.folder / "store")
            self._server.close()
            self._server = server
            if self._api is None or self._api.poll() is not None:
                self._api = self._start_api()
            if _is_ready(f"{self.url}/readyz", lambda: self._api is not None and self._api.poll() is None):
                return

    def kill_api(self) -> None:
        assert self._api is not None
        self._api.kill()
        self._api.wait()

    def kill_postgres(self) -> None:
        """The first process of Postgres: its others end by themselves once they notice."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._postmaster, signal.SIGKILL)

    def stop_postgres(self) -> None:
        """Have Postgres end at once and by itself, as it does where its log has no room."""
        os.kill(self._postmaster, signal.SIGQUIT)

    def hold_postgres(self) -> None:
        """Leave Postgres there and let it do nothing: who asks it gets no answer, as behind a broken network."""
        first = self._postmaster
        for pid in (first, *(child for child, _ in _children(first))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self._held.append(pid)

    def kill_backend(self, draw: random.Random) -> None:
        """One process of Postgres that serves a connection, if there is any, else one of its others: Postgres ends
        all of them then, and recovers by itself.
        """
        children = _children(self._postmaster)
        serving = [pid for pid, title in children if "127.0.0.1(" in title]
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(serving or [pid for pid, _ in children]), signal.SIGKILL)

    def client(
        self, *arguments: str | Path, folder: Path, output: Path, most_file_bytes: int | None = None
    ) -> subprocess.Popen[bytes]:
        """`roofwatch` as a machine that measures runs it.

        Args:
            arguments: Of the command line.
            folder: Where it runs.
            output: The file that all it says goes into.
            most_file_bytes: No file can grow longer: what a full disk does to it.
        """
        limit = [] if most_file_bytes is None else ["prlimit", f"--fsize={most_file_bytes}"]
        with output.open("wb") as words:
            return subprocess.Popen(
                [*limit, *_COMMAND, *map(str, arguments)],
                cwd=folder,
                env=os.environ | {"ROOFWATCH_TOKEN": self.token, "NO_COLOR": "1"},
                stdout=words,
                stderr=words,
            )

    @property
    def _postmaster(self) -> int:
        return int((self.folder / "store" / "data" / "postmaster.pid").read_text().splitlines()[0])

    def _resume_postgres(self) -> None:
        for pid in self._held:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._held.clear()

    def _start_api(self) -> subprocess.Popen[bytes]:
        url = self._server.url.render_as_string(hide_password=False)
        with (self.folder / "api.log").open("ab") as log:
            return subprocess.Popen(
                [*_COMMAND, "api", "--port", str(self.port)],
                cwd=self.folder,
                env=os.environ | {"ROOFWATCH_DATABASE_URL": url, "NO_COLOR": "1"},
                stdout=log,
                stderr=log,
            )


def _is_ready(url: str, is_alive: Callable[[], bool]) -> bool:
    """Wait for a 200; False where who should give it has died."""
    deadline_s = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  our own address
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            if not is_alive():
                return False
            time.sleep(_POLL_S)
    raise RuntimeError(f"{url} was not ready within {_WAIT_S:g} s; see api.log")


def _children(parent: int) -> list[tuple[int, str]]:
    """Processes that a process started, and what they call themselves."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # the name in the second field may hold blanks and brackets
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append((int(folder.name), title))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
