"""Open the store: the database that a URL names, or the embedded one of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import pq
from sqlalchemy import URL, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from roofwatch.db.engine import embedded, migrate
from roofwatch.db.engine.error_hints import first_line, way_out_of_failure, way_out_of_refusal
from roofwatch.db.engine.prepared import check_threshold, prepare_as_told
from roofwatch.db.errors import StoreError

CONNECTIONS = 15
"""The most that one process has to the server, unless it is told otherwise."""

_UNLESS_SAID = {
    "connect_timeout": "5",
    # a server whose machine or network went away answers nothing, and by itself TCP waits for it for hours
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""What the driver is told, unless a URL tells it otherwise: seconds, how many go unanswered, and ms."""
_POOL_WAIT_S = 10
_DRIVER = "postgresql+psycopg"


@contextmanager
def open_store(
    url: str | None = None, *, folder: Path | None = None, connections: int = CONNECTIONS
) -> Iterator[Engine]:
    """Open the store for the time of a `with` block.

    Args:
        url: Of a Postgres that somebody runs; its schema must be current.
        folder: Where the embedded Postgres lives, for when no url is given. It is created, started and brought up to
            date as needed, and stopped when nobody uses it any more.
        connections: The most that this process has at once; who needs one more waits for it, not for ever.

    Raises:
        StoreError: the database cannot be reached, is not up to date, lets this role not do what is asked of it, or was
            lost inside the block.
    """
    with open_server(url, folder=folder, connections=connections) as engine:
        if url is None:
            migrate.upgrade(engine)
        else:
            migrate.ensure_current(engine)
        yield engine


@contextmanager
def open_server(
    url: str | None = None, *, folder: Path | None = None, connections: int = CONNECTIONS
) -> Iterator[Engine]:
    """Open the store whatever the state of its schema: to upgrade it, or to put another in its place.

    Raises:
        StoreError: as `open_store`, but for the schema.
    """
    if url is not None:
        with _connected(parse_url(url), connections) as engine:
            yield engine
    elif folder is not None:
        with embedded.start(folder) as server, _connected(server.url, connections) as engine:
            yield engine
    else:
        raise StoreError(
            "no database: give its URL, postgresql://user:password@host/name, or a folder for the embedded one"
        )


@contextmanager
def open_sibling(engine: Engine, database: str) -> Iterator[Engine]:
    """Open another database of the server that an engine is of, whatever the state of its schema.

    Raises:
        StoreError: as `open_server`.
    """
    with _connected(engine.url.set(database=database), CONNECTIONS) as other:
        yield other


@contextmanager
def open_again(url: URL) -> Iterator[Engine]:
    """Open a database by the URL of an engine that another process of ours has, for work that asks one question at a
    time.

    Raises:
        StoreError: as `open_server`.
    """
    with _connected(url, 1) as engine:
        yield engine


def make_engine(url: URL, **options: Any) -> Engine:
    """An engine as all of ours are, for who has the URL of one that is open; `options` are `create_engine`'s."""
    engine = create_engine(url, **options)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "checkin", _leave_open)
    prepare_as_told(engine)
    return engine


@contextmanager
def reading_session(
    engine: Engine, *, sees_one_state: bool = False, timeout_s: float | None = None
) -> Iterator[Session]:
    """A session for questions: it can change nothing.

    It ends by COMMIT, unless the block raises. With a transaction that is rolled back the driver forgets what it has
    prepared on the connection, and Postgres would plan the same questions anew, which takes a third to nine tenths of
    what they take it.

    Args:
        engine: Of a store with a current schema.
        sees_one_state: Of the store, however many statements there are; otherwise each sees what is there by then.
        timeout_s: The most that a statement may take; no bound if None.
    """
    modes: dict[str, Any] = {"postgresql_readonly": True}
    if sees_one_state:
        modes["isolation_level"] = "REPEATABLE READ"
    with engine.connect().execution_options(**modes) as connection, connection.begin():
        if timeout_s is not None:
            connection.execute(text(f"SET LOCAL statement_timeout = {round(timeout_s * 1_000)}"))
        with Session(connection) as session:
            yield session


def connections_of(engine: Engine) -> int:
    """The most connections that an engine of `open_store` has at once."""
    assert isinstance(engine.pool, QueuePool)
    return engine.pool.size()


def parse_url(url: str) -> URL:
    """Read a database URL as people and hosting services write it.

    Raises:
        StoreError: not a Postgres URL; the message leaves out what could be a password.
    """
    wanted = "write postgresql://user:password@host:5432/name (a password's special characters %-encoded)"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(f"the database URL cannot be read; {wanted}") from None
    if parsed.drivername not in {"postgres", "postgresql", _DRIVER}:
        raise StoreError(f"the database URL starts with {parsed.drivername}://, which is not Postgres; {wanted}")
    parsed = parsed.set(drivername=_DRIVER)
    check_threshold(parsed)
    return parsed.set(query=_UNLESS_SAID | dict(parsed.query))


@contextmanager
def _connected(url: URL, connections: int) -> Iterator[Engine]:
    engine = make_engine(
        url,
        # a dashboard outlives restarts of the server: each connection is tried before use
        pool_pre_ping=True,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=_POOL_WAIT_S,
        # the connection that was used last has prepared most
        pool_use_lifo=True,
    )
    where = f"database {url.database!r} on {url.host}:{url.port or 5432}"
    try:
        try:
            engine.connect().close()
        except (OperationalError, InterfaceError) as error:
            raise StoreError(f"{where}: cannot be reached: {first_line(error)}; {way_out_of_refusal(error)}") from None
        try:
            yield engine
        except (DBAPIError, PoolTimeoutError) as error:
            told = way_out_of_failure(error, connections=connections)
            if told is None:
                raise
            raise StoreError(f"{where}: {told}") from None
    finally:
        engine.dispose()


class _BinaryCursor(psycopg.Cursor[Any]):
    """Asks for values as they are, not as text: thousands of rows of numbers come in a third of the time."""

    def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        # without parameters it may be several statements, and catalogues have types that the driver reads as text alone
        is_plain = not params or "pg_" in str(query)
        self.format = pq.Format.TEXT if is_plain else pq.Format.BINARY
        return super().execute(query, params, **how)


def _prepare(connection: psycopg.Connection, _: object) -> None:
    connection.cursor_factory = _BinaryCursor
    # a record's times read back as they were written, wherever the server is
    connection.execute("SET TIME ZONE 'UTC'")
    connection.commit()


def _leave_open(connection: psycopg.Connection | None, _: object) -> None:
    # a transaction that is said to write is refused by a replica, even to who only reads in it
    if connection is not None and not connection.closed:
        connection.read_only = None
