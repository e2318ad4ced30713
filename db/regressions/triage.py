"""Triage: what people decide about regressions. A decision follows its regression through later
analyses.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from roofwatch.db.access import add_entry
from roofwatch.db.errors import StoreError
from roofwatch.db.projects import lock_project
from roofwatch.db.schema.regressions import TriageRow
from roofwatch.db.schema.run_filter import is_in_series, project_id
from roofwatch.db.schema.runs import CommitRow, RunRow
from roofwatch.db.schema.table import to_value
from roofwatch.model.acceptance import AcceptedRegression
from roofwatch.model.history import Regression
from roofwatch.model.triage import Triage, TriageState

# ids of regressions are made from it: another value would orphan every decision
_NAMESPACE = UUID("6f1b0f5e-5f0e-4a53-9f55-2f6d1b6f6a10")
# a regression that lost or gained a few series is the same one
_MIN_COMMON_SERIES = 0.5
RegressionKey = tuple[str, str, str, str]
"""`Regression.key`."""

TRIAGE_ACTION = "regression.triage"
"""Action of a decision in the audit trail."""
ROOFWATCH = "roofwatch"
"""Person and actor of automatic decisions."""
REOPEN_AFTER_COMMITS = 3
"""A fixed regression that is still found after this many newer measured commits is reopened."""


class StaleTriageError(StoreError):
    """The state changed since the person looked."""


def regression_id(regression: Regression) -> UUID:
    """ID of a regression that is found for the first time.

    It depends only on the regression's key.
    """
    return uuid5(_NAMESPACE, "\n".join(regression.key))


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
    """Decide about a regression in the caller's transaction, with an entry in the audit trail.

    `expected` is the state that the person saw; None skips this check.

    Raises:
        StaleTriageError: the state is not the expected one.
        StoreError: the project has no such regression.
    """
    lock_project(session, project)
    row = require_row(session, project, regression_id)
    if expected is not None and row.state is not expected:
        raise StaleTriageError(
            f"the regression is {row.state}, not {expected}; look again, then decide"
        )
    row.newest_first_parent_count = max(_measured_commits(session, project), default=0)
    _change(
        session,
        row,
        project,
        state,
        person=person,
        reason=reason,
        actor=actor,
    )
    return to_value(Triage, row)


def require_row(session: Session, project: str, regression_id: UUID) -> TriageRow:
    """Return the row of a regression.

    Raises:
        StoreError: the project has no such regression.
    """
    query = select(TriageRow).where(
        TriageRow.regression_id == regression_id, TriageRow.project_id == project_id(project)
    )
    row = session.scalars(query).first()
    if row is None:
        raise StoreError(f"regression {regression_id}: not in project {project!r}")
    return row


def follow_regressions(
    session: Session,
    project_id: int,
    regressions: Sequence[Regression],
    accepted: Mapping[RegressionKey, AcceptedRegression],
) -> list[UUID]:
    """Update triage after an analysis, in a transaction that locks the project; return the ID of
    each regression.

    Regressions are matched with earlier ones, new ones added, and automatic decisions applied.
    `accepted` are those that a pull request accepted, by key.
    """
    query = (
        select(TriageRow, CommitRow.first_parent_count)
        .outerjoin(
            CommitRow,
            (CommitRow.project_id == TriageRow.project_id) & (CommitRow.sha == TriageRow.sha),
        )
        .where(TriageRow.project_id == project_id)
        # of two with the same key, the later in this order wins: the one that was found last
        .order_by(TriageRow.is_found, TriageRow.regression_id)
    )
    earlier = [(row, count) for row, count in session.execute(query)]
    rows = {row.regression_id: row for row, _ in earlier}
    was_found = {row.regression_id: row.is_found for row in rows.values()}
    for row in rows.values():
        row.is_found = False
    session.flush()
    measured = []
    if regressions:
        measured = _measured_commits(session, regressions[0].project)
    ids = []
    for regression, known_id in zip(regressions, _match(earlier, regressions), strict=True):
        if known_id is None:
            row = _add(session, project_id, regression, rows)
        else:
            row = rows[known_id]
        ids.append(row.regression_id)
        row.sha, row.kernel, row.verdict = (
            regression.commit.sha,
            regression.kernel,
            regression.verdict,
        )
        row.series, row.is_found = sorted(_series_names(regression)), True
        later_count = sum(count > row.newest_first_parent_count for count in measured)
        change = _automatic_decision(
            to_value(Triage, row),
            regression,
            was_found=known_id is None or was_found[known_id],
            later_count=later_count,
        )
        if change is not None:
            row.newest_first_parent_count = max(measured, default=row.newest_first_parent_count)
            state, reason = change
            _change(
                session,
                row,
                regression.project,
                state,
                person=ROOFWATCH,
                reason=reason,
                actor=ROOFWATCH,
            )
        acceptance = accepted.get(regression.key)
        # what a person decided here counts more than what was decided in the pull request
        if (
            acceptance is not None
            and row.state is TriageState.NEW
            and row.person in {None, ROOFWATCH}
        ):
            _change(
                session,
                row,
                regression.project,
                TriageState.EXPECTED,
                person=acceptance.person,
                reason=acceptance.reason,
                actor=ROOFWATCH,
                accepted_in=acceptance.pull_requests,
            )
    session.flush()
    return ids


def _match(
    earlier: Sequence[tuple[TriageRow, int | None]], regressions: Sequence[Regression]
) -> list[UUID | None]:
    """The ID of each regression that was found before, or None. No ID is used twice.

    Earlier ones come with the place of their commit on the branch, or None if the commit is gone.
    More data can move a regression by a commit or add a kernel. So they match by key, or else if
    the verdict is equal, the ranges of commits overlap, and they share half of the series of the
    smaller one.
    """
    by_key = {(row.sha, row.kernel, row.verdict): row.regression_id for row, _ in earlier}
    ids = [
        by_key.get((regression.commit.sha, regression.kernel, regression.verdict))
        for regression in regressions
    ]
    used = set(ids)
    free = [(row, branch_place) for row, branch_place in earlier if row.regression_id not in used]
    candidates: list[tuple[float, int, UUID]] = []
    for position, regression in enumerate(regressions):
        if ids[position] is not None:
            continue
        for row, branch_place in free:
            share = _common_series(row, branch_place, regression)
            if share >= _MIN_COMMON_SERIES:
                candidates.append((-share, position, row.regression_id))
    # the largest share first
    for _, position, earlier_id in sorted(candidates):
        if ids[position] is None and earlier_id not in used:
            ids[position] = earlier_id
            used.add(earlier_id)
    return ids


def _series_names(regression: Regression) -> frozenset[str]:
    """Series of a regression, without tensor and function: a rewrite renames these."""
    keys = [point.series for point in regression.change_points]
    return frozenset(
        " · ".join((key.case_id, key.implementation, key.metric, key.runner_class)) for key in keys
    )


def _automatic_decision(
    triage: Triage,
    regression: Regression,
    *,
    was_found: bool,
    later_count: int,
) -> tuple[TriageState, str] | None:
    """The new state and the reason, if an analysis changes a decision.

    `was_found` tells whether the analysis before found the regression too. `later_count` counts
    measured commits newer than the newest at the time of the decision.
    """
    recovered = regression.recovered_at
    if recovered is not None:
        if triage.state in {TriageState.NEW, TriageState.ACKNOWLEDGED}:
            return (
                TriageState.FIXED,
                f"recovered at {recovered.short_sha} ({recovered.subject[:200]})",
            )
    elif triage.state is TriageState.FIXED:
        if not was_found:
            return TriageState.NEW, "found again"
        if triage.person == ROOFWATCH:
            return TriageState.NEW, "no longer recovered"
        if later_count >= REOPEN_AFTER_COMMITS:
            return TriageState.NEW, f"still there after {later_count} commits measured since"
    return None


def _common_series(earlier: TriageRow, branch_place: int | None, regression: Regression) -> float:
    """Share of common series; 0 if the two cannot be the same regression."""
    if (
        earlier.verdict != regression.verdict
        or branch_place is None
        or not regression.change_points
    ):
        return 0.0
    first = min(point.previous_commit.first_parent_count for point in regression.change_points)
    last = max(point.commit.first_parent_count for point in regression.change_points)
    if not first < branch_place <= last + (last - first):
        return 0.0
    series = _series_names(regression)
    smaller = min(len(series), len(earlier.series))
    if not smaller:
        return 0.0
    return len(series.intersection(earlier.series)) / smaller


def _add(
    session: Session,
    project_id: int,
    regression: Regression,
    rows: dict[UUID, TriageRow],
) -> TriageRow:
    new_id = regression_id(regression)
    while new_id in rows:  # the regression that had this key first has another key now
        new_id = uuid5(_NAMESPACE, str(new_id))
    row = TriageRow(
        regression_id=new_id,
        project_id=project_id,
        newest_first_parent_count=0,
        state=TriageState.NEW,
    )
    rows[new_id] = row
    session.add(row)
    return row


def _change(
    session: Session,
    row: TriageRow,
    project: str,
    state: TriageState,
    *,
    person: str,
    reason: str,
    actor: str,
    accepted_in: str | None = None,
) -> None:
    now = session.scalars(select(func.now())).one()  # first, since a query flushes the row
    before, row.state = row.state, state
    row.person, row.reason, row.changed_at = person, reason, now
    row.accepted_in = accepted_in
    add_entry(
        session,
        actor=actor,
        person=person,
        action=TRIAGE_ACTION,
        project=project,
        subject=str(row.regression_id),
        before=before,
        after=state,
        reason=reason,
    )


def _measured_commits(session: Session, project: str) -> list[int]:
    """First-parent counts of the measured commits of the default branch."""
    query = (
        select(CommitRow.first_parent_count)
        .distinct()
        .join(RunRow, RunRow.commit_id == CommitRow.id)
        .where(is_in_series(project))
    )
    return list(session.scalars(query))
