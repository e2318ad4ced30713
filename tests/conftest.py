"""A real Postgres for every test that asks for one: the embedded server, shared by pytest's workers, and in it one
fresh and migrated database per test, copied from a template.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine, create_engine, text

from db import embedded, migrate

_TEMPLATE = "roofwatch_template"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none; torch is asked only if such a test was collected."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing and not _has_gpu():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU on this machine"))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


class Databases:
    """Makes databases on one server. Those of finished tests are dropped when the next is made: by then their
    connections are gone, which Postgres would otherwise wait for.
    """

    def __init__(self, server_url: URL) -> None:
        self._server_url = server_url
        self._admin = create_engine(server_url, isolation_level="AUTOCOMMIT")
        self._finished: list[str] = []

    def make_template(self) -> None:
        with self._admin.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(1)"))
            query = text("SELECT count(*) FROM pg_database WHERE datname = :name")
            if connection.scalar(query, {"name": _TEMPLATE}) == 0:
                # nothing here has to survive a power cut
                connection.execute(text("ALTER SYSTEM SET fsync = off"))
                connection.execute(text("SELECT pg_reload_conf()"))
                connection.execute(text(f"CREATE DATABASE {_TEMPLATE}"))
                template = create_engine(self._server_url.set(database=_TEMPLATE))
                migrate.upgrade(template)
                template.dispose()
            connection.execute(text("SELECT pg_advisory_unlock(1)"))
            connection.execute(text("SELECT pg_advisory_unlock(1)"))

    def make(self, template: str) -> URL:
        name = f"test_{uuid.uuid4().hex}"
        with self._admin.connect() as connection:
            while self._finished:
                connection.execute(text(f"DROP DATABASE {self._finished.pop()} WITH (FORCE)"))
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        return self._server_url.set(database=name)

    def finish(self, url: URL) -> None:
        assert url.database is not None
        self._finished.append(url.database)

    def close(self) -> None:
        self._admin.dispose()


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Databases]:
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "store"
    with embedded.start(folder) as server:
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
    url = databases.make(_TEMPLATE)
    yield url
    databases.finish(url)


@pytest.fixture
def store(database_url: URL) -> Iterator[Engine]:
    """An engine on a fresh, migrated, empty database."""
    engine = create_engine(database_url)
    yield engine
    engine.dispose()
