"""Monthly partitions of the tables of results, in a schema of their own."""

from __future__ import annotations

from datetime import date, timedelta

from sqlalchemy import Connection, Engine, text

PARTITIONED = (
    *("measurement", "sample_set", "accuracy", "tensor_error", "compilation"),
    *("counters", "profile", "profile_row"),
)
SCHEMA = "partitions"
_LOCK = 7_340_582
"""Key of the advisory lock for creating partitions."""
_NAMES = text("SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace(:schema) AND relispartition")


def ensure_partitions(engine: Engine, day: date) -> None:
    """Create the partitions of a day's month; one query if they exist."""
    month = day.replace(day=1)
    names = {f"{table}_{month:%Y_%m}": table for table in PARTITIONED}
    with engine.connect() as connection:
        if names.keys() <= list_partitions(connection):
            return
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        following = (month + timedelta(days=31)).replace(day=1)
        for name in sorted(names.keys() - list_partitions(connection)):
            table = names[name]
            # CREATE ... PARTITION OF would lock out readers of the table
            connection.execute(text(f"CREATE TABLE {SCHEMA}.{name} (LIKE {table} INCLUDING ALL)"))
            bounds = f"FROM ('{month}') TO ('{following}')"
            connection.execute(text(f"ALTER TABLE {table} ATTACH PARTITION {SCHEMA}.{name} FOR VALUES {bounds}"))


def list_partitions(connection: Connection) -> set[str]:
    """Names of all partitions, for example `measurement_2026_03`."""
    return set(connection.scalars(_NAMES, {"schema": SCHEMA}))
