"""Folders for embedded servers, processes that use one, and queries on one."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping
from sqlalchemy import URL, create_engine, make_url, text

from roofwatch.db.engine import embedded
from roofwatch.db.errors import StoreError

REPOSITORY = Path(__file__).parents[3]


# opens a server, prints its URL, and closes it at the end of input
USE = """
import sys
from pathlib import Path
from roofwatch.db.engine.embedded import start
with start(Path(sys.argv[1])) as server:
    print(server.url.render_as_string(hide_password=False), flush=True)
    sys.stdin.read()
"""


class User:
    """Another process that uses the server of a folder."""

    def __init__(self, folder: Path, *, program: str = USE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder)],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def url(self) -> URL:
        return make_url(self.read_line())

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=120)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=120)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def using(folder: Path, *, program: str = USE) -> Iterator[User]:
    user = User(folder, program=program)
    try:
        yield user
    finally:
        user.kill()


def ask(url: URL, query: str) -> object:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(query))
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


def answers(url: URL) -> bool:
    return PGconn.ping(make_conninfo("", host=str(url.query["host"])).encode()) == Ping.OK


def server_pid(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])


def kill_server(folder: Path) -> None:
    os.kill(server_pid(folder), signal.SIGKILL)


@pytest.fixture(scope="session")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a server was created and stopped."""
    folder = tmp_path_factory.mktemp("created") / "store"
    embedded.start(folder).close()
    return folder


@pytest.fixture
def new_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a server, which is stopped after the test."""
    yield tmp_path / "store"
    if (tmp_path / "store" / "data").exists():
        with contextlib.suppress(StoreError):
            embedded.start(tmp_path / "store").close()


@pytest.fixture
def folder(new_folder: Path, created: Path) -> Path:
    """A folder with a created server."""
    subprocess.run(["cp", "-a", str(created), str(new_folder)], check=True)
    return new_folder
