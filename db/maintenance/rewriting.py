"""One month of the measurements written anew in tiles, beside the old one, and put in its place.

Readers and writers go on meanwhile: the new table is made and committed first, and the old one goes in a transaction
that only exchanges names. Two things make that safe. A run's measurements are written once, with the run, and never
changed, so what the new table lacks is told by the numbers of runs alone. And nobody may come to read the new table
with a view of the store from before its rows were committed, for that would show the month empty: so the exchange
waits until all transactions have ended that were there before, as Postgres itself does to build an index concurrently.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from roofwatch.db.engine.locks import IS_HELD_BY, rewriting_alone
from roofwatch.db.errors import StoreError
from roofwatch.db.schema.partitions import SCHEMA, next_month, partition_name
from roofwatch.db.schema.table import Base

TILE_ROWS = 32_000
"""On what some 400 pages hold: the most that a run of a tile lies on, however many runs it has."""
TILE_RUNS = 16
"""In a tile at least."""

_EXCHANGE_TRIES = 10
_LOCK_WAIT = "3s"
_POLL_S = 0.05
_MEMORY = "256MB"
"""To sort and to build indexes with."""

OF_MONTH = (
    "run.started_at >= CAST(:first AS timestamp) AT TIME ZONE 'UTC' "
    "AND run.started_at < CAST(:next AS timestamp) AT TIME ZONE 'UTC'"
)
"""Condition on runs: `measured_on` is the same, and has no index."""
TILED = f"""
    SELECT run.number, run.series_ids, place.*,
        row_number() OVER (PARTITION BY place ORDER BY run.started_at, run.number) - 1 AS at,
        greatest(
            {TILE_RUNS}, floor({TILE_ROWS} / greatest(1, avg(cardinality(run.series_ids)) OVER (PARTITION BY place)))
        ) AS tile_runs
    FROM run JOIN environment ON environment.id = run.environment_id,
    LATERAL (SELECT run.project_id, environment.runner_class, run.pair_id IS NULL AS is_alone) place
    WHERE {OF_MONTH}
"""
"""The runs of a month, each with its place among those it shares tiles with, and how many runs a tile has there."""
_NUMBERS = text(f"SELECT number FROM run WHERE {OF_MONTH}")


@dataclass(frozen=True)
class _Month:
    table: str
    first: date

    @property
    def limits(self) -> dict[str, date]:
        return {"first": self.first, "next": next_month(self.first)}

    @property
    def name(self) -> str:
        return partition_name(self.table, self.first)

    @property
    def old(self) -> str:
        return f"{SCHEMA}.{self.name}"

    @property
    def new(self) -> str:
        return f"{SCHEMA}.{self.name}_new"


def tile_runs(series_count: int) -> int:
    """How many runs a tile has where each has so many series."""
    return max(TILE_RUNS, TILE_ROWS // max(1, series_count))


def rewrite(engine: Engine, table: str, month: date, *, patience_s: float) -> None:
    """Write a month of a table anew, in tiles.

    Args:
        engine: Of a store with a current schema, as the owner of the tables.
        table: Partitioned, with columns `run_number` and `series_id`.
        month: Its first day; its partition must be there.
        patience_s: How long to wait for transactions that are open.

    Raises:
        StoreError: somebody's transaction does not end, or another rewrites; the month is as it was.
    """
    which = _Month(table, month)
    with (
        rewriting_alone(engine) as is_alone,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as beside,
    ):
        if not is_alone:
            raise StoreError(f"{which.old}: another process arranges months now; let it end")
        try:
            _rewrite(engine, beside, which, patience_s)
        finally:
            beside.execute(text(f"DROP TABLE IF EXISTS {which.new}"))


def _rewrite(engine: Engine, beside: Connection, month: _Month, patience_s: float) -> None:
    """`beside` is a connection that has no transaction open, and so waits for none of our own."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        numbers = set(connection.scalars(_NUMBERS, month.limits))
        _copy(connection, month)
    beside.execute(text(f"VACUUM (ANALYZE) {month.new}"))
    for _ in range(_EXCHANGE_TRIES):
        _wait_for_others(beside, month, patience_s)
        if _exchange(engine, month, numbers):
            return
        numbers = _catch_up(engine, month, numbers)
    raise StoreError(
        f"{month.old}: runs of this month keep coming in, or long questions are asked without a pause; arrange it later"
    )


def _copy(connection: Connection, month: _Month) -> None:
    """The rows as they are in the old table, in tiles; also those that belong to no run."""
    connection.execute(text(f"SET LOCAL work_mem = '{_MEMORY}'"))
    connection.execute(text(f"SET LOCAL maintenance_work_mem = '{_MEMORY}'"))
    connection.execute(text(f"DROP TABLE IF EXISTS {month.new}"))
    connection.execute(text(f"CREATE TABLE {month.new} (LIKE {month.table} INCLUDING ALL EXCLUDING INDEXES)"))
    # with it, putting the table in its place reads none of its rows
    connection.execute(
        text(
            f"ALTER TABLE {month.new} ADD CONSTRAINT month_of_rows "
            f"CHECK (measured_on >= '{month.first}' AND measured_on < '{next_month(month.first)}')"
        )
    )
    connection.execute(
        text(
            f"""
            INSERT INTO {month.new} ({_columns(month.table)})
            SELECT {_columns(month.table)} FROM {month.old} LEFT JOIN ({TILED}) tiled ON tiled.number = run_number
            ORDER BY project_id, runner_class, is_alone, floor(at / tile_runs), series_id, run_number
            """
        ),
        month.limits,
    )
    for column in _indexed_columns(month.table):
        connection.execute(text(f"CREATE INDEX {month.name}_new_{column} ON {month.new} ({column})"))


def _catch_up(engine: Engine, month: _Month, known: set[int]) -> set[int]:
    """Bring along what came and went since; the numbers of the runs that the new table has then."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        numbers = set(connection.scalars(_NUMBERS, month.limits))
        gone, come = {"numbers": list(known - numbers)}, {"numbers": list(numbers - known)}
        connection.execute(text(f"DELETE FROM {month.new} WHERE run_number = ANY(:numbers)"), gone)
        columns = _columns(month.table)
        found = f"SELECT {columns} FROM {month.old} WHERE run_number = ANY(:numbers)"
        connection.execute(text(f"INSERT INTO {month.new} ({columns}) {found}"), come)
    return numbers


def _wait_for_others(beside: Connection, month: _Month, patience_s: float) -> None:
    """Until every transaction that is open now has ended."""
    # the server's own, which vacuum, have no user: these read nothing for anybody, as who only holds a lock
    open_now = text(
        "SELECT virtualtransaction FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'virtualxid' "
        "AND granted AND pid <> pg_backend_pid() AND datname = current_database() AND usesysid IS NOT NULL "
        f"AND pid NOT IN (SELECT pid FROM pg_locks WHERE {IS_HELD_BY})"
    )
    others = set(beside.scalars(open_now))
    deadline_s = time.monotonic() + patience_s
    while others:
        others &= set(beside.scalars(open_now))
        if time.monotonic() > deadline_s:
            raise StoreError(
                f"{month.old}: a transaction has been open for {patience_s:.0f} s, such as a backup or an export; "
                "arrange the months when it has ended"
            )
        time.sleep(_POLL_S)


def _exchange(engine: Engine, month: _Month, numbers: set[int]) -> bool:
    """Put the new table in the old one's place, if it has the same runs and nobody is in the way for long."""
    try:
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'"))
            # in the order in which whoever makes a partition takes them
            for locked in (month.table, f"{SCHEMA}.{month.table}_default", month.old):
                connection.execute(text(f"LOCK TABLE ONLY {locked} IN ACCESS EXCLUSIVE MODE"))
            if set(connection.scalars(_NUMBERS, month.limits)) != numbers:
                return False
            _put_in_place(connection, month)
    except OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        return False
    return True


def _put_in_place(connection: Connection, month: _Month) -> None:
    columns = _indexed_columns(month.table)
    statements = [
        f"DROP TABLE {month.old}",
        f"ALTER TABLE {month.new} RENAME TO {month.name}",
        *(f"ALTER INDEX {SCHEMA}.{month.name}_new_{column} RENAME TO {month.name}_{column}_idx" for column in columns),
        f"ALTER TABLE {month.table} ATTACH PARTITION {month.old} "
        f"FOR VALUES FROM ('{month.first}') TO ('{next_month(month.first)}')",
        f"ALTER TABLE {month.old} DROP CONSTRAINT month_of_rows",
    ]
    for statement in statements:
        connection.execute(text(statement))


def _columns(table: str) -> str:
    """By name: a partition may have them in an order of its own."""
    return ", ".join(Base.metadata.tables[table].columns.keys())


def _indexed_columns(table: str) -> Iterable[str]:
    return [
        ", ".join(column.name for column in index.columns)
        for index in sorted(Base.metadata.tables[table].indexes, key=lambda index: str(index.name))
    ]
