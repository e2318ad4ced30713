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


def new_number(connection: Connection) -> int:
    """That no other run has."""
    number: int = connection.execute(_NEXT_NUMBER).scalar_one()
    return number


def make_key(number: int, started_at: datetime) -> RunKey:
    """Of the run of that number, by the day on which it began."""
    return RunKey(number, started_at.astimezone(UTC).date())
