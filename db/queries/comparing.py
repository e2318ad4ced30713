"""The two runs of a comparison, named by commit or run, and what they found."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, exists, select
from sqlalchemy.orm import Session, aliased

from roofwatch.db.errors import NotStoredError
from roofwatch.db.queries.records import load_cases
from roofwatch.db.queries.runs import NEWEST_FIRST, read_run_details
from roofwatch.db.regressions.judgements import read_run_state
from roofwatch.db.schema.measurements import CompilationRow
from roofwatch.db.schema.run_filter import Words, is_on, project_id
from roofwatch.db.schema.runs import CaseRow, CommitRow, EnvironmentRow, RunRow
from roofwatch.db.schema.subjects import ProjectName, RunId
from roofwatch.model.grouping import group_by
from roofwatch.model.record import RunRecord, Side
from roofwatch.model.series_filter import Word
from roofwatch.model.stored_results import RunDetail, RunsOfRunner

REVISION_PATTERN = r"^([0-9a-f]{4,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"
"""A commit's sha, an abbreviation of it, or a run id."""
_HAS_CODE = exists().where(CompilationRow.run_number == RunRow.number)
_BEST_FIRST = (RunRow.is_dirty, RunRow.pair_id.is_not(None), _HAS_CODE.desc(), *NEWEST_FIRST)
"""Prefer runs of a clean work tree, then outside a pair, which measure more cases, then with
compiled code.
"""
_MAX_NAMED = 3
_SHA_LENGTHS = (40, 64)

_Result = TypeVar("_Result", RunDetail, RunRecord)


def resolve_revisions(
    session: Session,
    project: str,
    base: str,
    head: str,
    *,
    runner_class: str | None = None,
) -> tuple[UUID, UUID]:
    """Return the run ids of base and head; see `find_runs_to_compare` for commits. A run id may be
    of the quarantine.

    A runner class only narrows the runs of commits.

    Raises:
        NotStoredError: a revision names no run of the project, or several commits.
    """
    shas = [
        side if _is_run_id(side) else _resolve_sha(session, project, side) for side in (base, head)
    ]
    of_commits = find_runs_to_compare(session, project, *shas, runner_class=runner_class)
    run_ids: list[UUID] = []
    for side, run_id in zip((base, head), of_commits, strict=True):
        where = ""
        if runner_class is not None:
            where = f" on {runner_class}"
        if _is_run_id(side):
            run_id, where = UUID(side), ""
            state = read_run_state(session, run_id)
            if state is None or state.project != project:
                run_id = None
        if run_id is None:
            raise NotStoredError(f"{side}: project {project} has no run of it{where}")
        run_ids.append(run_id)
    return run_ids[0], run_ids[1]


def find_runs_to_compare(
    session: Session,
    project: str,
    base_sha: str,
    head_sha: str,
    *,
    runner_class: str | None = None,
) -> tuple[UUID | None, UUID | None]:
    """Find the newest pair of two commits, else the best run of each; None for a commit without a
    run.

    With a runner class only runs outside pairs on it count.
    """
    # a pair compares best: one job measured both sides in turn
    if runner_class is None:
        pair = session.execute(_newest_pair(project, base_sha, head_sha)).first()
        if pair is not None:
            return pair.base, pair.head
    is_wanted = is_on(project, () if runner_class is None else [runner_class])
    base, head = (
        session.scalar(_best_run(project, sha, is_wanted)) for sha in (base_sha, head_sha)
    )
    return base, head


def read_case_of_both(
    session: Session,
    project: ProjectName,
    base_sha: Word,
    head_sha: Word,
    case_id: Word,
    *,
    runner_class: Word | None = None,
) -> tuple[RunRecord, RunRecord] | None:
    """Read one case from the records of these runs; None if a commit has no run."""
    base, head = find_runs_to_compare(
        session,
        project,
        base_sha,
        head_sha,
        runner_class=runner_class,
    )
    if base is None or head is None:
        return None
    return read_case_of_runs(session, base, head, case_id)


def read_kernel_of_run(session: Session, run_id: RunId, kernel: Word) -> RunRecord | None:
    """Read one kernel from the record of a run; None if there is no such run."""
    return next(iter(load_cases(session, RunRow.run_id == run_id, CaseRow.kernel == kernel)), None)


def read_runs_by_runner(
    session: Session,
    project: ProjectName,
    base_sha: Word,
    head_sha: Word,
    *,
    runner_classes: Words = (),
) -> list[RunsOfRunner]:
    """Read, on each runner class, the newest pair of two commits, else the best run of each; those
    with a run of one commit only come last and have no details.
    """
    query = (
        select(
            RunRow.run_id,
            RunRow.pair_id,
            RunRow.pair_side,
            CommitRow.sha,
            EnvironmentRow.runner_class,
        )
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(
            CommitRow.project_id == project_id(project),
            CommitRow.sha.in_((base_sha, head_sha)),
            is_on(project, runner_classes),
        )
        .order_by(*_BEST_FIRST)
    )
    runs_by_class = group_by(session.execute(query), lambda row: row.runner_class)
    ids_by_class: dict[str, tuple[UUID, UUID]] = {}
    without_pair: list[RunsOfRunner] = []
    for runner_class, rows in sorted(runs_by_class.items()):
        base_id, head_id = _pair_or_best(rows, base_sha, head_sha)
        if base_id is None or head_id is None:
            without_pair.append(RunsOfRunner(runner_class))
        else:
            ids_by_class[runner_class] = (base_id, head_id)
    # one query for the runs of all classes
    run_ids = list(chain.from_iterable(ids_by_class.values()))
    details: dict[str, RunDetail] = {}
    for detail in read_run_details(session, RunRow.run_id.in_(run_ids)):
        details[detail.summary.run_id] = detail
    both = [
        RunsOfRunner(runner_class, details[str(base_id)], details[str(head_id)])
        for runner_class, (base_id, head_id) in ids_by_class.items()
    ]
    return both + without_pair


def _pair_or_best(
    rows: Sequence[Any],
    base_sha: str,
    head_sha: str,
) -> tuple[UUID | None, UUID | None]:
    """Choose the runs of both commits on one runner class; the best come first."""
    # the two sides of one pair first, else the best run of each
    bases = {row.pair_id: row.run_id for row in rows if _is_side(row, base_sha, Side.BASE)}
    for row in rows:
        if _is_side(row, head_sha, Side.HEAD) and row.pair_id in bases:
            return bases[row.pair_id], row.run_id
    base = next((row.run_id for row in rows if row.sha == base_sha), None)
    head = next((row.run_id for row in rows if row.sha == head_sha), None)
    return base, head


def _is_side(row: Any, sha: str, side: Side) -> bool:
    if row.sha != sha or row.pair_id is None:
        return False
    return bool(row.pair_side == side.value)


def read_runs_on(
    session: Session,
    project: ProjectName,
    base_sha: Word,
    head_sha: Word,
    base_runner: Word,
    head_runner: Word,
) -> tuple[RunDetail, RunDetail]:
    """Read the best run of each commit, each on a runner class of its own.

    Raises:
        NotStoredError: a commit has no run on its runner class.
    """
    ids: list[UUID] = []
    for sha, runner_class in ((base_sha, base_runner), (head_sha, head_runner)):
        run = session.execute(_best_run(project, sha, is_on(project, (runner_class,)))).first()
        if run is None:
            raise NotStoredError(f"commit {sha[:8]} of {project}: no run on {runner_class}")
        ids.append(run.run_id)
    base_id, head_id = ids
    return read_runs(session, base_id, head_id)


def read_runs(session: Session, base_id: RunId, head_id: RunId) -> tuple[RunDetail, RunDetail]:
    """Read what two runs found.

    Raises:
        NotStoredError: there is no such run.
    """
    details = read_run_details(session, RunRow.run_id.in_([base_id, head_id]))
    return _both({detail.summary.run_id: detail for detail in details}, base_id, head_id)


def read_case_of_runs(
    session: Session,
    base_id: RunId,
    head_id: RunId,
    case_id: Word,
) -> tuple[RunRecord, RunRecord]:
    """Read one case from the records of two runs.

    Raises:
        NotStoredError: there is no such run.
    """
    records = load_cases(session, RunRow.run_id.in_([base_id, head_id]), CaseRow.name == case_id)
    return _both({str(record.run_id): record for record in records}, base_id, head_id)


def _both(results: Mapping[str, _Result], base_id: UUID, head_id: UUID) -> tuple[_Result, _Result]:
    for run_id in (base_id, head_id):
        if str(run_id) not in results:
            raise NotStoredError(f"run {run_id}: not stored; reload the page and choose another")
    return results[str(base_id)], results[str(head_id)]


def _best_run(
    project: str, sha: str, condition: ColumnElement[bool], *order: Any
) -> Select[UUID, str]:
    """Select id and runner class of a commit's best run, ordered by some expressions first."""
    return (
        select(RunRow.run_id, EnvironmentRow.runner_class)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(CommitRow.project_id == project_id(project), CommitRow.sha == sha, condition)
        .order_by(*order, *_BEST_FIRST)
        .limit(1)
    )


def _newest_pair(project: str, base_sha: str, head_sha: str) -> Select[UUID, UUID]:
    base_run = aliased(RunRow)
    head_run = aliased(RunRow)
    base_commit = aliased(CommitRow)
    head_commit = aliased(CommitRow)
    return (
        select(base_run.run_id.label("base"), head_run.run_id.label("head"))
        .join(head_run, head_run.pair_id == base_run.pair_id)
        .join(base_commit, base_commit.id == base_run.commit_id)
        .join(head_commit, head_commit.id == head_run.commit_id)
        .where(
            base_commit.project_id == project_id(project),
            head_commit.project_id == base_commit.project_id,
            base_commit.sha == base_sha,
            head_commit.sha == head_sha,
            base_run.pair_side == Side.BASE.value,
            head_run.pair_side == Side.HEAD.value,
        )
        .order_by(head_run.started_at.desc(), head_run.run_id)
        .limit(1)
    )


def _is_run_id(revision: str) -> bool:
    return "-" in revision


def _resolve_sha(session: Session, project: str, prefix: str) -> str:
    """Return the only sha with a prefix; the prefix itself if it is a whole sha or matches none."""
    if not re.fullmatch(REVISION_PATTERN, prefix):
        raise NotStoredError(
            f"{prefix[:80]!r}: expected a commit's sha, at least four digits of it, or a run id"
        )
    # a whole sha needs no lookup, and its commit need not be stored
    if len(prefix) in _SHA_LENGTHS:
        return prefix
    # a range uses the index; "g" sorts after every hexadecimal digit
    has_prefix = and_(CommitRow.sha >= prefix, CommitRow.sha < prefix + "g")
    query = (
        select(CommitRow.sha)
        .where(CommitRow.project_id == project_id(project), has_prefix)
        .order_by(CommitRow.sha)
        .limit(_MAX_NAMED)
    )
    shas: Collection[str] = session.scalars(query).all()
    if len(shas) > 1:
        named = ", ".join(sha[:16] for sha in shas)
        raise NotStoredError(
            f"{prefix}: ambiguous in project {project} ({named}); give more digits"
        )
    return next(iter(shas), prefix)
