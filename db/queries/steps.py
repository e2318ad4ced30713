"""Shares of functions in the steps of workloads, and the functions of a kernel, to predict what a change costs."""

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from roofwatch.collector.record.metrics import SHARE_OF_STEP
from roofwatch.db.queries.question import Word
from roofwatch.db.queries.results import KernelFunction, StepShare
from roofwatch.db.queries.run_filter import is_in_series, project_id
from roofwatch.db.schema.measurements import ImportedRow, StaticFactRow
from roofwatch.db.schema.runs import CaseRow, EnvironmentRow, ProjectRow, RunRow


def list_step_shares(session: Session, project: Word, runner_class: Word) -> list[StepShare]:
    """List the shares of each step in its newest run on a runner class."""
    newest = (
        select(ImportedRow.case_id, ImportedRow.implementation, ImportedRow.run_number)
        .join(CaseRow, CaseRow.id == ImportedRow.case_id)
        .join(RunRow, RunRow.number == ImportedRow.run_number)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            is_in_series(project, include_pairs=True),
            CaseRow.project_id == project_id(project),
            ImportedRow.metric.startswith(SHARE_OF_STEP),
            EnvironmentRow.runner_class == runner_class,
        )
        .ext(distinct_on(ImportedRow.case_id, ImportedRow.implementation))
        .order_by(ImportedRow.case_id, ImportedRow.implementation, RunRow.started_at.desc(), RunRow.number.desc())
        .subquery("newest")
    )
    row = ImportedRow
    query = (
        select(CaseRow.name, row.implementation, row.metric, row.value, row.low, row.high)
        .join(CaseRow, CaseRow.id == row.case_id)
        .join(newest, (newest.c.case_id == row.case_id) & (newest.c.implementation == row.implementation))
        .where(row.run_number == newest.c.run_number, row.metric.startswith(SHARE_OF_STEP))
        .order_by(CaseRow.name, row.implementation, row.position)
    )
    return [
        StepShare(name, implementation, metric.removeprefix(SHARE_OF_STEP), value, *quartiles)
        for name, implementation, metric, value, *quartiles in session.execute(query)
        if value is not None
    ]


def list_functions(session: Session, project: Word, kernel: Word) -> list[KernelFunction]:
    """List the compiled functions of a kernel's cases."""
    query = (
        select(CaseRow.name, StaticFactRow.implementation, StaticFactRow.function)
        .join(CaseRow, CaseRow.id == StaticFactRow.case_id)
        .where(CaseRow.project_id == project_id(project), CaseRow.kernel == kernel)
        .distinct()
    )
    return [KernelFunction(*row) for row in session.execute(query)]
