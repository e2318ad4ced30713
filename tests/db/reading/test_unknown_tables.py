"""Questions to tables that Postgres has no statistics of yet, as right after much was stored: those come later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from tests.db.reading import test_plans
from tests.db.reading.test_plans import KEY, OTHERS, SHAPE, populated

__all__ = ["populated"]  # a fixture

FORGET = (
    "DELETE FROM pg_statistic",
    "UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE relkind IN ('r', 'p', 'i')",
)
"""Done in a transaction that is rolled back."""
TIMES_THE_BLOCKS, MORE_BLOCKS = 8, 2_500
"""That a question may read of the store beyond what it reads with statistics: of these tables, a few look-ups of each
row of the answer. A plan that looks into all runs for each series, or into all results for each run, reads ten times
that of a store as small as this.
"""
LOOKED_UP_ONE_BY_ONE = {"list_triaged", "list_regressions"}
"""Of 2,000 change points the case and both commits: as many blocks as that are left, whoever else is in the store."""
QUESTIONS = {
    name: ask
    for name, ask in test_plans.QUESTIONS.items()
    if name not in {"note_unreachable", "claim_next"} | LOOKED_UP_ONE_BY_ONE  # the first two ask beside the session
}


@pytest.fixture(autouse=True)
def _asked_of_the_project_that_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    project = SHAPE.project(OTHERS[-1])
    monkeypatch.setattr(test_plans, "PROJECT", project)
    monkeypatch.setattr(test_plans, "KEY", replace(KEY, project=project))


def blocks_read(engine: Engine, ask: Callable[[Session], object], *, is_known: bool) -> int:
    """Blocks of tables and indexes, of 8 KiB, that the statements of a question look into, however often each."""
    counts = []

    def note(_: Connection, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if statement.startswith(("SELECT", "WITH", "(SELECT")):
            with psycopg.ClientCursor(cursor.connection) as beside:
                beside.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}".encode(), parameters)
                plan = beside.fetchall()[0][0][0]["Plan"]
            counts.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    with engine.connect() as connection, connection.begin() as transaction:
        for statement in () if is_known else FORGET:
            connection.execute(text(statement))
        event.listen(connection, "before_cursor_execute", note)
        with Session(connection) as session:
            ask(session)
        transaction.rollback()
    assert counts
    return sum(counts)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_reads_little_more_where_there_are_no_statistics(populated: Engine, question: str) -> None:
    ask = QUESTIONS[question]
    most = TIMES_THE_BLOCKS * blocks_read(populated, ask, is_known=True) + MORE_BLOCKS
    assert blocks_read(populated, ask, is_known=False) <= most
