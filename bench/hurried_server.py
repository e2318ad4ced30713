"""An embedded server that fills its databases without what keeps them safe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, inspect, text

from roofwatch.db.schema.results import MeasurementRow
from roofwatch.db.schema.table import Base

_TABLE = MeasurementRow.__tablename__
_INDEXES = sorted(Base.metadata.tables[_TABLE].indexes, key=lambda index: str(index.name))
_HURRY = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_wal_size": "'8GB'",
    "checkpoint_timeout": "'1h'",
}


def has_indexes(engine: Engine) -> bool:
    """Whether those of the measurements are there: where filling was cut short, they are not."""
    there = {index["name"] for index in inspect(engine).get_indexes(_TABLE)}
    return all(index.name in there for index in _INDEXES)


@contextmanager
def hurrying(engine: Engine) -> Iterator[None]:
    """For the time of a `with` block nothing is synced, and measurements have no indexes: these are built at its end.

    The server's databases are lost if the machine fails meanwhile.
    """
    _set(engine, [f"SET {name} = {value}" for name, value in _HURRY.items()])
    with engine.begin() as connection:
        for index in _INDEXES:
            index.drop(connection, checkfirst=True)
    yield
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL maintenance_work_mem = '1GB'"))
        for index in _INDEXES:
            index.create(connection)
    _set(engine, [f"RESET {name}" for name in _HURRY])
    with engine.connect() as connection:
        connection.execute(text("CHECKPOINT"))
    os.sync()


def _set(engine: Engine, settings: Iterable[str]) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for setting in settings:
            connection.execute(text(f"ALTER SYSTEM {setting}"))
        connection.execute(text("SELECT pg_reload_conf()"))
