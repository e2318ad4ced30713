"""Open the store: the database that a URL names, or the embedded one of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import URL, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from roofwatch.db.engine import embedded, migrate
from roofwatch.db.engine.error_hints import first_line, way_out_of_failure, way_out_of_refusal
from roofwatch.db.errors import StoreError

CONNECTIONS = 15
"""Default of the maximum connections per process."""
WAIT_FOR_DISK = "set_config('synchronous_commit', 'on', true)"
"""SQL, to be selected in a transaction: its commit waits for the disk, whatever the server, database or role says."""

_DEFAULTS = {
    "connect_timeout": "5",
    # a server whose machine or network went away answers nothing, and TCP by itself waits for it for hours
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Of the driver, unless a URL says otherwise: seconds, a count, and ms."""
_POOL_WAIT_S = 10
_DRIVER = "postgresql+psycopg"
# the role or the database may have set limits; the last is new in Postgres 17
_NO_TIMEOUTS = text(
    """
    SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN
        ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
    """
)
ANALYSIS = 7_001_003
"""Key of the lock of an analysis, with the project's name."""


@contextmanager
def open_store(
    url: str | None = None, *, folder: Path | None = None, connections: int = CONNECTIONS
) -> Iterator[Engine]:
    """Open the store for the time of a `with` block.

    Args:
        url: Of a Postgres that somebody runs; its schema must be current.
        folder: Of the embedded Postgres, where no url is given. It is created, started and brought up to date as
            needed, and stopped when nobody uses it any more.
        connections: Maximum of this process; whoever needs one more waits for it, not forever.

    Raises:
        StoreError: the database cannot be reached, is not up to date, refuses what is asked of it, or was lost inside
            the block.
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
        with open_url(parse_url(url), connections) as engine:
            yield engine
    elif folder is not None:
        with embedded.start(folder) as server, open_url(server.url, connections) as engine:
            yield engine
    else:
        raise StoreError(
            "no database: give its URL, postgresql://user:password@host/name, or a folder for the embedded one"
        )


@contextmanager
def open_url(url: URL, connections: int = CONNECTIONS) -> Iterator[Engine]:
    """Open a database by the URL of an engine, whatever the state of its schema.

    Raises:
        StoreError: as `open_server`.
    """
    engine = make_engine(
        url,
        # a dashboard outlives restarts of the server: each connection is tried before use
        pool_pre_ping=True,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=_POOL_WAIT_S,
    )
    where = f"database {url.database!r} on {migrate.server_name(url)}"
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


def make_engine(url: URL, **options: Any) -> Engine:
    """An engine as all of ours are; `options` are `create_engine`'s."""
    # nothing is prepared: a proxy may hand each transaction to another connection of the server
    engine = create_engine(url, connect_args={"prepare_threshold": None}, **options)
    event.listen(engine, "connect", _use_utc)
    event.listen(engine, "checkin", _forget_mode)
    return engine


@contextmanager
def reading_session(
    engine: Engine, *, sees_one_state: bool = False, timeout_s: float | None = None
) -> Iterator[Session]:
    """A read-only session.

    Args:
        engine: Of a store with a current schema.
        sees_one_state: All statements see one snapshot; otherwise each sees what is there by then.
        timeout_s: Maximum per statement; no bound if None.
    """
    modes: dict[str, Any] = {"postgresql_readonly": True}
    if sees_one_state:
        modes["isolation_level"] = "REPEATABLE READ"
    with engine.connect().execution_options(**modes) as connection, connection.begin():
        if timeout_s is not None:
            connection.execute(text(f"SET LOCAL statement_timeout = {round(timeout_s * 1_000)}"))
        with Session(connection) as session:
            yield session


@contextmanager
def analysis_lock(engine: Engine, project: str) -> Iterator[None]:
    """Keep other analyses of a project waiting, whatever process they are in.

    A transaction on a connection of its own holds the lock: so it works behind a proxy that pools transactions, is
    released when the process is killed, and keeps no rows from being vacuumed.
    """
    # beside the pool, which may have only one connection
    lone = make_engine(engine.url, poolclass=NullPool, isolation_level="READ COMMITTED")
    with lone.connect() as holder, holder.begin():
        holder.execute(_NO_TIMEOUTS)
        key = {"lock": ANALYSIS, "project": project}
        holder.execute(text("SELECT pg_advisory_xact_lock(:lock, hashtext(:project))"), key)
        # a query with parameters keeps its snapshot until the next one; this has neither
        holder.execute(text("SET LOCAL statement_timeout = 0"))
        yield


def connections_of(engine: Engine) -> int:
    """Maximum connections of an engine of `open_store`."""
    assert isinstance(engine.pool, QueuePool)
    return engine.pool.size()


def driver_connection(connection: Any) -> psycopg.Connection:
    """The driver's own connection of one of SQLAlchemy's."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


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
    return parsed.set(drivername=_DRIVER, query=_DEFAULTS | dict(parsed.query))


def _use_utc(connection: psycopg.Connection, _: object) -> None:
    # a record's times read back as they were written, wherever the server is
    connection.execute("SET TIME ZONE 'UTC'")
    connection.commit()


def _forget_mode(connection: psycopg.Connection | None, _: object) -> None:
    # a transaction that is said to write is refused by a replica, even to who only reads in it
    if connection is not None and not connection.closed:
        connection.read_only = None
