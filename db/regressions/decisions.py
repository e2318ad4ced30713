"""What people note about a regression next to its state: who works on it, its issue, a snooze; and
the undoing of the last decision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from roofwatch.db.access import AuditEntry, add_entry, list_entries
from roofwatch.db.agenda import request_job
from roofwatch.db.errors import StoreError
from roofwatch.db.projects import lock_project
from roofwatch.db.regressions.triage import TRIAGE_ACTION, decide, require_row
from roofwatch.db.schema.regressions import TriageRow
from roofwatch.db.schema.run_filter import project_id
from roofwatch.db.schema.runs import CommitRow, RunRow
from roofwatch.db.schema.table import to_value
from roofwatch.model.agenda import Job, JobKind
from roofwatch.model.history import ChangePoint, Regression
from roofwatch.model.metrics import TIME
from roofwatch.model.triage import Snooze, Triage, TriageState

ASSIGN_ACTION = "regression.assign"
ISSUE_ACTION = "regression.issue"
SNOOZE_ACTION = "regression.snooze"
DECISION_ACTIONS = frozenset({TRIAGE_ACTION, ASSIGN_ACTION, ISSUE_ACTION, SNOOZE_ACTION})
"""Actions in the audit trail that `undo` reverts."""
_UNDO = "undo"
_SECONDS_OF_CASE = 10.0
"""Expected time of one case in a pair, as in `WatchState`."""


class DecisionError(StoreError):
    """A value of a decision is missing or wrong, or there is nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Who decides."""

    person: str
    """Email address."""
    actor: str
    """Who was authenticated, and how."""


def assign(
    session: Session,
    project: str,
    regression: UUID,
    assignee: str | None,
    by: Signature,
) -> Triage:
    """Set who works on a regression; None for nobody."""
    return _note(session, project, regression, ASSIGN_ACTION, assignee, by, reason=None)


def link_issue(
    session: Session,
    project: str,
    regression: UUID,
    issue_url: str | None,
    by: Signature,
) -> Triage:
    """Link a regression to an issue; None removes the link.

    Raises:
        DecisionError: it is no address of the web.
        StoreError: there is no such regression.
    """
    if issue_url is not None and not issue_url.startswith(("https://", "http://")):
        raise DecisionError(f"issue {issue_url!r}: give its address, which begins with https://")
    return _note(session, project, regression, ISSUE_ACTION, issue_url, by, reason=None)


def snooze(
    session: Session,
    project: str,
    regression: UUID,
    until: Snooze,
    by: Signature,
    *,
    reason: str | None = None,
) -> Triage:
    """Hide a regression until a time, or until a commit is measured; an empty snooze ends it."""
    return _note(session, project, regression, SNOOZE_ACTION, until.text, by, reason=reason)


def request_confirmation(
    session: Session,
    project: str,
    regression: Regression,
    by: Signature,
) -> list[str]:
    """Ask the runners of each class on which a time changed to measure the pair next.

    Returns:
        These runner classes.

    Raises:
        DecisionError: no runner can measure it: another tool did, or only machine code changed.
    """
    timed_points: dict[str, list[ChangePoint]] = {}
    for point in regression.change_points:
        if point.series.metric == TIME.key:
            timed_points.setdefault(point.series.runner_class, []).append(point)
    if not timed_points:
        raise DecisionError(
            "no time of this regression was measured here, so no runner can repeat it"
        )
    for runner_class, points in timed_points.items():
        case_count = len({point.series.case_key for point in points})
        # one pair of commits is measured for each class: that of its first point
        first = points[0]
        job = Job(
            kind=JobKind.CONFIRM,
            reason=f"{by.person} asked for it: {regression.summary}",
            seconds=_SECONDS_OF_CASE * case_count,
            head=first.commit,
            base=first.previous_commit,
        )
        request_job(session, project, runner_class, job.planned())
    return sorted(timed_points)


def undo(session: Session, project: str, regression: UUID, by: Signature) -> AuditEntry:
    """Revert the newest decision about a regression; a second call does it again.

    Returns:
        The reverted decision.

    Raises:
        DecisionError: nothing was decided yet.
        StoreError: there is no such regression.
    """
    entries = list_entries(session, project, subject=str(regression))
    decisions = [entry for entry in entries if entry.action in DECISION_ACTIONS]
    if not decisions:
        raise DecisionError(f"regression {regression}: nothing was decided yet")
    # newest first; an undo is an entry of its own, so a second one reverts it
    newest = decisions[0]
    if newest.action == TRIAGE_ACTION:
        # the first decision has no state before it
        state = TriageState(newest.before or TriageState.NEW)
        decide(
            session,
            project,
            regression,
            state,
            person=by.person,
            reason=_UNDO,
            actor=by.actor,
        )
    else:
        _note(session, project, regression, newest.action, newest.before, by, reason=_UNDO)
    return newest


def is_snooze_over(session: Session, project: str, triage: Triage, now: datetime) -> bool:
    """Whether a snooze has ended: its time has come, or its commit has a run."""
    if triage.snoozed_until is not None:
        return triage.snoozed_until <= now
    if triage.snoozed_until_sha is None:
        return True
    # people give the first digits of a commit
    measured = (
        select(RunRow.run_id)
        .join(CommitRow, CommitRow.id == RunRow.commit_id)
        .where(
            CommitRow.project_id == project_id(project),
            CommitRow.sha.startswith(triage.snoozed_until_sha, autoescape=True),
        )
    )
    return session.scalars(measured.limit(1)).first() is not None


def _note(
    session: Session,
    project: str,
    regression: UUID,
    action: str,
    value: str | None,
    by: Signature,
    *,
    reason: str | None,
) -> Triage:
    # two decisions at once would both note the same value as the one before
    lock_project(session, project)
    row = require_row(session, project, regression)
    read, write = _FIELDS[action]
    before = read(row)
    write(row, value)
    add_entry(
        session,
        actor=by.actor,
        person=by.person,
        action=action,
        project=project,
        subject=str(regression),
        before=before,
        after=value,
        reason=reason,
    )
    return to_value(Triage, row)


def _write_assignee(row: TriageRow, value: str | None) -> None:
    row.assignee = value


def _write_issue(row: TriageRow, value: str | None) -> None:
    row.issue_url = value


def _write_snooze(row: TriageRow, value: str | None) -> None:
    parsed = Snooze.parse(value)
    row.snoozed_until = parsed.until
    row.snoozed_until_sha = parsed.until_sha


def _read_snooze(row: TriageRow) -> str | None:
    return Snooze(row.snoozed_until, row.snoozed_until_sha).text


_Read = Callable[[TriageRow], str | None]
_Write = Callable[[TriageRow, str | None], None]
_FIELDS: dict[str, tuple[_Read, _Write]] = {
    ASSIGN_ACTION: (lambda row: row.assignee, _write_assignee),
    ISSUE_ACTION: (lambda row: row.issue_url, _write_issue),
    SNOOZE_ACTION: (_read_snooze, _write_snooze),
}
"""How the value of each action is read from a row and written to it."""
