"""What makes a case and implementation worth reading whole: machine code that changed, and checks that failed."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.queries.branch import numbered_runs
from roofwatch.db.schema.measurements import AccuracyRow, CompilationRow, StaticFactRow
from roofwatch.db.schema.runs import CaseRow


def list_changed_code(session: Session, project: str, row_ids: Collection[int]) -> set[tuple[str, str]]:
    """Cases and implementations with a function whose machine code differs between two runs."""
    runs = numbered_runs(project, include_pairs=True)
    query = (
        select(CaseRow.name, StaticFactRow.implementation)
        .select_from(CompilationRow)
        .join(runs, runs.c.run_number == CompilationRow.run_number)
        .join(StaticFactRow, StaticFactRow.id == CompilationRow.static_fact_id)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(StaticFactRow.case_id.in_(row_ids))
        .group_by(CaseRow.name, StaticFactRow.implementation, StaticFactRow.function, StaticFactRow.target)
        .having(func.count(func.distinct(func.coalesce(StaticFactRow.code_hash, ""))) > 1)
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


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
