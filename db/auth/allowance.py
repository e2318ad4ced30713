"""How often somebody may ask, counted once for all processes that use one database: a bucket for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, delete, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from roofwatch.db.schema.access import AllowanceRow

_FORGOTTEN_AFTER = timedelta(days=1)
"""By then a bucket is full again, as one that is not there."""


@dataclass(frozen=True)
class Bucket:
    per_s: float
    """How many come back."""
    most: int
    """How many it holds, and has at first."""


@dataclass(frozen=True)
class Taken:
    count: int
    wait_s: float
    """Until there will be one, where there was none."""


def take(engine: Engine, name: str, wanted: int, bucket: Bucket, now: datetime) -> Taken:
    """Take so many out of a bucket, or as many as it has. Those who take from one follow each other.

    Args:
        engine: Of a store with a current schema.
        name: Of the bucket.
        wanted: How many.
        bucket: How it fills.
        now: The time, by the clock of whoever asks: one that is behind another's fills nothing.
    """
    row = AllowanceRow
    with engine.begin() as connection:
        # of what a crash takes along nobody will ask
        connection.execute(text("SET LOCAL synchronous_commit = off"))
        new = upsert(row).values(name=name, level=bucket.most, filled_at=now).on_conflict_do_nothing()
        if connection.execute(new).rowcount:
            connection.execute(delete(row).where(row.filled_at < now - _FORGOTTEN_AFTER))
        known = connection.execute(select(row.level, row.filled_at).where(row.name == name).with_for_update()).one()
        elapsed_s = max(0.0, (now - known.filled_at).total_seconds())
        level = min(float(bucket.most), known.level + elapsed_s * bucket.per_s)
        count = min(wanted, math.floor(level))
        values = {"level": level - count, "filled_at": max(now, known.filled_at)}
        connection.execute(update(row).where(row.name == name).values(values))
    return Taken(count, 0.0 if count else (1 - level) / bucket.per_s)
