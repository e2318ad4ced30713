"""Fresh databases for tests, copied from a migrated template on the embedded server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.orm import Session

from roofwatch.db.engine import migrate
from roofwatch.db.engine.readers import grant_reader
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.records import load_record
from roofwatch.db.regressions.triage import decide
from roofwatch.model.record import RunRecord
from roofwatch.model.triage import TriageState

TEMPLATE = "roofwatch_template"
Filled = TypeVar("Filled")


class Databases:
    """Makes databases on one server. Those of finished tests are dropped when the next is made: by
    then their connections are gone, which Postgres would otherwise wait for.
    """

    def __init__(self, server_url: URL) -> None:
        self._server_url = server_url
        self._admin = create_engine(server_url, isolation_level="AUTOCOMMIT")
        self._finished: list[str] = []

    def make_template(self) -> None:
        with self._admin.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(1)"))
            query = text("SELECT count(*) FROM pg_database WHERE datname = :name")
            if connection.scalar(query, {"name": TEMPLATE}) == 0:
                # nothing here has to survive a power cut
                for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                    connection.execute(text(f"ALTER SYSTEM SET {setting} = off"))
                connection.execute(text("SELECT pg_reload_conf()"))
                connection.execute(text(f"CREATE DATABASE {TEMPLATE}"))
                template = create_engine(self._server_url.set(database=TEMPLATE))
                migrate.upgrade(template)
                template.dispose()
            connection.execute(text("SELECT pg_advisory_unlock(1)"))

    def make(self, template: str) -> URL:
        name = f"test_{uuid.uuid4().hex}"
        with self._admin.connect() as connection:
            while self._finished:
                connection.execute(text(f"DROP DATABASE {self._finished.pop()} WITH (FORCE)"))
            # by files: half the work of the usual way, by the log
            connection.execute(
                text(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
            )
        return self._server_url.set(database=name)

    @contextmanager
    def store(self) -> Iterator[Engine]:
        """Make an empty database with tables, for several tests."""
        engine = create_engine(self.make(TEMPLATE))
        yield engine
        engine.dispose()
        self.finish(engine.url)

    @contextmanager
    def filled(self, fill: Callable[[Engine], Filled]) -> Iterator[tuple[URL, Filled]]:
        """Make a database for tests that only read; yields its URL and what `fill` returned."""
        with self.store() as engine:
            found = fill(engine)
            engine.dispose()
            yield engine.url, found

    def finish(self, url: URL) -> None:
        assert url.database is not None
        self._finished.append(url.database)

    def close(self) -> None:
        self._admin.dispose()


@contextmanager
def reading_role(store: Engine, **rights: Any) -> Iterator[URL]:
    """Grant a new role to read; yields its URL. Roles belong to the server, which other tests
    share.
    """
    role, password = f'reader " {uuid.uuid4().hex[:12]}', "p@ss 'word\\ %"
    quoted = store.dialect.identifier_preparer.quote_identifier(role)
    assert grant_reader(store, role, password=password, actor="a test", **rights)
    yield store.url.set(username=role, password=password)
    with store.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {quoted}")
        connection.exec_driver_sql(f"DROP ROLE {quoted}")


def ingest_all(store: Engine, *records: RunRecord) -> None:
    for record in records:
        ingest_record(store, record)


def stored_record(store: Engine, run_id: UUID) -> RunRecord:
    with Session(store) as session:
        return load_record(session, run_id)


def allow_connections(url: URL, *, are_allowed: bool) -> None:
    """Let a database refuse connections, and close those it has; or let it accept them again."""
    admin = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS {are_allowed}"))
        if not are_allowed:
            close = (
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname "
                "= :name"
            )
            connection.execute(text(close), {"name": url.database})
    admin.dispose()


def text_of(url: URL, **query: str) -> str:
    """The URL as text, with its password and these parameters."""
    return url.update_query_dict(query).render_as_string(hide_password=False)


def set_triage(
    engine: Engine, project: str, regression_id: UUID, state: TriageState, **decision: Any
) -> None:
    """Decide about a regression in a transaction of its own."""
    with Session(engine) as session, session.begin():
        decide(session, project, regression_id, state, **decision)
