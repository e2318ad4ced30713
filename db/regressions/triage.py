"""Triage: what people decide about regressions, and who decided when and why.

A decision outlives the judgement that found the regression: a later one is told apart or known again by
`roofwatch.db.regressions.recognise`, and by `roofwatch.db.regressions.reopening` some decisions change by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from roofwatch.db.auth.audit import add_entry
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.queries.series_runs import of_series
from roofwatch.db.regressions.recognise import Known, recognise, series_in_words
from roofwatch.db.regressions.reopening import ROOFWATCH, Standing, change_of
from roofwatch.db.schema.regressions import TriageRow
from roofwatch.db.schema.runs import CommitRow, EnvironmentRow, ProjectRow, RunRow
from roofwatch.db.values import Regression

_NAMESPACE = UUID("6f1b0f5e-5f0e-4a53-9f55-2f6d1b6f6a10")

DECIDED = "regression.triage"
"""What the audit trail calls a decision."""

Key = tuple[str, str, str, str]
"""Project, sha, kernel, verdict: `Regression.key`."""


class StaleTriageError(StoreError):
    """Somebody decided otherwise in the meantime."""


def regression_id(regression: Regression) -> UUID:
    """Of one that is found for the first time: the same wherever the same records are judged."""
    return uuid5(_NAMESPACE, "\n".join(regression.key))


def read_triage(session: Session, project: str) -> Mapping[Key, Triage]:
    """How each regression of the last judgement of a project stands."""
    query = select(TriageRow).join(ProjectRow).where(ProjectRow.name == project, TriageRow.is_found)
    return {(project, row.sha, row.kernel, row.verdict): triage_of(row) for row in session.scalars(query)}


def set_triage(
    engine: Engine,
    project: str,
    regression_id: UUID,
    state: TriageState,
    *,
    expected: TriageState | None = None,
    person: str,
    reason: str,
    actor: str,
) -> Triage:
    """Decide about a regression, and note that in the audit trail.

    Args:
        engine: Of the store.
        project: Its name.
        regression_id: Of one that was found.
        state: The decision.
        expected: What the person saw before; None to decide whatever was decided before.
        person: Who decides.
        reason: Why.
        actor: Who was let in.

    Raises:
        StaleTriageError: the state is no longer the expected one.
        StoreError: there is no such regression in the project.
    """
    with Session(engine) as session, session.begin():
        return decide(
            session, project, regression_id, state, expected=expected, person=person, reason=reason, actor=actor
        )


def decide(
    session: Session,
    project: str,
    regression_id: UUID,
    state: TriageState,
    *,
    expected: TriageState | None = None,
    person: str,
    reason: str,
    actor: str,
) -> Triage:
    """The same as `set_triage`, as a part of a transaction."""
    # decisions of a project follow each other, so that what was seen before is what is replaced
    lock = select(ProjectRow.id).where(ProjectRow.name == project).with_for_update(key_share=True)
    project_id = session.scalar(lock)
    row = session.get(TriageRow, regression_id)
    if row is None or row.project_id != project_id:
        raise StoreError(f"regression {regression_id}: not in project {project!r}")
    if expected is not None and row.state != expected.value:
        raise StaleTriageError(f"the regression is {row.state}, not {expected}; look again, then decide")
    row.newest_place = max(_measured_places(session, project), default=0)
    _change(session, row, project, state, person=person, reason=reason, actor=actor)
    return triage_of(row)


def follow_regressions(session: Session, project_id: int, regressions: Sequence[Regression]) -> None:
    """Have decisions follow what a new judgement found: known again, begun, and changed where it says so.

    Args:
        session: In a transaction that holds the project.
        project_id: Its row.
        regressions: All that was found.
    """
    query = (
        select(TriageRow, CommitRow.first_parent_count)
        .outerjoin(CommitRow, (CommitRow.project_id == TriageRow.project_id) & (CommitRow.sha == TriageRow.sha))
        .where(TriageRow.project_id == project_id)
        # of two that bear a name, the later one in the list is meant: what stood last
        .order_by(TriageRow.is_found, TriageRow.regression_id)
    )
    placed = session.execute(query).all()
    rows = {row.regression_id: row for row, _ in placed}
    known = [
        Known(row.regression_id, row.sha, row.kernel, row.verdict, frozenset(row.series), place)
        for row, place in placed
    ]
    before = {known_id: row.is_found for known_id, row in rows.items()}
    for row in rows.values():
        row.is_found = False
    session.flush()
    places: list[int] | None = None
    for regression, known_id in zip(regressions, recognise(known, regressions), strict=True):
        is_new = known_id is None
        row = _begin(session, project_id, regression, rows) if known_id is None else rows[known_id]
        row.sha, row.kernel, row.verdict = regression.commit.sha, regression.kernel, regression.verdict.value
        row.series, row.is_found = sorted(series_in_words(regression)), True
        if places is None and row.state == TriageState.FIXED:
            places = _measured_places(session, regression.project)
        later_count = sum(place > row.newest_place for place in places or ())
        standing = Standing(TriageState(row.state), row.person, is_new or before[row.regression_id], later_count)
        change = change_of(standing, regression)
        if change is not None:
            row.newest_place = max(places or (), default=row.newest_place)
            _change(
                *(session, row, regression.project, change.state),
                person=ROOFWATCH,
                reason=change.reason,
                actor=ROOFWATCH,
            )
    session.flush()


def _begin(session: Session, project_id: int, regression: Regression, rows: dict[UUID, TriageRow]) -> TriageRow:
    """The row of one that is new."""
    new_id = regression_id(regression)
    while new_id in rows:  # what first bore this name has moved on
        new_id = uuid5(_NAMESPACE, str(new_id))
    row = TriageRow(regression_id=new_id, project_id=project_id, newest_place=0, state=TriageState.NEW.value)
    rows[new_id] = row
    session.add(row)
    return row


def _change(
    session: Session, row: TriageRow, project: str, state: TriageState, *, person: str, reason: str, actor: str
) -> None:
    changed_at = session.scalars(select(func.now())).one()
    before, row.state = row.state, state.value
    row.person, row.reason, row.changed_at = person, reason, changed_at
    add_entry(
        session,
        actor=actor,
        person=person,
        action=DECIDED,
        project=project,
        subject=str(row.regression_id),
        before=before,
        after=state.value,
        reason=reason,
    )


def _measured_places(session: Session, project: str) -> list[int]:
    """Places on the default branch that runs of it were made at."""
    query = (
        select(CommitRow.first_parent_count)
        .distinct()
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(of_series(project, include_dirty=False, include_pairs=False, include_branches=False))
    )
    return list(session.scalars(query))


def triage_of(row: TriageRow) -> Triage:
    """The value of a row."""
    return Triage(
        regression_id=row.regression_id,
        state=TriageState(row.state),
        person=row.person,
        reason=row.reason,
        changed_at=row.changed_at,
    )
