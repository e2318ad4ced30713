"""Decisions about regressions, as the dashboard and `roofwatch triage` make them."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.regressions import decisions, triage
from roofwatch.db.regressions.decisions import Signature
from roofwatch.model.triage import Snooze, TriagedRegression, TriageState

_DAYS = re.compile(r"([0-9]{1,4})d")
_SHA = re.compile(r"[0-9a-f]{7,64}")


class DecisionKind(StrEnum):
    """What may be decided about a regression."""

    CONFIRM = "confirm"
    """Ask its runners to measure the pair next."""
    ACKNOWLEDGE = "acknowledge"
    ASSIGN = "assign"
    ISSUE = "issue"
    EXPECTED = "expected"
    NOT_REAL = "not-real"
    FIXED = "fixed"
    REOPEN = "reopen"
    SNOOZE = "snooze"
    UNDO = "undo"


STATES = {
    DecisionKind.ACKNOWLEDGE: TriageState.ACKNOWLEDGED,
    DecisionKind.EXPECTED: TriageState.EXPECTED,
    DecisionKind.NOT_REAL: TriageState.INVALID,
    DecisionKind.FIXED: TriageState.FIXED,
    DecisionKind.REOPEN: TriageState.NEW,
}
"""The state that a decision sets."""


@dataclass(frozen=True, kw_only=True)
class TriageDecision:
    kind: DecisionKind
    value: str = ""
    """Who is assigned, the address of the issue, or until when it is snoozed."""
    reason: str = ""


def git_signature() -> Signature | None:
    """Return who works on this machine by git's settings; None without an email address there."""
    command = ["git", "config", "--get", "user.email"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    email = answer.stdout.strip()
    if not email:
        return None
    return Signature(person=email, actor=f"git:{email}")


def parse_snooze(text: str, now: datetime) -> Snooze:
    """Read `7d`, a date such as `2026-12-24`, or the first digits of a commit; empty ends a snooze.

    Raises:
        StoreError: it is none of these.
    """
    if not text:
        return Snooze()
    days = _DAYS.fullmatch(text)
    if days is not None:
        return Snooze(until=now + timedelta(days=int(days[1])))
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        if _SHA.fullmatch(text):
            return Snooze(until_sha=text)
        raise StoreError(
            f"snooze {text!r}: give days such as 7d, a date such as 2026-12-24, or a commit"
        ) from None
    return Snooze(until=until if until.tzinfo else until.replace(tzinfo=UTC))


def apply_decision(
    session: Session,
    project: str,
    about: TriagedRegression,
    decision: TriageDecision,
    by: Signature,
) -> str:
    """Store a decision in the caller's transaction, and return it in words.

    Raises:
        StaleTriageError: somebody else changed the state meanwhile.
        StoreError: a value is missing or wrong, or there is no such regression.
    """
    regression_id = UUID(about.regression_id)
    kind, value = decision.kind, decision.value.strip()
    if kind in STATES:
        if not decision.reason.strip():
            raise StoreError(f"{kind}: a reason is required; it is stored with the decision")
        triage.decide(
            session,
            project,
            regression_id,
            STATES[kind],
            expected=about.triage.state,
            person=by.person,
            reason=decision.reason.strip(),
            actor=by.actor,
        )
        return f"set to {STATES[kind]}"
    if kind is DecisionKind.CONFIRM:
        runner_classes = decisions.request_confirmation(session, project, about.regression, by)
        return f"next job of {' and '.join(runner_classes)}"
    if kind is DecisionKind.ASSIGN:
        decisions.assign(session, project, regression_id, value or None, by)
        return f"assigned to {value or 'nobody'}"
    if kind is DecisionKind.ISSUE:
        decisions.link_issue(session, project, regression_id, value or None, by)
        return f"linked to {value or 'no issue'}"
    if kind is DecisionKind.SNOOZE:
        until = parse_snooze(value, datetime.now(UTC))
        decisions.snooze(session, project, regression_id, until, by, reason=decision.reason or None)
        if until.until is not None:
            return f"snoozed until {until.until:%Y-%m-%d %H:%M}"
        return f"snoozed until {until.until_sha}" if until.until_sha else "no longer snoozed"
    reverted = decisions.undo(session, project, regression_id, by)
    return f"undone: {reverted.action.partition('.')[2]} {reverted.after or 'nothing'}"


def find_regressions(
    regressions: Sequence[TriagedRegression], name: str
) -> list[TriagedRegression]:
    """Find a regression by the first digits of its id, or all of a commit by those of its sha.

    Raises:
        StoreError: there is none, or the digits are those of several.
    """
    of_commit = [
        triaged for triaged in regressions if triaged.regression.commit.sha.startswith(name)
    ]
    by_id = [triaged for triaged in regressions if triaged.regression_id.startswith(name)]
    if len(by_id) > 1 or (by_id and of_commit):
        raise StoreError(f"{name}: several regressions begin so; give more digits")
    matches = by_id or of_commit
    if not matches:
        raise StoreError(f"{name}: no regression with this id or commit; see show regressions")
    return matches
