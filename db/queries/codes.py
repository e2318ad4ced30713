"""Machine code by case and implementation: whether it ever changed, and what it is now. Functions and targets are put
together inside the database, so that what comes out is a line for each.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import Select, func, literal, select, true
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session

from roofwatch.collector.record.part import Outcome
from roofwatch.db.queries.branch import numbered_runs
from roofwatch.db.schema.records import AccuracyRow, CaseRow, CompilationRow, StaticFactRow


@dataclass(frozen=True)
class Code:
    """All compiled functions of a case and implementation, for all targets."""

    row_id: int
    """Of the case."""
    has_changed: bool
    """In any run."""
    newest: str
    """A fingerprint of each function's newest machine code; where compiling failed, of that it did."""


def read_codes(session: Session, project: str, *, row_ids: Collection[int]) -> dict[tuple[str, str], Code]:
    """What is known of machine code of some cases."""
    runs = numbered_runs(project, include_pairs=True)
    found = (
        select(runs.c.number, *_OF_FACT)
        .select_from(CompilationRow)
        .join(runs, runs.c.run_number == CompilationRow.run_number)
        .join(StaticFactRow, StaticFactRow.id == CompilationRow.static_fact_id)
        .where(StaticFactRow.case_id.in_(row_ids))
    )
    return _put_together(session, found)


def read_codes_of_runs(
    session: Session, project: str, *, run_numbers: Collection[int], days: Collection[date], row_ids: range
) -> dict[tuple[str, str], Code]:
    """What some runs alone found of machine code, of the cases in some rows.

    Args:
        session: Of the store.
        project: Its name.
        run_numbers: Of the runs.
        days: On which they began.
        row_ids: Row ids of the cases.
    """
    numbered = numbered_runs(project, include_pairs=True)
    runs = select(numbered).where(numbered.c.run_number.in_(run_numbers)).offset(0).subquery("runs")
    # From a run to what it compiled, and from there to the facts, each by a look into an index. Of a join Postgres
    # chooses the order, and looked in all months for whatever any run had compiled of the cases.
    compiled = (
        select(CompilationRow.static_fact_id)
        .where(CompilationRow.run_number == runs.c.run_number, CompilationRow.measured_on.in_(days))
        .offset(0)
        .lateral("compiled")
    )
    fact = (
        select(*_OF_FACT)
        .where(
            StaticFactRow.id == compiled.c.static_fact_id,
            StaticFactRow.case_id.between(row_ids.start, row_ids.stop - 1),
        )
        .offset(0)
        .lateral("fact")
    )
    found = select(runs.c.number, *fact.c).select_from(runs).join(compiled, true()).join(fact, true())
    return _put_together(session, found)


_OF_FACT = (
    StaticFactRow.case_id,
    StaticFactRow.implementation,
    StaticFactRow.function,
    StaticFactRow.target,
    func.coalesce(StaticFactRow.code_hash, "").label("code"),
)


def _put_together(session: Session, found: Select[Any]) -> dict[tuple[str, str], Code]:
    """Of facts with the number of a run that found them, by case and implementation."""
    fact = found.subquery("found").c
    newest = func.array_agg(aggregate_order_by(fact.code, fact.number.desc()))
    by = (CaseRow.name, fact.implementation, fact.case_id, fact.function, fact.target)
    by_function = (
        select(*by, (func.count(func.distinct(fact.code)) > 1).label("has_changed"), newest[1].label("newest"))
        .join(CaseRow, CaseRow.id == fact.case_id)
        .group_by(*by)
        .subquery()
    )
    said = func.concat_ws("\x1f", by_function.c.function, by_function.c.target, by_function.c.newest)
    together = func.string_agg(said, aggregate_order_by(literal("\x1e"), by_function.c.function, by_function.c.target))
    subject = (by_function.c.name, by_function.c.implementation, by_function.c.case_id)
    query = select(*subject, func.bool_or(by_function.c.has_changed), func.md5(together)).group_by(*subject)
    return {(name, implementation): Code(*known) for name, implementation, *known in session.execute(query)}


def list_failed_checks(session: Session, project: str, row_ids: Collection[int]) -> set[tuple[str, str]]:
    """Cases and implementations whose check failed in any run."""
    runs = numbered_runs(project, include_pairs=True)
    query = (
        select(CaseRow.name, AccuracyRow.implementation)
        .select_from(AccuracyRow)
        .join(CaseRow, CaseRow.id == AccuracyRow.case_id)
        .join(runs, runs.c.run_number == AccuracyRow.run_number)
        .where(AccuracyRow.case_id.in_(row_ids), AccuracyRow.outcome != Outcome.OK.value)
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}
