"""Evidence for the cause of a change: machine code, checks, hardware counters and profiles over a history."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import CaseProfile, Counters, ProfiledActivity
from roofwatch.db.queries.results import CountedRun, ProfiledRun
from roofwatch.db.queries.run_filter import is_in_series, is_number_of
from roofwatch.db.schema.measurements import (
    AccuracyRow,
    CompilationRow,
    CountersRow,
    ImportedRow,
    ProfileActivityRow,
    ProfileRow,
    StaticFactRow,
)
from roofwatch.db.schema.runs import CaseRow, CommitRow, EnvironmentRow, ProjectRow, RunRow

Subject = tuple[str, str]
"""Case id and implementation."""

_ALONG_BRANCH = (CommitRow.first_parent_count, CommitRow.sha, RunRow.started_at, RunRow.run_id)
_COUNTER_FIELDS = ("function", "launch_index", "values")
_PROFILE_FIELDS = [name for name in CaseProfile.model_fields if name not in {"case_id", "rows"}]


def list_changed_code(session: Session, project: str, row_ids: Collection[int]) -> set[Subject]:
    """List subjects with a function whose machine code differs between two runs."""
    fact = StaticFactRow
    # OFFSET 0 prevents a join with runs before the cases are narrowed
    compiled = (
        select(CaseRow.name, fact.implementation, fact.function, fact.target, fact.code_hash, CompilationRow.run_number)
        .select_from(CompilationRow)
        .join(fact, fact.id == CompilationRow.static_fact_id)
        .join(CaseRow, CaseRow.id == fact.case_id)
        .where(fact.case_id.in_(row_ids))
        .offset(0)
        .subquery("compiled")
        .c
    )
    query = (
        select(compiled.name, compiled.implementation)
        .where(is_number_of(compiled.run_number, is_in_series(project, include_pairs=True)))
        .group_by(compiled.name, compiled.implementation, compiled.function, compiled.target)
        .having(func.count(func.distinct(func.coalesce(compiled.code_hash, ""))) > 1)
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


def list_failed_checks(session: Session, project: str, row_ids: Collection[int]) -> set[Subject]:
    """List subjects whose accuracy check failed in any run."""
    query = (
        select(CaseRow.name, AccuracyRow.implementation)
        .select_from(AccuracyRow)
        .join(CaseRow, CaseRow.id == AccuracyRow.case_id)
        .where(
            AccuracyRow.case_id.in_(row_ids),
            AccuracyRow.outcome != Outcome.OK.value,
            is_number_of(AccuracyRow.run_number, is_in_series(project, include_pairs=True)),
        )
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


def list_imported(session: Session, row_ids: Collection[int]) -> set[Subject]:
    """List subjects with values of other tools."""
    query = (
        select(CaseRow.name, ImportedRow.implementation)
        .join(CaseRow, CaseRow.id == ImportedRow.case_id)
        .where(ImportedRow.case_id.in_(row_ids))
        .distinct()
    )
    return {(name, implementation) for name, implementation in session.execute(query)}


def read_counted_runs(session: Session, project: str, subjects: Collection[Subject]) -> list[CountedRun]:
    """Read the hardware counters of some subjects, ordered by commit, then by time."""
    query = _results(CountersRow, project, subjects).order_by(*_ALONG_BRANCH, CountersRow.position)
    runs: dict[tuple[int, str, str], tuple[str, CommitRow, list[Counters]]] = {}
    for row, name, runner_class, commit in session.execute(query):
        *_, counters = runs.setdefault((row.run_number, name, row.implementation), (runner_class, commit, []))
        fields = {field: getattr(row, field) for field in _COUNTER_FIELDS}
        counters.append(Counters(case_id=name, implementation=row.implementation, **fields))
    return [
        CountedRun(name, implementation, runner_class, commit.to_ref(), tuple(counters))
        for (_, name, implementation), (runner_class, commit, counters) in runs.items()
    ]


def read_profiled_runs(session: Session, project: str, subjects: Collection[Subject]) -> list[ProfiledRun]:
    """Read the profiles of some subjects, ordered by commit, then by time."""
    activity = ProfileActivityRow
    query = (
        _results(ProfileRow, project, subjects)
        .add_columns(activity)
        .outerjoin(activity, activity.is_of(ProfileRow))
        .order_by(*_ALONG_BRANCH, ProfileRow.position, activity.position)
    )
    profiles: dict[tuple[int, str, str], tuple[str, CommitRow, dict[str, Any]]] = {}
    for profile, name, runner_class, commit, one in session.execute(query):
        fields = {field: getattr(profile, field) for field in _PROFILE_FIELDS}
        key = profile.run_number, name, profile.implementation
        *_, found = profiles.setdefault(key, (runner_class, commit, {**fields, "case_id": name, "rows": []}))
        if one is not None:
            found["rows"].append({field: getattr(one, field) for field in ProfiledActivity.model_fields})
    return [
        ProfiledRun(runner_class, commit.to_ref(), CaseProfile.model_validate(fields))
        for runner_class, commit, fields in profiles.values()
    ]


def _results(table: Any, project: str, subjects: Collection[Subject]) -> Select[Any]:
    """Select results with their case, runner class and commit."""
    return (
        select(table, CaseRow.name, EnvironmentRow.runner_class, CommitRow)
        .join(CaseRow, CaseRow.id == table.case_id)
        .join(RunRow, RunRow.number == table.run_number)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            is_in_series(project, include_pairs=True),
            CaseRow.project_id == ProjectRow.id,
            tuple_(CaseRow.name, table.implementation).in_(subjects),
        )
    )
