"""Room on the server's disk."""

from __future__ import annotations

from psycopg.errors import DiskFull
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from roofwatch.db.errors import FullDiskError

_ROWS = 30_000
"""About a megabyte: what is left of a full disk is less."""


def is_full(error: BaseException) -> bool:
    """Whether something failed because the server's disk is full."""
    return isinstance(error, FullDiskError) or (isinstance(error, DBAPIError) and isinstance(error.orig, DiskFull))


def has_room(engine: Engine) -> bool:
    """Whether a megabyte can be written: into a table that nobody else sees and that is gone afterwards."""
    try:
        with engine.begin() as connection:
            connection.execute(
                text(f"CREATE TEMPORARY TABLE tried ON COMMIT DROP AS SELECT generate_series(1, {_ROWS})")
            )
    except DBAPIError as error:
        if is_full(error):
            return False
        raise
    return True
