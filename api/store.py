"""Questions to the store that may not take for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from api.limits import Limits


@contextmanager
def reading(engine: Engine, limits: Limits) -> Iterator[Session]:
    """A session that only reads, and sees one state of the store throughout."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True) as connection:
        connection.execute(text(f"SET LOCAL statement_timeout = {round(limits.query_s * 1_000)}"))
        with Session(connection) as session:
            yield session
