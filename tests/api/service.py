"""Postgres and the API as separate processes that can be killed and restarted."""

import contextlib
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from sqlalchemy import Engine

from roofwatch.db.access import create_token
from roofwatch.db.engine import embedded, migrate
from roofwatch.db.engine.session import make_engine
from roofwatch.model.history import Scope
from roofwatch.model.record import RunRecord

_COMMAND = (sys.executable, "-c", "from roofwatch.cli.main import main; main()")
_WAIT_S = 120.0
_POLL_S = 0.02


def copy_of(record: RunRecord, draw: random.Random, *, project: str, commit: int) -> RunRecord:
    """A copy of a record as another run, of commit number `commit`."""
    shas = [
        hashlib.sha256(str(number).encode()).hexdigest()[:40] for number in (commit - 1, commit)
    ]
    commit_fields = {"sha": shas[1], "parents": (shas[0],), "first_parent_count": commit}
    return record.model_copy(
        update={
            "run_id": uuid.UUID(int=draw.getrandbits(128), version=4),
            "project": project,
            "commit": record.commit.model_copy(update=commit_fields),
        }
    )


class Service:
    """Embedded Postgres and `roofwatch api` at a constant address, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._api: subprocess.Popen[bytes] | None = None
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
        if self._api is not None:
            self._api.terminate()
            self._api.wait()
        self.engine.dispose()
        self._server.close()

    def make_token(self, name: str) -> str:
        return create_token(
            self.engine,
            name=name,
            project=None,
            scopes=[Scope.INGEST, Scope.READ],
            now=datetime.now(UTC),
            validity=timedelta(days=1),
            actor="bench",
        ).text

    def repair(self) -> None:
        """Restart what is not running, and wait until the API is ready."""
        while True:
            server = embedded.start(self.folder / "store")
            self._server.close()
            self._server = server
            if self._api is None or self._api.poll() is not None:
                self._api = self._start_api()
            if _is_ready(
                f"{self.url}/readyz", lambda: self._api is not None and self._api.poll() is None
            ):
                return

    def kill_api(self) -> None:
        assert self._api is not None
        self._api.kill()
        self._api.wait()

    def kill_workers(self) -> None:
        """Kill the processes that analyse; the API starts others."""
        for process in psutil.Process(self.api_pid).children():
            if "worker" in process.cmdline():
                process.kill()

    def kill_postgres(self) -> None:
        """Kill the postmaster; its children end by themselves."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._postmaster, signal.SIGKILL)

    def kill_backend(self, draw: random.Random) -> None:
        """Kill a process of Postgres, preferably one with a connection; Postgres then restarts all
        of them.
        """
        processes = psutil.process_iter(["ppid", "cmdline"])
        children = [child for child in processes if child.info["ppid"] == self._postmaster]
        serving = [
            child for child in children if "127.0.0.1(" in " ".join(child.info["cmdline"] or ())
        ]
        with contextlib.suppress(psutil.NoSuchProcess):
            draw.choice(serving or children).kill()

    def client(
        self, *arguments: str | Path, folder: Path, output: Path, max_file_bytes: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Run `roofwatch` in a folder as a runner does; a maximum length of a file simulates a full
        disk.
        """
        limit = [] if max_file_bytes is None else ["prlimit", f"--fsize={max_file_bytes}"]
        with output.open("wb") as words:
            return subprocess.Popen(
                [*limit, *_COMMAND, *map(str, arguments)],
                cwd=folder,
                env=os.environ | {"ROOFWATCH_TOKEN": self.token, "NO_COLOR": "1"},
                stdout=words,
                stderr=words,
            )

    @property
    def api_pid(self) -> int:
        assert self._api is not None
        return self._api.pid

    @property
    def _postmaster(self) -> int:
        return int((self.folder / "store" / "data" / "postmaster.pid").read_text().splitlines()[0])

    def _start_api(self) -> subprocess.Popen[bytes]:
        url = self._server.url.render_as_string(hide_password=False)
        # as in the image
        environment = os.environ | {
            "ROOFWATCH_DATABASE_URL": url,
            "NO_COLOR": "1",
            "MALLOC_ARENA_MAX": "1",
            "MALLOC_MMAP_THRESHOLD_": "131072",
        }
        with (self.folder / "api.log").open("ab") as log:
            return subprocess.Popen(
                [*_COMMAND, "api", "--port", str(self.port)],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )


def _is_ready(url: str, is_alive: Callable[[], bool]) -> bool:
    """Wait for status 200; False if the server has ended."""
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
