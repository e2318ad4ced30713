"""Decisions about regressions, as the dashboard, the API and `roofwatch triage` make them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.regressions import decisions, triage
from roofwatch.db.regressions.decisions import DecisionError, Signature
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
    expected: TriageState | None = None
    """The state that the person saw; None sets a state whatever it is now."""


def parse_snooze(text: str, now: datetime) -> Snooze:
    """Read `7d`, a date such as `2026-12-24`, or the first digits of a commit; empty ends a snooze.

    Raises:
        DecisionError: it is none of these.
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
        raise DecisionError(
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
        DecisionError: a value is missing or wrong, or there is nothing to do.
        StoreError: there is no such regression.
    """
    regression_id = UUID(about.regression_id)
    kind, value = decision.kind, decision.value.strip()
    if kind in STATES:
        if not decision.reason.strip():
            raise DecisionError(f"{kind}: a reason is required; it is stored with the decision")
        triage.decide(
            session,
            project,
            regression_id,
            STATES[kind],
            expected=decision.expected,
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
        if until.until_sha is not None:
            return f"snoozed until {until.until_sha}"
        return "no longer snoozed"
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


def find_all_regressions(
    regressions: Sequence[TriagedRegression], names: Sequence[str]
) -> list[TriagedRegression]:
    """Find the regressions of several names, each regression once.

    Raises:
        StoreError: a name is empty, or names none, or begins several ids.
    """
    matches: dict[str, TriagedRegression] = {}
    for name in names:
        if not name:
            raise StoreError("an empty name: separate ids and commits by single commas")
        for triaged in find_regressions(regressions, name):
            matches[triaged.regression_id] = triaged
    return list(matches.values())
