"""Requests to analyse a project, and its regressions, which every analysis replaces."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Engine, Text, cast, collate, delete, func, insert, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from roofwatch.db.auth.values import Triage, TriagedRegression, TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.projects import is_quarantine, lock_project, record_name
from roofwatch.db.queries.run_filter import is_in_series
from roofwatch.db.regressions.triage import follow_regressions
from roofwatch.db.schema.regressions import AnalysisRequestRow, RegressionRow, TriageRow
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow
from roofwatch.db.schema.table import to_value
from roofwatch.db.values import CommitRef, Regression, RegressionState, Verdict

_DOCUMENT = TypeAdapter(Regression)
_PLACE: tuple[ColumnElement[Any], ...] = (
    -RegressionRow.first_parent_count,
    *(collate(text, "C") for text in (RegressionRow.sha, RegressionRow.kernel, cast(RegressionRow.verdict, Text))),
)
"""`Regression.place`, ordered by code points as in Python."""


@dataclass(frozen=True)
class RunState:
    """How far a stored run has come."""

    run_id: str
    project: str
    content_hash: str
    stored_at: datetime
    is_quarantined: bool
    is_judged: bool
    """An analysis of its project included this run."""


def request_analysis(engine: Engine, project: str) -> None:
    """Request an analysis of all that is stored now; does nothing if there is no such project."""
    with Session(engine) as session, session.begin():
        project_id = session.scalar(select(ProjectRow.id).where(ProjectRow.name == project))
        if project_id is None:
            return
        new = upsert(AnalysisRequestRow).values(project_id=project_id, requested_at=func.clock_timestamp())
        session.execute(
            new.on_conflict_do_update(
                index_elements=[AnalysisRequestRow.project_id], set_={"requested_at": func.clock_timestamp()}
            )
        )


def list_waiting(session: Session) -> list[tuple[str, datetime]]:
    """Projects that wait for an analysis and the time of the request, the oldest first."""
    row = AnalysisRequestRow
    query = (
        select(ProjectRow.name, row.requested_at)
        .join(row, row.project_id == ProjectRow.id)
        .where(or_(row.analysed_at.is_(None), row.analysed_at < row.requested_at))
        .order_by(row.requested_at)
    )
    return [(name, requested_at) for name, requested_at in session.execute(query)]


def finish_analysis(engine: Engine, project: str, requested_at: datetime) -> None:
    """Note an analysis that answers requests up to `requested_at`. Later requests stay open."""
    with Session(engine) as session, session.begin():
        project_id = select(ProjectRow.id).where(ProjectRow.name == project).scalar_subquery()
        done = update(AnalysisRequestRow).where(AnalysisRequestRow.project_id == project_id)
        session.execute(done.values(analysed_at=func.greatest(AnalysisRequestRow.analysed_at, requested_at)))


def read_run_state(session: Session, run_id: UUID) -> RunState | None:
    """How far a run has come; None if there is no such run."""
    request = AnalysisRequestRow
    query = (
        select(ProjectRow.name, RunRow.ingested_at, RunRow.content_hash, request.requested_at, request.analysed_at)
        .select_from(RunRow)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .outerjoin(request, request.project_id == ProjectRow.id)
        .where(RunRow.run_id == run_id)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        return None
    return RunState(
        run_id=str(run_id),
        project=record_name(row.name),
        content_hash=row.content_hash,
        stored_at=row.ingested_at,
        is_quarantined=is_quarantine(row.name),
        is_judged=row.analysed_at is not None and row.analysed_at >= max(row.requested_at, row.ingested_at),
    )


def replace_regressions(engine: Engine, project: str, regressions: Sequence[Regression]) -> None:
    """Replace all regressions of a project in one transaction. Their triage follows (`triage.py`).

    Those that had an alert and are not found now stay, as no longer found.

    Raises:
        StoreError: the project or a commit was never ingested.
    """
    with Session(engine) as session, session.begin():
        project_id = lock_project(session, project)
        shas = {commit.sha for regression in regressions for commit in _commits(regression)}
        commit_ids = _commit_ids(session, project, project_id, shas)
        own = RegressionRow.project_id == project_id
        earlier = session.execute(select(RegressionRow.regression_id, RegressionRow.document).where(own)).all()
        session.execute(delete(RegressionRow).where(own))
        ids = follow_regressions(session, project_id, regressions)
        gone = _no_longer_found(session, project, [row for row in earlier if row.regression_id not in ids])
        listed = {one.key: (own_id, one) for own_id, one in (*gone, *zip(ids, regressions, strict=True))}
        rows = [
            {
                "project_id": project_id,
                "sha": regression.commit.sha,
                "kernel": regression.kernel,
                "verdict": regression.verdict,
                "first_parent_count": regression.commit.first_parent_count,
                "regression_id": own_id,
                "state": regression.state,
                # retention may remove the runs of what is no longer found
                "evidence_commit_ids": sorted({commit_ids[one.sha] for one in _commits(regression) if one.sha in shas}),
                "document": _DOCUMENT.dump_python(regression, mode="json"),
            }
            for own_id, regression in listed.values()
        ]
        if rows:
            session.execute(insert(RegressionRow), rows)


def _no_longer_found(session: Session, project: str, missed: Sequence[Any]) -> Iterator[tuple[UUID, Regression]]:
    """Yield the regressions that had an alert among those that an analysis did not find, with their IDs."""
    newest = session.scalars(
        select(CommitRow)
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(is_in_series(project))
        .order_by(CommitRow.first_parent_count.desc())
        .limit(1)
    ).first()
    for row in missed:
        one = _DOCUMENT.validate_python(row.document)
        if one.state is RegressionState.NO_LONGER_FOUND:
            yield row.regression_id, one
        elif one.is_alert and one.verdict is Verdict.REGRESSED and one.state is RegressionState.OPEN:
            at = newest.to_ref() if one.recovered_at is None and newest is not None else one.recovered_at
            yield row.regression_id, replace(one, state=RegressionState.NO_LONGER_FOUND, recovered_at=at)


def list_triaged(
    session: Session,
    project: str,
    states: Collection[RegressionState] | None = None,
    *,
    triage: TriageState | None = None,
    after: tuple[int, str, str, str] | None = None,
    limit: int | None = None,
) -> list[TriagedRegression]:
    """Regressions of a project with their triage, the newest commit first.

    Given `after`, a `Regression.place`, only those behind it.
    """
    query = (
        select(RegressionRow.document, TriageRow)
        .join(ProjectRow, ProjectRow.id == RegressionRow.project_id)
        .join(TriageRow, TriageRow.regression_id == RegressionRow.regression_id)
        .where(ProjectRow.name == project)
        .order_by(*_PLACE)
        .limit(limit)
    )
    if states is not None:
        query = query.where(RegressionRow.state.in_(states))
    if triage is not None:
        query = query.where(TriageRow.state == triage)
    if after is not None:
        query = query.where(tuple_(*_PLACE) > tuple_(*after))
    return [
        TriagedRegression(str(row.regression_id), _DOCUMENT.validate_python(document), to_value(Triage, row))
        for document, row in session.execute(query)
    ]


def _commits(regression: Regression) -> list[CommitRef]:
    """All commits that a regression names."""
    commits = [regression.commit]
    if regression.recovered_at is not None:
        commits.append(regression.recovered_at)
    for point in regression.change_points:
        commits += [point.commit, point.previous_commit]
    return commits


def _commit_ids(session: Session, project: str, project_id: int, shas: set[str]) -> dict[str, int]:
    query = select(CommitRow.sha, CommitRow.id).where(CommitRow.project_id == project_id, CommitRow.sha.in_(shas))
    ids: dict[str, int] = dict(session.execute(query).all())
    missing = shas - ids.keys()
    if missing:
        raise StoreError(f"commit {min(missing)}: not in project {project!r}; ingest a record of it first")
    return ids
