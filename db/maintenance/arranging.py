"""Months that have ended, put in an order that both large questions read quickly.

Rows come in run by run: the cases of a run lie side by side, the points of a series on as many pages as there are runs.
`arrange` writes the measurements of a month anew in *tiles*: runs that follow each other on one runner class of a
project, in the order of their series. As many runs make a tile as have 32,000 measurements together, and sixteen at
least. The points of a series in them lie side by side then, and a run lies on the tile's 400 pages at most, or on
sixteen times as many as before where it is a large one.

What comes in later lies at the end, as it would have. When that is much, the month is arranged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

from sqlalchemy import Engine, text

from roofwatch.db.maintenance.rewriting import TILED, rewrite
from roofwatch.db.schema.partitions import list_partitions, next_month
from roofwatch.db.schema.records import MeasurementRow

_TABLE = MeasurementRow.__tablename__
_SAMPLED_RUNS = 100
"""Of a month, to see how its rows lie."""
_ROWS_OF_A_PAGE = 64
"""At least, where none has a message."""
_SCATTERED = 2.0
"""Times the pages that would do; a month that takes fewer is not worth writing anew."""


@dataclass(frozen=True)
class Arranged:
    """A month, and on how many pages of the table a series lay and lies: the mean of some."""

    month: date
    row_count: int
    pages_before: float
    pages_after: float


@dataclass(frozen=True)
class _Lying:
    pages: float
    needed_pages: float

    @property
    def is_scattered(self) -> bool:
        return self.pages > _SCATTERED * self.needed_pages


def arrange(
    engine: Engine,
    *,
    now: datetime,
    is_dry_run: bool = False,
    patience_s: float = 600.0,
    on_progress: Callable[[date], None] = lambda _month: None,
) -> list[Arranged]:
    """Arrange each month that has ended and whose rows lie scattered, and leave the others as they are.

    A month needs as much free disk as it takes until it is done. Ingest and questions go on meanwhile.

    Args:
        engine: Of a store with a current schema, as the owner of the tables.
        now: The time.
        is_dry_run: Only look; the pages after are then those that would do.
        patience_s: How long to wait for transactions that are open when a month is to be exchanged.
        on_progress: Told each month that is about to be arranged.

    Returns:
        The months that were arranged, or would have been, oldest first.

    Raises:
        StoreError: a month cannot be exchanged, because somebody's transaction does not end; those before it are done.
    """
    arranged = []
    for partition, month in _ended_months(engine, now):
        before = _look(engine, partition, month)
        if before is None or not before.is_scattered:
            continue
        on_progress(month)
        if is_dry_run:
            after: _Lying | None = None
        else:
            rewrite(engine, _TABLE, month, patience_s=patience_s)
            after = _look(engine, partition, month)
        pages_after = before.needed_pages if after is None else after.pages
        arranged.append(Arranged(month, _row_count(engine, partition), before.pages, pages_after))
    return arranged


def _ended_months(engine: Engine, now: datetime) -> Iterator[tuple[str, date]]:
    today = now.astimezone(UTC).date()
    with engine.connect() as connection:
        partitions = list(list_partitions(connection, _TABLE))
    for partition, month in partitions:
        if next_month(month) <= today:
            yield partition, month


def _look(engine: Engine, partition: str, month: date) -> _Lying | None:
    """How one series each of some runs lies; None where nothing does.

    A row's address is read as a point, whose first half is the page: Postgres has no function for that.
    """
    query = text(
        f"""
        WITH sampled AS (
            SELECT DISTINCT ON (series_id) series_ids[1 + number % cardinality(series_ids)] AS series_id, tile_runs
            FROM (
                SELECT * FROM ({TILED}) tiled
                WHERE cardinality(series_ids) > 0
                ORDER BY hashint4(number) LIMIT {_SAMPLED_RUNS}
            ) chosen
        ), lying AS (
            SELECT count(DISTINCT (lain.ctid::text::point)[0]) AS pages,
                ceil(count(*) / least(min(tile_runs), {_ROWS_OF_A_PAGE})) AS needed_pages
            FROM {partition} lain JOIN sampled USING (series_id) GROUP BY series_id
        )
        SELECT avg(pages) AS pages, avg(needed_pages) AS needed_pages FROM lying
        """
    )
    with engine.connect() as connection:
        lying = connection.execute(query, {"first": month, "next": next_month(month)}).one()
    return None if lying.pages is None else _Lying(float(lying.pages), float(lying.needed_pages))


def _row_count(engine: Engine, partition: str) -> int:
    """As the server estimates it."""
    query = text("SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = to_regclass(:partition)")
    with engine.connect() as connection:
        return int(connection.execute(query, {"partition": partition}).scalar_one())
