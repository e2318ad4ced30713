"""Machine code by case and implementation: whether it ever changed, and what it is now. Functions and targets are put
together inside the database, so that what comes out is a line for each.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, literal, select, true
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session

from collector.part import Outcome
from db.reading.branch import numbered_runs
from db.tables.records import AccuracyRow, CaseRow, CompilationRow, StaticFactRow


@dataclass(frozen=True)
class Code:
    """All compiled functions of a case and implementation, for all targets."""

    row_id: int
    """Of the case."""
    has_changed: bool
    """In any run."""
    newest: str
    """A fingerprint of each function's newest machine code; where compiling failed, of that it did."""


def read_codes(
    session: Session,
    project: str,
    *,
    row_ids: Collection[int] | None = None,
    run_numbers: Collection[int] | None = None,
) -> dict[tuple[str, str], Code]:
    """What is known of machine code: of some cases, or as some runs alone found it."""
    runs = numbered_runs(project, include_pairs=True)
    code = func.coalesce(StaticFactRow.code_hash, "")
    newest = func.array_agg(aggregate_order_by(code, runs.c.number.desc()))
    by_function = (
        select(
            CaseRow.name,
            StaticFactRow.implementation,
            StaticFactRow.case_id,
            StaticFactRow.function,
            StaticFactRow.target,
            (func.count(func.distinct(code)) > 1).label("has_changed"),
            newest[1].label("newest"),
        )
        .select_from(CompilationRow)
        .join(runs, runs.c.run_number == CompilationRow.run_number)
        .join(StaticFactRow, StaticFactRow.id == CompilationRow.static_fact_id)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(
            _is_of(row_ids),
            true() if run_numbers is None else CompilationRow.run_number.in_(run_numbers),
        )
        .group_by(
            CaseRow.name,
            StaticFactRow.implementation,
            StaticFactRow.case_id,
            StaticFactRow.function,
            StaticFactRow.target,
        )
        .subquery()
    )
    said = func.concat_ws("\x1f", by_function.c.function, by_function.c.target, by_function.c.newest)
    together = func.string_agg(said, aggregate_order_by(literal("\x1e"), by_function.c.function, by_function.c.target))
    by = (by_function.c.name, by_function.c.implementation, by_function.c.case_id)
    query = select(*by, func.bool_or(by_function.c.has_changed), func.md5(together)).group_by(*by)
    return {(name, implementation): Code(*known) for name, implementation, *known in session.execute(query)}


def _is_of(row_ids: Collection[int] | None) -> ColumnElement[bool]:
    if row_ids is None:
        return true()
    if isinstance(row_ids, range):
        # What a run compiled is found by the run. The sum keeps Postgres from going by the cases, and reading whatever
        # any run compiled of them, as it does where it has no statistics yet.
        return (StaticFactRow.case_id + 0).between(row_ids.start, row_ids.stop - 1)
    return StaticFactRow.case_id.in_(row_ids)


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
