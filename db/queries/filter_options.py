"""Values that results of a project can be filtered by: branches, runner classes and properties of cases."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from roofwatch.db.queries.results import CaseOption, FilterOptions
from roofwatch.db.queries.run_filter import project_id
from roofwatch.db.queries.runs import list_projects
from roofwatch.db.schema.runs import CaseRow, CaseVersionRow, CommitRow, EnvironmentRow, RunRow

_RECENT_RUNS = 12
"""Runs that case properties are read from: enough to include the newest of each runner."""


def read_filter_options(session: Session, project: str | None) -> FilterOptions:
    """Read the filter options of a project, else of the first, and all project names; empty if there is none."""
    projects = tuple(list_projects(session))
    wanted = project_id(next(iter(projects), "") if project is None else project)
    recent = (
        select(RunRow.case_version_ids, RunRow.started_at, RunRow.document["source_lines"].label("source_lines"))
        .where(RunRow.project_id == wanted)
        .order_by(RunRow.started_at.desc())
        .limit(_RECENT_RUNS)
        .cte("recent")
    )
    source_files: dict[str, str] = {}
    for lines in session.scalars(select(recent.c.source_lines).order_by(recent.c.started_at)):
        source_files |= source_files_of(lines or ())
    newest = (
        select(CaseVersionRow.case_id, CaseVersionRow.family, CaseVersionRow.tags, CaseVersionRow.token_count)
        .join(recent, CaseVersionRow.id == func.any(recent.c.case_version_ids))
        .order_by(CaseVersionRow.case_id, recent.c.started_at.desc())
        .ext(distinct_on(CaseVersionRow.case_id))
        .cte("newest")
    )
    cases = (
        select(CaseRow.name, CaseRow.kernel, CaseRow.dtype, newest.c.family, newest.c.tags, newest.c.token_count)
        .outerjoin(newest, newest.c.case_id == CaseRow.id)
        .where(CaseRow.project_id == wanted)
    )
    classes = (
        select(EnvironmentRow.runner_class, EnvironmentRow.device_kind)
        .join(RunRow, RunRow.environment_id == EnvironmentRow.id)
        .where(RunRow.project_id == wanted)
        .distinct()
    )
    kinds = dict(session.execute(classes).all())
    measured = (
        select(RunRow.branch, CommitRow.sha)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .where(RunRow.project_id == wanted, RunRow.branch.is_not(None))
        .distinct()
    )
    commits_by_branch: defaultdict[Any, set[str]] = defaultdict(set)
    for branch, sha in session.execute(measured):
        commits_by_branch[branch].add(sha)
    commit_count = select(func.count()).select_from(CommitRow).where(CommitRow.project_id == wanted)
    return FilterOptions(
        cases=tuple(
            CaseOption(case_id, kernel, dtype, family or "", tuple(tags or ()), token_count)
            for case_id, kernel, dtype, family, tags, token_count in session.execute(cases)
        ),
        commits_by_branch={branch: frozenset(shas) for branch, shas in commits_by_branch.items()},
        runner_classes=tuple(sorted(kinds)),
        cpu_classes=frozenset(name for name, kind in kinds.items() if kind == "cpu"),
        commit_count=session.scalar(commit_count) or 0,
        source_files=source_files,
        projects=projects,
    )


def source_files_of(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the file of each kernel from a record's source lines; jitted functions take precedence over callers."""
    jitted_first = sorted(lines, key=lambda line: not line.get("is_jitted"))
    return {line["kernel"]: line["file"] for line in reversed(jitted_first)}
