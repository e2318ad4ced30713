"""Open the store: the database that a URL names, or the embedded one of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError

from db import embedded, migrate
from db.errors import StoreError

_CONNECT_TIMEOUT_S = 5
_DRIVER = "postgresql+psycopg"


@contextmanager
def open_store(url: str | None = None, *, folder: Path | None = None) -> Iterator[Engine]:
    """Open the store for the time of a `with` block.

    Args:
        url: Of a Postgres that somebody runs; its schema must be current.
        folder: Where the embedded Postgres lives, for when no url is given. It is created, started and brought up to
            date as needed, and stopped when nobody uses it any more.

    Raises:
        StoreError: the database cannot be reached, is not up to date, or was lost inside the block.
    """
    if url is not None:
        with _connected(parse_url(url)) as engine:
            migrate.ensure_current(engine)
            yield engine
    elif folder is not None:
        with embedded.start(folder) as server, _connected(server.url) as engine:
            migrate.upgrade(engine)
            yield engine
    else:
        raise StoreError(
            "no database: give its URL, postgresql://user:password@host/name, or a folder for the embedded one"
        )


@contextmanager
def open_server(url: str) -> Iterator[Engine]:
    """Open a database that somebody runs, whatever the state of its schema: to upgrade it.

    Raises:
        StoreError: it cannot be reached, or was lost inside the block.
    """
    with _connected(parse_url(url)) as engine:
        yield engine


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
    if "connect_timeout" not in parsed.query:
        parsed = parsed.update_query_dict({"connect_timeout": str(_CONNECT_TIMEOUT_S)})
    return parsed


@contextmanager
def _connected(url: URL) -> Iterator[Engine]:
    # a dashboard outlives restarts of the server: each connection is tried before use
    engine = create_engine(url, pool_pre_ping=True)
    event.listen(engine, "connect", _use_utc)
    where = f"database {url.database!r} on {url.host}:{url.port or 5432}"
    try:
        try:
            engine.connect().close()
        except (OperationalError, InterfaceError) as error:
            raise StoreError(
                f"{where}: cannot be reached: {_reason(error)}; start it, or correct the database URL"
            ) from None
        try:
            yield engine
        except (OperationalError, InterfaceError) as error:
            raise StoreError(f"{where}: lost: {_reason(error)}; nothing half-done was kept: try again") from None
    finally:
        engine.dispose()


def _use_utc(connection: psycopg.Connection, _: object) -> None:
    """A record's times read back as they were written, wherever the server is."""
    connection.execute("SET TIME ZONE 'UTC'")
    connection.commit()


def _reason(error: OperationalError | InterfaceError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__
