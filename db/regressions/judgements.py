"""Regressions: what `ci` judged of a project, kept for those who look. Derived, so replaced whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Engine, collate, delete, func, insert, select, tuple_
from sqlalchemy.orm import Session, aliased

from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.errors import StoreError
from roofwatch.db.regressions.triage import follow_regressions, regression_id, triage_of
from roofwatch.db.schema.regressions import ChangePointRow, RegressionRow, TriageRow
from roofwatch.db.schema.runs import CaseRow, CommitRow, ProjectRow
from roofwatch.db.values import Cause, ChangePoint, Regression, RegressionState, SeriesKey, Suspect, Verdict

_PLACE: tuple[ColumnElement[Any], ...] = (
    -CommitRow.first_parent_count,
    *(collate(text, "C") for text in (CommitRow.sha, RegressionRow.kernel, RegressionRow.verdict)),
)
"""`Regression.place`, in the order of code points as there, whatever the database's language says."""


def replace_regressions(engine: Engine, project: str, regressions: Sequence[Regression]) -> None:
    """Put these in the place of everything that was judged of the project before, in one transaction. What was decided
    about them follows (`roofwatch.db.regressions.triage`).

    Raises:
        StoreError: the project, or a commit or case that a regression names, has never been ingested; or two of
            them are the same regression.
    """
    _check(project, regressions)
    with Session(engine) as session, session.begin():
        # two judgements at once follow each other; ingest goes on meanwhile
        lock = select(ProjectRow.id).where(ProjectRow.name == project).with_for_update(key_share=True)
        project_id = session.scalar(lock)
        if project_id is None:
            raise StoreError(f"project {project!r}: not in this database; ingest a record of it first")
        commit_ids = _ids(session, project, project_id, CommitRow.sha, CommitRow, _shas(regressions))
        case_ids = _ids(session, project, project_id, CaseRow.name, CaseRow, _case_names(regressions))
        of_project = select(CommitRow.id).where(CommitRow.project_id == project_id)
        session.execute(delete(RegressionRow).where(RegressionRow.commit_id.in_(of_project)))
        follow_regressions(session, project_id, regressions)
        if not regressions:
            return
        rows = [
            {
                "commit_id": commit_ids[regression.commit.sha],
                "kernel": regression.kernel,
                "verdict": regression.verdict.value,
                "cause": regression.cause.value,
                "summary": regression.summary,
                "state": regression.state.value,
                "is_confirmed": regression.is_confirmed,
                "suspects": [asdict(suspect) for suspect in regression.suspects],
                "family": regression.family,
                "typical_change": regression.typical_change,
                "change_spread": regression.change_spread,
                "is_alert": regression.is_alert,
                "recovered_commit_id": None
                if regression.recovered_at is None
                else commit_ids[regression.recovered_at.sha],
            }
            for regression in regressions
        ]
        inserting = insert(RegressionRow).returning(RegressionRow.id, sort_by_parameter_order=True)
        regression_ids = session.scalars(inserting, rows).all()
        points = [
            _change_point_row(regression_id, position, point, commit_ids, case_ids)
            for regression_id, regression in zip(regression_ids, regressions, strict=True)
            for position, point in enumerate(regression.change_points)
        ]
        if points:
            session.execute(insert(ChangePointRow), points)


def list_regressions(
    session: Session, project: str, states: Collection[RegressionState] | None = None
) -> list[Regression]:
    """What was judged of a project, of the newest commit first, then by kernel and verdict; of some states only
    where they are given.
    """
    return [regression for regression, _ in list_triaged(session, project, states)]


def list_triaged(
    session: Session,
    project: str,
    states: Collection[RegressionState] | None = None,
    *,
    triage: TriageState | None = None,
    after: tuple[int, str, str, str] | None = None,
    limit: int | None = None,
) -> list[tuple[Regression, Triage]]:
    """The same, with what people decided about each, in one statement.

    Args:
        session: Of the store.
        project: Its name.
        states: Only these of judgement.
        triage: Only what people left so.
        after: Only what comes after this `Regression.place`.
        limit: So many at most.
    """
    recovery, commit, previous = aliased(CommitRow), aliased(CommitRow), aliased(CommitRow)
    query = (
        select(RegressionRow, CommitRow, recovery, TriageRow, ChangePointRow, CaseRow.name, commit, previous)
        .join(CommitRow, CommitRow.id == RegressionRow.commit_id)
        .outerjoin(recovery, recovery.id == RegressionRow.recovered_commit_id)
        .join(ProjectRow, ProjectRow.id == CommitRow.project_id)
        .outerjoin(
            TriageRow,
            (TriageRow.project_id == ProjectRow.id)
            & (TriageRow.sha == CommitRow.sha)
            & (TriageRow.kernel == RegressionRow.kernel)
            & (TriageRow.verdict == RegressionRow.verdict)
            & TriageRow.is_found,
        )
        .outerjoin(ChangePointRow, ChangePointRow.regression_id == RegressionRow.id)
        .outerjoin(CaseRow, CaseRow.id == ChangePointRow.case_id)
        .outerjoin(commit, commit.id == ChangePointRow.commit_id)
        .outerjoin(previous, previous.id == ChangePointRow.previous_commit_id)
        .where(ProjectRow.name == project)
        .order_by(*_PLACE, RegressionRow.id, ChangePointRow.position)
    )
    conditions: list[ColumnElement[bool]] = []
    if states is not None:
        conditions.append(RegressionRow.state.in_([state.value for state in states]))
    if triage is not None:
        conditions.append(func.coalesce(TriageRow.state, TriageState.NEW.value) == triage.value)
    if after is not None:
        conditions.append(tuple_(*_PLACE) > tuple_(*after))
    query = query.where(*conditions)
    if limit is not None:
        # of whole regressions: each has a row here for every change point
        ids = query.with_only_columns(RegressionRow.id, *_PLACE, maintain_column_froms=True).distinct()
        first = ids.order_by(None).order_by(*_PLACE).limit(limit).subquery()
        query = query.where(RegressionRow.id.in_(select(first.c.id)))
    found: list[tuple[Regression, Triage]] = []
    for _, group in groupby(session.execute(query), key=lambda row: row[0].id):
        rows = list(group)
        regression, at, recovered, decided, *_ = rows[0]
        moves = [
            _change_point(project, move, case_id, moved_at, before)
            for _, _, _, _, move, case_id, moved_at, before in rows
            if move is not None
        ]
        judged = _regression(project, regression, at, recovered, moves)
        found.append((judged, Triage(regression_id(judged)) if decided is None else triage_of(decided)))
    return found


def _regression(
    project: str, row: RegressionRow, commit: CommitRow, recovered: CommitRow | None, points: Sequence[ChangePoint]
) -> Regression:
    return Regression(
        project=project,
        commit=commit.to_ref(),
        kernel=row.kernel,
        verdict=Verdict(row.verdict),
        cause=Cause(row.cause),
        summary=row.summary,
        change_points=tuple(points),
        state=RegressionState(row.state),
        is_confirmed=row.is_confirmed,
        suspects=tuple(
            Suspect(Cause(suspect["cause"]), suspect["weight"], suspect["sentence"]) for suspect in row.suspects
        ),
        family=row.family,
        typical_change=row.typical_change,
        change_spread=row.change_spread,
        is_alert=row.is_alert,
        recovered_at=None if recovered is None else recovered.to_ref(),
    )


def _change_point(
    project: str, row: ChangePointRow, case_id: str, commit: CommitRow, previous: CommitRow
) -> ChangePoint:
    return ChangePoint(
        series=SeriesKey(
            project=project,
            case_id=case_id,
            implementation=row.implementation,
            metric=row.metric,
            runner_class=row.runner_class,
            function=row.function,
            target=row.target,
            tensor=row.tensor,
        ),
        commit=commit.to_ref(),
        previous_commit=previous.to_ref(),
        verdict=Verdict(row.verdict),
        before=row.before,
        after=row.after,
        evidence=row.evidence,
        is_gradual=row.is_gradual,
    )


def _check(project: str, regressions: Sequence[Regression]) -> None:
    for regression in regressions:
        named = {regression.project, *(point.series.project for point in regression.change_points)}
        if named != {project}:
            raise StoreError(
                f"regression of {regression.kernel} at {regression.commit.short_sha}: it speaks of project "
                f"{', '.join(sorted(named))}, not only of {project}; judge each project by itself"
            )
    for key, count in Counter(regression.key for regression in regressions).items():
        if count > 1:
            _, sha, kernel, verdict = key
            raise StoreError(
                f"{count} regressions of {kernel} at {sha[:8]} are {verdict}; group them into one before storing"
            )


def _shas(regressions: Sequence[Regression]) -> set[str]:
    commits = [regression.commit for regression in regressions]
    commits += [regression.recovered_at for regression in regressions if regression.recovered_at is not None]
    for regression in regressions:
        for point in regression.change_points:
            commits += [point.commit, point.previous_commit]
    return {commit.sha for commit in commits}


def _case_names(regressions: Sequence[Regression]) -> set[str]:
    return {point.series.case_id for regression in regressions for point in regression.change_points}


def _ids(
    session: Session, project: str, project_id: int, name: Any, table: type[CommitRow | CaseRow], names: set[str]
) -> dict[str, int]:
    """Row ids by name; every name must be there."""
    query = select(name, table.id).where(table.project_id == project_id, name.in_(names))
    ids: dict[str, int] = dict(session.execute(query).all())
    missing = names - ids.keys()
    if missing:
        raise StoreError(
            f"{table.__tablename__} {min(missing)}: not in project {project!r}; ingest a record of it first"
        )
    return ids


def _change_point_row(
    regression_id: int, position: int, point: ChangePoint, commit_ids: dict[str, int], case_ids: dict[str, int]
) -> dict[str, Any]:
    return {
        "regression_id": regression_id,
        "position": position,
        "commit_id": commit_ids[point.commit.sha],
        "previous_commit_id": commit_ids[point.previous_commit.sha],
        "case_id": case_ids[point.series.case_id],
        "implementation": point.series.implementation,
        "metric": point.series.metric,
        "runner_class": point.series.runner_class,
        "function": point.series.function,
        "target": point.series.target,
        "tensor": point.series.tensor,
        "verdict": point.verdict.value,
        "before": point.before,
        "after": point.after,
        "evidence": point.evidence,
        "is_gradual": point.is_gradual,
    }
