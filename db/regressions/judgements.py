"""Requests to analyse a project, and its regressions, which every analysis replaces."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from sqlalchemy import Engine, Update, delete, func, insert, select, update
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.projects import is_quarantine, lock_project, record_name
from roofwatch.db.regressions.decisions import is_snooze_over
from roofwatch.db.regressions.triage import RegressionKey, follow_regressions
from roofwatch.db.schema.regressions import RegressionRow, TriageRow
from roofwatch.db.schema.run_filter import is_in_series, project_id
from roofwatch.db.schema.runs import CommitRow, ProjectRow, RunRow
from roofwatch.db.schema.table import to_value
from roofwatch.model.acceptance import AcceptedRegression
from roofwatch.model.history import CommitRef, Regression, RegressionState
from roofwatch.model.triage import Triage, TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict

_DOCUMENT = TypeAdapter(Regression)


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
    with engine.begin() as connection:
        connection.execute(_update(project).values(analysis_requested_at=func.clock_timestamp()))


def read_run_state(session: Session, run_id: UUID) -> RunState | None:
    """How far a run has come; None if there is no such run."""
    query = (
        select(RunRow.ingested_at, RunRow.content_hash, ProjectRow)
        .join(ProjectRow, ProjectRow.id == RunRow.project_id)
        .where(RunRow.run_id == run_id)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        return None
    project = row.ProjectRow
    # analysed since it was stored, and since the last request
    needed_at = max(project.analysis_requested_at or row.ingested_at, row.ingested_at)
    return RunState(
        run_id=str(run_id),
        project=record_name(project.name),
        content_hash=row.content_hash,
        stored_at=row.ingested_at,
        is_quarantined=is_quarantine(project.name),
        is_judged=project.analysed_at is not None and project.analysed_at >= needed_at,
    )


def replace_regressions(
    engine: Engine,
    project: str,
    regressions: Sequence[Regression],
    accepted: Mapping[RegressionKey, AcceptedRegression] | None = None,
) -> None:
    """Replace all regressions of a project in one transaction. Their triage follows (`triage.py`),
    and those that a pull request accepted are settled before an alert can fire.

    Those that had an alert and are not found now stay, as no longer found.

    Raises:
        StoreError: the project or a commit was never ingested.
    """
    with Session(engine) as session, session.begin():
        project_id = lock_project(session, project)
        shas = {commit.sha for regression in regressions for commit in _commits(regression)}
        commit_ids = _commit_ids(session, project, project_id, shas)
        is_of_project = RegressionRow.project_id == project_id
        earlier = session.execute(
            select(RegressionRow.regression_id, RegressionRow.document).where(is_of_project)
        ).all()
        session.execute(delete(RegressionRow).where(is_of_project))
        ids = follow_regressions(session, project_id, regressions, accepted or {})
        gone = _no_longer_found(
            session, project, [row for row in earlier if row.regression_id not in ids]
        )
        # a regression that is found again replaces the one of the same key that was gone
        listed = {
            regression.key: (regression_id, regression)
            for regression_id, regression in (*gone, *zip(ids, regressions, strict=True))
        }
        rows: list[dict[str, Any]] = []
        for regression_id, regression in listed.values():
            # retention may remove the runs of what is no longer found
            evidence_shas = shas.intersection(commit.sha for commit in _commits(regression))
            rows.append(
                {
                    "project_id": project_id,
                    "sha": regression.commit.sha,
                    "kernel": regression.kernel,
                    "verdict": regression.verdict,
                    "regression_id": regression_id,
                    "state": regression.state,
                    "evidence_commit_ids": sorted(commit_ids[sha] for sha in evidence_shas),
                    "document": _DOCUMENT.dump_python(regression, mode="json"),
                }
            )
        if rows:
            session.execute(insert(RegressionRow), rows)


def _update(project: str) -> Update:
    return update(ProjectRow).where(ProjectRow.name == project)


def _no_longer_found(
    session: Session,
    project: str,
    missed: Sequence[Any],
) -> Iterator[tuple[UUID, Regression]]:
    """Yield the regressions that had an alert among those that an analysis did not find, with their
    IDs.
    """
    newest = session.scalars(
        select(CommitRow)
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .where(is_in_series(project))
        .order_by(CommitRow.first_parent_count.desc())
        .limit(1)
    ).first()
    for row in missed:
        regression = _DOCUMENT.validate_python(row.document)
        if regression.state is RegressionState.NO_LONGER_FOUND:
            yield row.regression_id, regression
        elif (
            regression.is_alert
            and regression.verdict is Verdict.REGRESSED
            and regression.state is RegressionState.OPEN
        ):
            recovered_at = regression.recovered_at
            if recovered_at is None and newest is not None:
                recovered_at = newest.to_ref()
            yield (
                row.regression_id,
                replace(
                    regression,
                    state=RegressionState.NO_LONGER_FOUND,
                    recovered_at=recovered_at,
                ),
            )


def list_triaged(
    session: Session,
    project: str,
    states: Collection[RegressionState] | None = None,
    *,
    triage: TriageState | None = None,
) -> list[TriagedRegression]:
    """Regressions of a project with their triage, the newest commit first (`Regression.place`)."""
    query = (
        select(RegressionRow.document, TriageRow)
        .join(TriageRow, TriageRow.regression_id == RegressionRow.regression_id)
        .where(RegressionRow.project_id == project_id(project))
    )
    if states is not None:
        query = query.where(RegressionRow.state.in_(states))
    if triage is not None:
        query = query.where(TriageRow.state == triage)
    now = datetime.now(UTC)
    regressions: list[TriagedRegression] = []
    for document, row in session.execute(query).all():
        decided = to_value(Triage, row)
        regressions.append(
            TriagedRegression(
                regression_id=str(row.regression_id),
                regression=_DOCUMENT.validate_python(document),
                triage=decided,
                is_snoozed=not is_snooze_over(session, project, decided, now),
            )
        )
    return sorted(regressions, key=lambda triaged: triaged.regression.place)


def _commits(regression: Regression) -> list[CommitRef]:
    """All commits that a regression names."""
    commits = [regression.commit]
    if regression.recovered_at is not None:
        commits.append(regression.recovered_at)
    for point in regression.change_points:
        commits += [point.commit, point.previous_commit]
    return commits


def _commit_ids(session: Session, project: str, project_id: int, shas: set[str]) -> dict[str, int]:
    query = select(CommitRow.sha, CommitRow.id).where(
        CommitRow.project_id == project_id, CommitRow.sha.in_(shas)
    )
    ids: dict[str, int] = dict(session.execute(query).all())
    missing = shas - ids.keys()
    if missing:
        raise StoreError(
            f"commit {min(missing)}: not in project {project!r}; ingest a record of it first"
        )
    return ids
