"""What ties the rows of a run's results to it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import NamedTuple

from sqlalchemy import Connection, func, select

_NEXT_NUMBER = select(func.nextval(func.pg_get_serial_sequence("run", "number")))


class RunKey(NamedTuple):
    """What each of them begins with."""

    number: int
    measured_on: date
    """The day in UTC, by which the tables are partitioned."""


def new_key(connection: Connection, started_at: datetime) -> RunKey:
    """A number that no other run has, and the day on which the run began."""
    return RunKey(connection.execute(_NEXT_NUMBER).scalar_one(), started_at.astimezone(UTC).date())
