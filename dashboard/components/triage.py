"""Triage state of a regression, and the form to change it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from uuid import UUID

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.access import NotAllowedError, may_triage, person_here
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import TRIAGE_MARKS, code_span, shortened, written
from roofwatch.db.auth.values import AuditEntry, TriagedRegression, TriageState
from roofwatch.db.regressions.triage import StaleTriageError
from roofwatch.settings import load_settings

_MEANING = {
    TriageState.NEW: "not triaged",
    TriageState.ACKNOWLEDGED: "in progress",
    TriageState.EXPECTED: "real and accepted",
    TriageState.FIXED: "fixed",
    TriageState.INVALID: "not a regression",
}
_LONGEST_REASON = 500
_OUTCOME = "triage:outcome"
"""Key of the outcome message until the next redraw."""


def show_triage(project: str, one: TriagedRegression, zone: tzinfo) -> None:
    """Show the triage state, and a form for those who may change it, else the reason why not."""
    decided, mark = one.triage, TRIAGE_MARKS[one.triage.state]
    st.markdown(f":{mark.badge_colour}-badge[{mark.text}] {_MEANING[decided.state]}")
    if decided.person and decided.changed_at:
        st.text(f"{shortened(decided.person)}, {written(decided.changed_at, zone)}\n{decided.reason or ''}")
    outcome = st.session_state.pop(_OUTCOME, None)
    if outcome is not None:
        st.warning(outcome, icon=":material/error:")
    settings = load_settings()
    if data.reads_through_server():
        st.caption("Read-only: this dashboard reads through a server; use its triage route.")
        return
    if settings.sign_in_issuer is None:
        st.caption("Read-only: sign-in is not configured.")
        return
    person = person_here()
    if person is None:
        st.caption("Sign in to triage.")
        return
    if not may_triage(person, project, settings.triagers):
        st.caption(f"{code_span(person.shown_as)} may read, but may not triage.")
        return
    _show_form(project, one)


def show_trail(entries: Sequence[AuditEntry], zone: tzinfo) -> None:
    """Show triage decisions, newest first."""
    show_table(
        entries,
        Column("when", lambda entry: written(entry.at, zone)),
        Column("who", lambda entry: entry.person or ""),
        Column("from", lambda entry: entry.before or ""),
        Column("to", lambda entry: entry.after or ""),
        Column("reason", lambda entry: entry.reason or ""),
        Column("signed in as", lambda entry: entry.actor),
        if_empty="No triage decisions yet.",
    )


def _show_form(project: str, one: TriagedRegression) -> None:
    regression_id, seen = one.triage.regression_id, one.triage.state
    offered = [state for state in TriageState if state is not seen]
    # keys per regression, so a reason is not carried over to another
    state_key, reason_key = f"state:{regression_id}:{seen}", f"reason:{regression_id}:{seen}"
    with st.form(f"triage:{regression_id}", border=True):
        first = offered.index(TriageState.ACKNOWLEDGED) if TriageState.ACKNOWLEDGED in offered else 0
        st.radio(
            "Decide",
            offered,
            index=first,
            key=state_key,
            format_func=lambda state: TRIAGE_MARKS[state].text,
            captions=[_MEANING[state] for state in offered],
        )
        st.text_input("Why", key=reason_key, max_chars=_LONGEST_REASON)
        st.form_submit_button(
            "Decide", type="primary", on_click=_decide, args=(project, regression_id, seen, state_key, reason_key)
        )


def _decide(project: str, regression_id: UUID, seen: TriageState, state_key: str, reason_key: str) -> None:
    """Callback of the form, with the state that the person saw."""
    state, reason = st.session_state[state_key], str(st.session_state[reason_key]).strip()
    person = person_here()
    if person is None:
        st.session_state[_OUTCOME] = "You are signed out; sign in again."
        return
    if not reason:
        st.session_state[_OUTCOME] = "Give a reason; it is stored with the decision."
        return
    try:
        data.decide(project, regression_id, state, seen=seen, person=person, reason=reason)
    except (NotAllowedError, StaleTriageError) as error:
        st.session_state[_OUTCOME] = f"Nothing was decided: {code_span(str(error))}"
