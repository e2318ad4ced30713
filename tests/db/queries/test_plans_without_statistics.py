"""Questions to tables that Postgres has no statistics of yet, as right after much was stored: those come later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

from tests.db.queries import test_plans
from tests.db.queries.test_plans import KEY, OTHERS, SHAPE, populated

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
ALWAYS_READ_ALIKE = {"read_time_columns"}
"""These read what they read with statistics, and a few pages more to find their runs: a third of what they read when
they looked for their series run by run."""
TIMES_ALIKE, MORE_ALIKE = 3, 100
MOST_IN_VAIN = 2_000
"""Rows that a statement may look at and not take: a fifth of what it is to hold each row of a run against each."""
HELD_AGAINST_EACH_OTHER = {
    *("list_runner_coverage", "list_runner_coverage of a branch"),
    *("load_record", "read_filter_options", "read_filter_options of the first", "read_series of a kernel"),
}
"""The last four only where there are no statistics."""
LOOKED_UP_ONE_BY_ONE = {"list_triaged"}
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


@dataclass(frozen=True)
class Effort:
    blocks: int
    """Of tables and indexes, of 8 KiB, that statements look into, however often each."""
    rows_in_vain: int
    """That a statement looks at and does not take, the most of any."""


def effort(engine: Engine, ask: Callable[[Session], object], *, is_known: bool) -> Effort:
    """What the statements of a question take."""
    plans: list[dict[str, Any]] = []

    def note(_: Connection, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if statement.startswith(("SELECT", "WITH", "(SELECT")):
            with psycopg.ClientCursor(cursor.connection) as beside:
                beside.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}".encode(), parameters)
                plans.append(beside.fetchall()[0][0][0]["Plan"])

    with engine.connect() as connection, connection.begin() as transaction:
        for statement in () if is_known else FORGET:
            connection.execute(text(statement))
        event.listen(connection, "before_cursor_execute", note)
        with Session(connection) as session:
            ask(session)
        transaction.rollback()
    assert plans
    blocks = sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans)
    return Effort(blocks, max(map(_rows_in_vain, plans)))


def _rows_in_vain(plan: dict[str, Any]) -> int:
    of_each_time = sum(plan.get(f"Rows Removed by {what}", 0) for what in ("Join Filter", "Filter"))
    return int(of_each_time * plan["Actual Loops"]) + sum(map(_rows_in_vain, plan.get("Plans", ())))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_reads_little_more_where_there_are_no_statistics(populated: Engine, question: str) -> None:
    times, more = (TIMES_ALIKE, MORE_ALIKE) if question in ALWAYS_READ_ALIKE else (TIMES_THE_BLOCKS, MORE_BLOCKS)
    known = effort(populated, QUESTIONS[question], is_known=True)
    unknown = effort(populated, QUESTIONS[question], is_known=False)
    assert unknown.blocks <= times * known.blocks + more
    if question not in HELD_AGAINST_EACH_OTHER:
        assert max(known.rows_in_vain, unknown.rows_in_vain) <= MOST_IN_VAIN
