"""A Postgres database per test, copied from a migrated template on one embedded server; markers and
GPU tests.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# A machine that only measures has no SQLAlchemy.
if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from tests.databases import Databases
    from tests.http_server import FakeServer

STORE = "ROOFWATCH_TEST_STORE"
"""Environment variable with the folder of the embedded server, if it is in memory: copying a
database there is ten times as fast."""
_MEMORY = Path("/dev/shm")
_MIN_FREE_BYTES = 4 * 2**30
"""A container often has 64 MiB."""
_session = contextlib.ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    # processes in the background of a shell ignore SIGINT, and their children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "xdist_group(name): tests for one worker of pytest-xdist")
    if config.getoption("numprocesses", None):
        # the workers use all cores already
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if not hasattr(config, "workerinput"):  # this process starts the workers
            from tests.preloaded.client import share_servers

            share_servers()
    if not hasattr(config, "workerinput"):
        os.environ.pop(STORE, None)
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _MIN_FREE_BYTES:
            folder = tempfile.TemporaryDirectory(
                dir=_MEMORY, prefix="roofwatch-tests-", ignore_cleanup_errors=True
            )
            os.environ[STORE] = _session.enter_context(folder)


def pytest_unconfigure() -> None:
    from tests.preloaded.client import stop_servers

    stop_servers()
    _session.close()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their length: content may include the time, and all workers must collect equal
    names.
    """
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None


def pytest_collection_finish() -> None:
    """Exclude everything loaded so far from garbage collection, which Streamlit forces after every
    page.
    """
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m gpu` or `-m slow`, load only files with such tests: others take time, or need
    missing packages.
    """
    words = {"gpu": ("mark.gpu", "device: str"), "slow": ("mark.slow",)}.get(config.option.markexpr)
    if words is None:
        return None
    files = [collection_path] if collection_path.is_file() else collection_path.rglob("test_*.py")
    return None if any(word in file.read_text() for file in files for word in words) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _skip_gpu_tests(items)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if _uses_module_fixture(item) and item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    if config.getoption("numprocesses", None):
        # groups first, since one worker runs each of them alone; then the last files, which have
        # the longest tests
        items.reverse()
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def _uses_module_fixture(item: pytest.Item) -> bool:
    """Whether the test uses a fixture that is made once for its file."""
    made: dict[str, Any] = (
        item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    )
    return any(
        fixture[-1].scope == "module" and fixture[-1].baseid == item.nodeid.partition("::")[0]
        for fixture in made.values()
    )


def _skip_gpu_tests(items: list[pytest.Item]) -> None:
    """Skip GPU tests without a GPU; torch is only loaded if there are such tests."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing:
        import torch

        for item in [] if torch.cuda.is_available() else needing:
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU on this machine"))


@pytest.fixture(scope="module")
def forked_servers() -> Iterator[None]:
    """Fork the fork servers of a module's tests from a process that has loaded torch."""
    import roofwatch.collector.workers.fork_server
    from tests.preloaded.client import forking, servers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofwatch.collector.workers.fork_server, "subprocess", forking(servers()))
        yield


@pytest.fixture
def server() -> Iterator[FakeServer]:
    from tests.http_server import FakeServer, serve

    fake = FakeServer()
    with serve(fake.answer) as fake.url:
        yield fake


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Databases]:
    from roofwatch.db.engine import embedded
    from tests.databases import Databases

    base = tmp_path_factory.getbasetemp()
    shared = os.environ.get(STORE, base if worker_id == "master" else base.parent)
    with embedded.start(Path(shared) / "store") as server:
        databases = Databases(server.url)
        databases.make_template()
        yield databases
        databases.close()


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[URL]:
    """A fresh database without tables."""
    url = databases.make("template1")
    yield url
    databases.finish(url)


@pytest.fixture
def database_url(databases: Databases) -> Iterator[URL]:
    """A fresh, migrated, empty database. `database_url.render_as_string(hide_password=False)` is
    its text.
    """
    from tests.databases import TEMPLATE

    url = databases.make(TEMPLATE)
    yield url
    databases.finish(url)


@pytest.fixture
def store(database_url: URL) -> Iterator[Engine]:
    """An engine on a fresh, migrated, empty database."""
    from roofwatch.db.engine.session import make_engine

    engine = make_engine(database_url)
    yield engine
    engine.dispose()
