"""Profiles of calls over a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import and_, select, tuple_
from sqlalchemy.orm import Session

from roofwatch.collector.record.results import CaseProfile, ProfiledActivity
from roofwatch.db.queries.profiled_values import ProfiledRun
from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.schema.measurements import ProfileActivityRow, ProfileRow
from roofwatch.db.schema.runs import CaseRow, CommitRow, EnvironmentRow, ProjectRow, RunRow

_OF_CALLS = [name for name in CaseProfile.model_fields if name not in {"case_id", "rows"}]


def read_profiled_runs(session: Session, project: str, subjects: Collection[tuple[str, str]]) -> list[ProfiledRun]:
    """What was profiled of some cases and implementations, in the order of the branch, then of time."""
    is_of_profile = and_(
        ProfileActivityRow.measured_on == ProfileRow.measured_on,
        ProfileActivityRow.run_number == ProfileRow.run_number,
        ProfileActivityRow.case_id == ProfileRow.case_id,
        ProfileActivityRow.implementation == ProfileRow.implementation,
    )
    query = (
        select(ProfileRow, ProfileActivityRow, CaseRow.name, EnvironmentRow.runner_class, CommitRow)
        .join(CaseRow, CaseRow.id == ProfileRow.case_id)
        .join(RunRow, and_(RunRow.number == ProfileRow.run_number, RunRow.measured_on == ProfileRow.measured_on))
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .outerjoin(ProfileActivityRow, is_of_profile)
        .where(
            of_series(project, include_dirty=False, include_pairs=True, include_branches=False),
            CaseRow.project_id == ProjectRow.id,
            tuple_(CaseRow.name, ProfileRow.implementation).in_(subjects),
        )
        .order_by(
            *(CommitRow.first_parent_count, CommitRow.sha, RunRow.started_at, RunRow.run_id),
            *(ProfileRow.position, ProfileActivityRow.position),
        )
    )
    profiles: dict[tuple[int, str, str], tuple[str, CommitRow, ProfileRow]] = {}
    activities: dict[tuple[int, str, str], list[ProfiledActivity]] = defaultdict(list)
    for profile, activity, name, runner_class, commit in session.execute(query):
        key = profile.run_number, name, profile.implementation
        profiles[key] = runner_class, commit, profile
        if activity is not None:
            fields = {field: getattr(activity, field) for field in ProfiledActivity.model_fields}
            activities[key].append(ProfiledActivity.model_validate(fields))
    return [
        ProfiledRun(runner_class, commit.to_ref(), _profile(key[1], profile, activities[key]))
        for key, (runner_class, commit, profile) in profiles.items()
    ]


def _profile(case_id: str, row: ProfileRow, activities: list[ProfiledActivity]) -> CaseProfile:
    fields = {field: getattr(row, field) for field in _OF_CALLS}
    return CaseProfile.model_validate({**fields, "case_id": case_id, "rows": activities})
