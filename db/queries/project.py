"""What a project has: commits, values to filter results by, and search."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import CTE, ColumnElement, Text, and_, cast, func, or_, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from roofwatch.db.projects import QUARANTINE
from roofwatch.db.queries.runs import NEWEST_FIRST
from roofwatch.db.queries.series_keys import WORK
from roofwatch.db.schema.run_filter import COMMIT_COLUMNS, Limit, Words, is_on, project_id
from roofwatch.db.schema.runs import (
    CaseRow,
    CaseVersionRow,
    CommitRow,
    EnvironmentRow,
    ProjectRow,
    RunRow,
)
from roofwatch.db.schema.subjects import ProjectName
from roofwatch.model.history import CommitRef, MeasuredCommit
from roofwatch.model.series_filter import Word
from roofwatch.model.stored_results import (
    CaseOption,
    FilterOptions,
    FoundCommit,
    SearchResults,
    TaggedCommit,
)

_RECENT_RUNS = 4
"""Runs of each environment that case properties are read from: the newest may lack some."""


def list_projects(session: Session) -> list[str]:
    """List project names by code point, without quarantines."""
    query = select(ProjectRow.name).where(~ProjectRow.name.endswith(QUARANTINE, autoescape=True))
    return sorted(session.scalars(query))


def list_commits(
    session: Session,
    project: ProjectName,
    *,
    runner_classes: Words = (),
) -> list[MeasuredCommit]:
    """List the commits with runs (on some runner classes) by place on the branch; those that left
    it come first.
    """
    unreachable = (
        select(RunRow.commit_id)
        .where(RunRow.project_id == project_id(project))
        .group_by(RunRow.commit_id)
        .having(func.bool_and(RunRow.is_unreachable))
    )
    query = select(CommitRow, CommitRow.id.in_(unreachable)).where(
        CommitRow.project_id == project_id(project)
    )
    if runner_classes:
        measured = (
            select(RunRow.commit_id)
            .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
            .where(RunRow.project_id == project_id(project), is_on(project, runner_classes))
        )
        query = query.where(CommitRow.id.in_(measured))
    commits = [
        MeasuredCommit(
            first_parent_count=row.first_parent_count,
            sha=row.sha,
            author=row.author,
            subject=row.subject,
            committed_at=row.committed_at,
            is_unreachable=is_unreachable,
        )
        for row, is_unreachable in session.execute(query)
    ]
    return sorted(commits, key=lambda commit: (not commit.is_unreachable, commit))


def find_commit(session: Session, project: str, name: str) -> str | None:
    """Return the sha of a measured commit, given its sha, the first digits of it, or a git tag;
    None if unknown.
    """
    is_named = cast(RunRow.document["commit"]["tags"], Text).contains(
        json.dumps(name), autoescape=True
    )
    if re.fullmatch(r"[0-9a-f]{7,64}", name):
        is_named |= CommitRow.sha.startswith(name)
    query = (
        select(CommitRow.sha)
        .join(RunRow)
        .where(CommitRow.project_id == project_id(project), is_named)
    )
    return session.scalar(query.order_by(*NEWEST_FIRST).limit(1))


def list_releases(session: Session, project: ProjectName) -> list[TaggedCommit]:
    """List the git tags at measured commits, by place on the branch."""
    tags = RunRow.document["commit"]["tags"]
    query = (
        select(func.json_array_elements_text(tags), *COMMIT_COLUMNS)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .where(RunRow.project_id == project_id(project), func.json_typeof(tags) == "array")
        .distinct()
    )
    releases = [TaggedCommit(name, CommitRef(*commit)) for name, *commit in session.execute(query)]
    return sorted(releases, key=lambda release: (release.commit, release.name))


def read_filter_options(session: Session, project: ProjectName) -> FilterOptions:
    """Read the filter options of a project; empty if it has no runs."""
    project_row_id = project_id(project)
    recent = _recent_runs(project_row_id)
    source_files: dict[str, str] = {}
    for lines in session.scalars(select(recent.c.source_lines).order_by(recent.c.started_at)):
        source_files |= _source_files(lines or ())
    classes = (
        select(EnvironmentRow.runner_class, EnvironmentRow.device_kind)
        .join(RunRow, RunRow.environment_id == EnvironmentRow.id)
        .where(RunRow.project_id == project_row_id)
        .distinct()
    )
    kinds = dict(session.execute(classes).all())
    commit_count = (
        select(func.count()).select_from(CommitRow).where(CommitRow.project_id == project_row_id)
    )
    return FilterOptions(
        cases=_case_options(session, project_row_id, recent),
        commits_by_branch=_commits_by_branch(session, project_row_id),
        runner_classes=tuple(sorted(kinds)),
        cpu_classes=frozenset(name for name, kind in kinds.items() if kind == "cpu"),
        commit_count=session.scalar(commit_count) or 0,
        source_files=source_files,
    )


def _recent_runs(project_row_id: ColumnElement[int]) -> CTE:
    """Select the newest runs of each environment, which have the current cases."""
    # a side of a pair may have measured only what a change affects
    newest_first = (RunRow.pair_id.is_not(None), RunRow.started_at.desc())
    rank = func.row_number().over(partition_by=RunRow.environment_id, order_by=newest_first)
    ranked = (
        select(RunRow.run_id, rank.label("rank"))
        .where(RunRow.project_id == project_row_id)
        .subquery("ranked")
    )
    return (
        select(
            RunRow.case_version_ids,
            RunRow.started_at,
            RunRow.document["source_lines"].label("source_lines"),
        )
        .join(ranked, ranked.c.run_id == RunRow.run_id)
        .where(ranked.c.rank <= _RECENT_RUNS)
        .cte("recent")
    )


def _case_options(
    session: Session,
    project_row_id: ColumnElement[int],
    recent: CTE,
) -> tuple[CaseOption, ...]:
    newest = (
        select(
            CaseVersionRow.case_id,
            CaseVersionRow.family,
            CaseVersionRow.tags,
            *WORK.values(),
        )
        .join(recent, CaseVersionRow.id == func.any(recent.c.case_version_ids))
        .order_by(CaseVersionRow.case_id, recent.c.started_at.desc())
        .ext(distinct_on(CaseVersionRow.case_id))
        .cte("newest")
    )
    # an outer join: cases that only older runs have are listed too
    cases = (
        select(CaseRow.name, CaseRow.kernel, CaseRow.dtype, *newest.c)
        .outerjoin(newest, newest.c.case_id == CaseRow.id)
        .where(CaseRow.project_id == project_row_id)
    )
    options: list[CaseOption] = []
    for case_id, kernel, dtype, _, family, tags, *costs in session.execute(cases):
        option = CaseOption(
            case_id=case_id,
            kernel=kernel,
            dtype=dtype,
            family=family or "",
            tags=tuple(tags or ()),
            costs=dict(zip(WORK, costs, strict=True)),
        )
        options.append(option)
    return tuple(options)


def _commits_by_branch(
    session: Session, project_row_id: ColumnElement[int]
) -> dict[str, frozenset[str]]:
    measured = (
        select(RunRow.branch, CommitRow.sha)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .where(RunRow.project_id == project_row_id, RunRow.branch.is_not(None))
        .distinct()
    )
    shas_by_branch: defaultdict[str, set[str]] = defaultdict(set)
    for branch, sha in session.execute(measured):
        shas_by_branch[str(branch)].add(sha)
    return {branch: frozenset(shas) for branch, shas in shas_by_branch.items()}


def _source_files(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the file of each kernel from a record's source lines; jitted functions take precedence
    over callers.
    """
    jitted_first = sorted(lines, key=lambda line: not line.get("is_jitted"))
    return {line["kernel"]: line["file"] for line in reversed(jitted_first)}


def _has_words(text: str, words: Iterable[str]) -> bool:
    return all(word.lower() in text.lower() for word in words)


def search(
    session: Session,
    project: ProjectName,
    text: Word,
    *,
    limit: Limit = 10,
) -> SearchResults:
    """Find measured kernels, cases, commits, runner classes and releases, at most `limit` of each,
    commits and releases newest first.

    All words of the text must occur in a name, or in a commit's subject and author. A commit is
    also found by the first digits of its sha, and by the number of its pull request, which is in
    its subject.
    """
    words = text.split()
    if not words:
        return SearchResults((), (), ())
    project_row_id = project_id(project)
    classes = (
        select(EnvironmentRow.runner_class)
        .join(RunRow, RunRow.environment_id == EnvironmentRow.id)
        .where(
            RunRow.project_id == project_row_id,
            *(EnvironmentRow.runner_class.icontains(word, autoescape=True) for word in words),
        )
        .distinct()
        .order_by(EnvironmentRow.runner_class)
    )
    releases = [
        release
        for release in reversed(list_releases(session, project))
        if _has_words(release.name, words)
    ]
    kernels = select(CaseRow.kernel).where(
        *(CaseRow.kernel.icontains(word, autoescape=True) for word in words)
    )
    cases = select(CaseRow.name).where(
        *(CaseRow.name.icontains(word, autoescape=True) for word in words)
    )
    along = (CommitRow.first_parent_count.desc(), CommitRow.sha)
    commits = (
        select(*COMMIT_COLUMNS, RunRow.run_id)
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .where(RunRow.project_id == project_row_id, _is_commit(words))
        .order_by(*along, RunRow.started_at.desc())
        .ext(distinct_on(CommitRow.first_parent_count, CommitRow.sha))
        .limit(limit)
    )
    of_project = CaseRow.project_id == project_row_id
    return SearchResults(
        kernels=tuple(
            session.scalars(
                kernels.where(of_project).distinct().order_by(CaseRow.kernel).limit(limit)
            )
        ),
        cases=tuple(session.scalars(cases.where(of_project).order_by(CaseRow.name).limit(limit))),
        commits=tuple(
            FoundCommit(CommitRef(*row), str(run_id)) for *row, run_id in session.execute(commits)
        ),
        runner_classes=tuple(session.scalars(classes.limit(limit))),
        releases=tuple(releases[:limit]),
    )


def _is_commit(words: list[str]) -> ColumnElement[bool]:
    subject = CommitRow.subject
    first = words[0].lower()
    by_subject = and_(
        *(
            or_(
                subject.icontains(word, autoescape=True),
                CommitRow.author.icontains(word, autoescape=True),
            )
            for word in words
        )
    )
    if len(words) > 1:
        return by_subject
    if re.fullmatch(r"[#!]?[0-9]+", first):
        by_subject = subject.regexp_match(rf"[#!]{first.lstrip('#!')}\M")
    return or_(by_subject, CommitRow.sha.startswith(first, autoescape=True))
