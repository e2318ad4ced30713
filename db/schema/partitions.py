"""Partitions of the tables that grow with every run: one for each month, and one for days that no clock should show.

A month, because raw samples age out by whole partitions, and nobody wants to keep a year more than was asked for; and
because ten years are then 120 partitions, which Postgres still plans over in milliseconds. A partition is made before
the first run of its month is stored, with the one of the month after, so that an ingest seldom waits for one.

Partitions live in a schema of their own: whoever may read the tables may read them through these, whatever is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

from psycopg.errors import InsufficientPrivilege, LockNotAvailable
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

PARTITIONED = (
    *("measurement", "sample_set", "accuracy", "tensor_error", "compilation"),
    *("counters", "profile", "profile_row"),
)
SCHEMA = "partitions"

FIRST_DAY = date(2007, 1, 1)
"""Before CUDA there was nothing to measure."""
AHEAD = timedelta(days=400)
"""A clock that is more wrong than this is not believed."""
_LOCK = 7_340_582
"""Any number, the same in every version: what two that make partitions queue for."""
_PATIENCE = "3s"


LACKING = f"""
(
    SELECT count(*) FROM pg_class
    WHERE relname = ANY(CAST(:partitions AS name[])) AND relnamespace = to_regnamespace('{SCHEMA}') AND relispartition
) < cardinality(CAST(:partitions AS name[]))
"""
"""SQL that says whether one of some `partitions` is not there, for who asks for something else as well."""


def partitions_for(day: date) -> dict[str, tuple[str, date]]:
    """What is to be there before a run of a day is stored, by its name: a partition of the month and of the next, of
    every table; nothing for a day that no clock should show.
    """
    if not FIRST_DAY <= day <= datetime.now(UTC).date() + AHEAD:
        return {}
    months = (day.replace(day=1), next_month(day))
    return {partition_name(table, month): (table, month) for month in months for table in PARTITIONED}


def ensure_partitions(engine: Engine, day: date) -> None:
    """Have a partition for the month of a day and for the next, in every table; takes one query where they are there.

    Where none can be made, because the account may not or because a long query is in the way, what is stored meanwhile
    lands in the default partition, and moves when the partition is made.
    """
    wanted = partitions_for(day)
    if not wanted:
        return
    # a question alone needs no transaction, which would be begun and ended by a statement each
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        there = _names(connection)
    missing = [made for name, made in wanted.items() if name not in there]
    for table, month in missing:
        # one by one: whoever holds the lock of one table never waits for another's
        try:
            with engine.begin() as connection:
                _make(connection, table, month)
        except DBAPIError as error:
            if not isinstance(error.orig, (LockNotAvailable, InsufficientPrivilege)):
                raise


def list_partitions(connection: Connection, table: str) -> Iterator[tuple[str, date]]:
    """Partitions of a table but the default one, each with the first day of its month, oldest first."""
    for name in sorted(_names(connection)):
        stem, _, month = name.partition(f"{table}_")
        if not stem and month[:1].isdigit():
            year, number = month.split("_")
            yield f"{SCHEMA}.{name}", date(int(year), int(number), 1)


def partition_name(table: str, month: date) -> str:
    """Name of the partition, without its schema."""
    return f"{table}_{month:%Y_%m}"


def next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _names(connection: Connection) -> set[str]:
    query = text(
        "SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = oid "
        "WHERE relnamespace = to_regnamespace(:schema) AND relkind = 'r'"
    )
    return set(connection.scalars(query, {"schema": SCHEMA}))


def _make(connection: Connection, table: str, month: date) -> None:
    """Attached, not created as a partition: that would lock readers of the table out."""
    connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE}'"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    name = partition_name(table, month)
    if name in _names(connection):
        return
    limits = f"'{month}' AND measured_on < '{next_month(month)}'"
    connection.execute(text(f"LOCK TABLE ONLY {table} IN SHARE UPDATE EXCLUSIVE MODE"))
    connection.execute(text(f"LOCK TABLE {SCHEMA}.{table}_default IN ACCESS EXCLUSIVE MODE"))
    connection.execute(text(f"CREATE TABLE {SCHEMA}.{name} (LIKE {table} INCLUDING ALL)"))
    connection.execute(
        text(
            f"WITH moved AS (DELETE FROM {SCHEMA}.{table}_default WHERE measured_on >= {limits} RETURNING *) "
            f"INSERT INTO {SCHEMA}.{name} SELECT * FROM moved"
        )
    )
    connection.execute(
        text(
            f"ALTER TABLE {table} ATTACH PARTITION {SCHEMA}.{name} "
            f"FOR VALUES FROM ('{month}') TO ('{next_month(month)}')"
        )
    )
