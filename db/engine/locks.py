"""Locks of the server that are held for the time of a `with` block, whatever else is done in it and by whom.

Each is held by a transaction on a connection of its own, which does nothing else. So a proxy that hands each
transaction to another connection of the server keeps it where the lock is, and whoever is killed lets go of it. The
transaction holds no snapshot: it neither keeps rows from being vacuumed nor has read anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, NullPool, text

from roofwatch.db.engine.session import make_engine

JUDGING = 7_001_003
"""Judgements of one project wait for each other under this and the project's name."""
REWRITING = 7_340_583
"""Any number, the same in every version: one rewrites at a time."""
IS_HELD_BY = f"""
    locktype = 'advisory'
    AND (classid = {JUDGING} AND objsubid = 2 OR classid = 0 AND objid = {REWRITING} AND objsubid = 1)
"""
"""Condition on rows of `pg_locks`: whose transaction holds one of these, or waits for it, and nothing else."""

# what the role or the database bounds for others; the last is not there before Postgres 17
_TAKE_AS_LONG_AS_IT_TAKES = text(
    """
    SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN
        ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
    """
)


@contextmanager
def judging_alone(engine: Engine, project: str) -> Iterator[None]:
    """Keep other judgements of a project waiting, whatever process they are in."""
    key = {"lock": JUDGING, "project": project}
    with _holding(engine, "SELECT pg_advisory_xact_lock(:lock, hashtext(:project))", key):
        yield


@contextmanager
def rewriting_alone(engine: Engine) -> Iterator[bool]:
    """Whether nobody else rewrites a month; then nobody comes to for the time of the block."""
    with _holding(engine, "SELECT pg_try_advisory_xact_lock(:lock)", {"lock": REWRITING}) as is_held:
        yield bool(is_held)


@contextmanager
def _holding(engine: Engine, question: str, key: dict[str, object]) -> Iterator[object]:
    """What the server answered."""
    # a connection beside the pool: who has but one in it can go on
    lone = make_engine(engine.url, poolclass=NullPool, isolation_level="READ COMMITTED")
    with lone.connect() as holder, holder.begin():
        holder.execute(_TAKE_AS_LONG_AS_IT_TAKES)
        answer = holder.scalar(text(question), key)
        # a question that was sent with values keeps its snapshot until the next; this one has neither
        holder.execute(text("SET LOCAL statement_timeout = 0"))
        yield answer
