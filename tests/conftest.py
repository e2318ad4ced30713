"""A real Postgres for every test that asks for one: the embedded server, shared by pytest's workers, and in it one
fresh and migrated database per test, copied from a template.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.memory_folder import memory_folder

# A machine that only measures has no database: whoever asks for one brings it along.
if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from tests.databases import Databases

STORE = "ROOFWATCH_TEST_STORE"
"""The folder of the embedded server in the environment, where it is not among the tests' own."""
_session = contextlib.ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    # a shell has what it starts in the background ignore SIGINT, and so would what tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "xdist_group(name): for one worker; known where there are no workers, too")
    if config.getoption("numprocesses", None):
        # the workers have the cores already: more threads of torch's or NumPy's would only wait for each other
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if not hasattr(config, "workerinput"):  # this process starts the workers
            from tests.preloaded.client import share_servers

            share_servers()
    if not hasattr(config, "workerinput"):
        folder = _session.enter_context(memory_folder())
        os.environ.pop(STORE, None)
        if folder is not None:
            os.environ[STORE] = str(folder)


def pytest_unconfigure() -> None:
    from tests.preloaded.client import stop_servers

    stop_servers()
    _session.close()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are told by their length: what was packed may hold the second at which it was, and pytest's workers, which
    collect one after the other, must come to the same names.
    """
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) else None


def pytest_collection_finish() -> None:
    """Let garbage collection, which Streamlit forces after every run of a page, pass over all that was collected here:
    it stays to the end, and looking through it takes half a second.
    """
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where tests for a GPU are asked for, load what has any: the rest may need what is not installed."""
    if config.option.markexpr != "gpu":
        return None
    files = [collection_path] if collection_path.is_file() else collection_path.rglob("test_*.py")
    return None if any(_may_need_a_gpu(file.read_text()) for file in files) else True


def _may_need_a_gpu(text: str) -> bool:
    return "mark.gpu" in text or "device: str" in text


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _skip_what_needs_a_gpu(items)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if _shares_what_its_file_makes(item) and item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    # what one worker does alone comes first, so that it does not go on after all others
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def _shares_what_its_file_makes(item: pytest.Item) -> bool:
    """If something is made once for the file, one worker has all its tests: each would make its own."""
    made: dict[str, Any] = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return any(
        fixture[-1].scope == "module" and fixture[-1].baseid == item.nodeid.partition("::")[0]
        for fixture in made.values()
    )


def _skip_what_needs_a_gpu(items: list[pytest.Item]) -> None:
    """Where there is none; torch is asked only if such a test was collected."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing and not _has_gpu():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU on this machine"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="module")
def forked_servers() -> Iterator[None]:
    """Nurseries are forked too, and not this process's children."""
    import roofwatch.collector.workers.fork_server
    from tests.preloaded.client import forking, servers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofwatch.collector.workers.fork_server, "subprocess", forking(servers()))
        yield


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
    """A fresh, migrated, empty database. `database_url.render_as_string(hide_password=False)` is its text."""
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
