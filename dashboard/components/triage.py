"""Triage of regressions: their state, the form to change it for one or several, and the trail of decisions."""

from collections.abc import Sequence
from datetime import tzinfo

import streamlit as st

from roofwatch.ci.messages import on_one_line
from roofwatch.dashboard import data
from roofwatch.dashboard.access import NotAllowedError, Person, may_triage, person_here
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import TRIAGE_MARKS, code_span, shortened, written
from roofwatch.db.access import AuditEntry
from roofwatch.db.regression_values import TriagedRegression, TriageState
from roofwatch.db.regressions.triage import StaleTriageError
from roofwatch.settings import load_settings

_MEANING = {
    TriageState.NEW: "not triaged",
    TriageState.ACKNOWLEDGED: "being investigated",
    TriageState.EXPECTED: "accepted trade-off",
    TriageState.FIXED: "fixed",
    TriageState.INVALID: "false alarm",
}
_LONGEST_REASON = 500


def find_triager(project: str) -> tuple[Person | None, str]:
    """Return the signed-in person if they may triage, else None and the reason as Markdown."""
    settings = load_settings()
    if data.reads_through_server():
        return None, "Read-only: this dashboard reads through a server; use its triage route."
    if settings.sign_in_issuer is None:
        return None, "Read-only: sign-in is not configured."
    person = person_here()
    if person is None:
        return None, "Sign in to triage."
    if not may_triage(person, project, settings.triagers):
        return None, f"{code_span(person.shown_as)} may read, but may not triage."
    return person, ""


def show_triage(project: str, one: TriagedRegression, zone: tzinfo) -> None:
    """Show the triage state, and a form for those who may change it, else the reason why not."""
    decided, mark = one.triage, TRIAGE_MARKS[one.triage.state]
    line = st.container(horizontal=True, vertical_alignment="center")
    line.markdown(f"{mark.badge} {_MEANING[decided.state]}")
    if decided.person and decided.changed_at:
        st.text(
            f"{shortened(decided.person)}, {written(decided.changed_at, zone)}\n{on_one_line(decided.reason or '')}"
        )
    person, why_not = find_triager(project)
    if person is None:
        line.caption(why_not)
    else:
        with line.popover("Set status", icon=":material/rule:"):
            _show_form(project, [one])


def show_selected(project: str, chosen: Sequence[TriagedRegression]) -> None:
    with st.popover(f"Set status of {len(chosen)} selected", icon=":material/rule:", disabled=not chosen):
        if chosen:
            _show_form(project, chosen)


def show_trail(entries: Sequence[AuditEntry], zone: tzinfo) -> None:
    show_table(
        entries,
        Column("when", lambda entry: written(entry.at, zone)),
        Column("who", lambda entry: entry.person or ""),
        Column("from", lambda entry: entry.before or ""),
        Column("to", lambda entry: entry.after or ""),
        Column("reason", lambda entry: entry.reason or ""),
        Column("authenticated as", lambda entry: entry.actor),
        if_empty="No triage decisions yet.",
    )


def _show_form(project: str, chosen: Sequence[TriagedRegression]) -> None:
    # keys per regression, so a reason is not carried over to others
    key = ",".join(f"{one.regression_id}:{one.triage.state}" for one in chosen)
    state = chosen[0].triage.state
    states = list(TriageState)
    with st.form(f"triage:{key}", border=False):
        st.radio(
            "Status",
            states,
            index=states.index(TriageState.ACKNOWLEDGED if state is TriageState.NEW else state),
            key=f"state:{key}",
            format_func=lambda state: TRIAGE_MARKS[state].text,
            captions=[_MEANING[state] for state in states],
        )
        st.text_input("Reason", key=f"reason:{key}", max_chars=_LONGEST_REASON)
        st.form_submit_button("Set status", type="primary", on_click=_decide, args=(project, chosen, key))


def _decide(project: str, chosen: Sequence[TriagedRegression], key: str) -> None:
    """Callback of the form; a regression that somebody else changed meanwhile keeps its state."""
    state, reason = st.session_state[f"state:{key}"], str(st.session_state[f"reason:{key}"]).strip()
    person = person_here()
    if person is None:
        st.warning("You are signed out; sign in again.", icon=":material/error:")
        return
    if not reason:
        st.warning("A reason is required; it is stored with the decision.", icon=":material/error:")
        return
    for one in chosen:
        try:
            seen = one.triage.state
            data.decide(project, one.triage.regression_id, state, seen=seen, person=person, reason=reason)
        except (NotAllowedError, StaleTriageError) as error:
            failure = f"Not set for {code_span(one.regression.kernel)}: {code_span(str(error))}"
            st.warning(failure, icon=":material/error:")
