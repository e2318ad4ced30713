"""When each runner of a project gave results, and its newest runs: of the default branch, in no quarantine."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.alerts.values import CaseError
from roofwatch.db.queries.filter_options import source_files_of
from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.schema.measurements import AccuracyRow, TensorErrorRow
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, ProjectRow, RunRow


@dataclass(frozen=True)
class RunnerRun:
    """A run as far as the rhythm of its runner goes."""

    run_id: UUID
    place: int
    """Of its commit on the branch."""
    started_at: datetime


def read_runner_history(session: Session, project: str) -> dict[str, list[RunnerRun]]:
    """The runs of a project by runner class, in the order of the branch, then of time."""
    query = (
        select(
            EnvironmentRow.runner_class,
            RunRow.run_id,
            CommitRow.first_parent_count,
            RunRow.started_at,
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(of_series(project, include_dirty=False, include_pairs=False, include_branches=False))
        .order_by(CommitRow.first_parent_count, CommitRow.sha, RunRow.started_at, RunRow.run_id)
    )
    runs: defaultdict[str, list[RunnerRun]] = defaultdict(list)
    for runner_class, run_id, place, started_at in session.execute(query):
        runs[runner_class].append(RunnerRun(run_id, place, started_at))
    return dict(runs)


def read_tags(session: Session, run_id: UUID) -> dict[str, frozenset[str]]:
    """The tags of a run's cases, by case id."""
    query = (
        select(CaseRow.name, CaseVersionRow.tags)
        .join(CaseRow, CaseRow.id == CaseVersionRow.case_id)
        .join(RunRow, CaseVersionRow.id == func.any(RunRow.case_version_ids))
        .where(RunRow.run_id == run_id)
    )
    return {name: frozenset(tags) for name, tags in session.execute(query)}


def list_case_errors(session: Session, run_id: UUID) -> tuple[CaseError, ...]:
    """The errors that a run's checks found, of those that passed."""
    passed = (
        (AccuracyRow.measured_on == TensorErrorRow.measured_on)
        & (AccuracyRow.run_number == TensorErrorRow.run_number)
        & (AccuracyRow.case_id == TensorErrorRow.case_id)
        & (AccuracyRow.implementation == TensorErrorRow.implementation)
        & (AccuracyRow.outcome == Outcome.OK.value)
    )
    by = (CaseRow.name, CaseRow.kernel, TensorErrorRow.implementation)
    query = (
        select(*by, func.max(TensorErrorRow.rmse_ratio))
        .join(AccuracyRow, passed)
        .join(CaseRow, CaseRow.id == TensorErrorRow.case_id)
        .join(
            RunRow,
            (RunRow.measured_on == TensorErrorRow.measured_on) & (RunRow.number == TensorErrorRow.run_number),
        )
        .where(RunRow.run_id == run_id)
        .group_by(*by)
        .order_by(*by)
    )
    return tuple(CaseError(*row) for row in session.execute(query))


def read_source_files(session: Session, run_id: UUID) -> dict[str, str]:
    """The source file of each kernel of a run that the record names one of, from the root of its repository; what
    Triton compiles before what calls it.
    """
    stored = session.scalars(select(RunRow.unread_fields["source_lines"]).where(RunRow.run_id == run_id)).one_or_none()
    return source_files_of(stored or ())
