"""The lock under which a project is analysed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, NullPool, text

from roofwatch.db.engine.session import make_engine

ANALYSIS = 7_001_003
"""Key of the lock, with the project's name."""

# the role or the database may have set limits; the last is new in Postgres 17
_NO_TIMEOUTS = text(
    """
    SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN
        ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
    """
)


@contextmanager
def analysis_lock(engine: Engine, project: str) -> Iterator[None]:
    """Keep other analyses of a project waiting, whatever process they are in.

    A transaction on a connection of its own holds the lock: so it works behind a proxy that pools transactions, is
    released when the process is killed, and keeps no rows from being vacuumed.
    """
    key = {"lock": ANALYSIS, "project": project}
    # a connection beside the pool, which may have only one
    lone = make_engine(engine.url, poolclass=NullPool, isolation_level="READ COMMITTED")
    with lone.connect() as holder, holder.begin():
        holder.execute(_NO_TIMEOUTS)
        holder.execute(text("SELECT pg_advisory_xact_lock(:lock, hashtext(:project))"), key)
        # a query with parameters keeps its snapshot until the next one; this has neither
        holder.execute(text("SET LOCAL statement_timeout = 0"))
        yield
