"""Regressions: rows of open ones, tables of others, their triage and the form to change it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from functools import partial
from typing import Any
from uuid import UUID

import streamlit as st

from roofwatch.ci.history.finding import ALL_KERNELS
from roofwatch.dashboard import data
from roofwatch.dashboard.access import NotAllowedError, may_triage, person_here
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import (
    TRIAGE_MARKS,
    age_text,
    change_text,
    code_span,
    confirmation_text,
    headline_text,
    natural_order,
    shortened,
    transition_text,
    worst_change_point,
    written,
)
from roofwatch.db.auth.values import AuditEntry, TriagedRegression, TriageState
from roofwatch.db.regressions.triage import StaleTriageError
from roofwatch.db.values import ChangePoint, Regression, RegressionState, Verdict
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
_SUMMARY_LENGTH = 110
"""Length of a summary in a row."""


def _size(one: TriagedRegression) -> float:
    """Return the size of the worst change: symmetric for slower and faster, infinite for failures."""
    change = worst_change_point(one.regression).relative_change
    return math.inf if change is None or change <= -1 else abs(math.log1p(change))


_URGENCY = "urgency"
ORDERS: Mapping[str, Callable[[TriagedRegression], Any]] = {
    _URGENCY: lambda one: (not one.regression.is_alert, one.triage.state is not TriageState.NEW, one.regression.place),
    "largest change": lambda one: -_size(one),
    "newest commit": lambda one: one.regression.place,
    "kernel": lambda one: natural_order(one.regression.kernel),
}
"""Orders of a list of regressions."""


def in_order(found: Iterable[TriagedRegression], order: str = _URGENCY) -> list[TriagedRegression]:
    """Sort regressions; ties keep the order of urgency."""
    return sorted(sorted(found, key=ORDERS[_URGENCY]), key=ORDERS[order])


def show_row(view: View, one: TriagedRegression, now: datetime) -> None:
    regression, worst, commit = one.regression, worst_change_point(one.regression), one.regression.commit
    with st.container(border=True):
        what, how_much, where, links = st.columns([5, 2.2, 2.8, 1], vertical_alignment="center")
        with what.container(gap="xsmall"):
            families = view.filters.families_of(point.series.kernel for point in regression.change_points)
            family = f" {code_span(', '.join(families))}" if families else ""
            st.markdown(f"**{kernel_markdown(regression.kernel)}**{family} {' '.join(standing_marks(one))}")
            summary = regression.summary.removeprefix(f"{regression.kernel}: ")
            st.text(f"{shortened(summary, length=_SUMMARY_LENGTH)}\n{_suspect_text(regression)}")
        with how_much.container(gap="xsmall"):
            st.subheader(headline_text(worst), anchor=False)
            st.caption(worst_caption(worst))
        with where.container(gap="xsmall"):
            st.markdown(f"{view.sources.commit(commit.sha)} {age_text(commit.committed_at, now=now)}")
            lines = [shortened(commit.subject, length=70), shortened(commit.author)]
            if view.filters.owners:
                lines.append(f"Owner: {', '.join(owners_of(view, regression)) or 'none'}")
            st.text("\n".join(lines))
        view.page_link("regression", "Why", place=links, regression=one.regression_id)
        view.page_link("trends", "Trend", place=links, **trend_of(worst))


def owners_of(view: View, regression: Regression) -> list[str]:
    """Return the owners of all changed kernels."""
    return view.filters.owners_of(point.series.kernel for point in regression.change_points)


def standing_marks(one: TriagedRegression) -> list[str]:
    """Return badges for alert, confirmation and triage state as Markdown."""
    regression, state = one.regression, TRIAGE_MARKS[one.triage.state]
    marks = [":orange-badge[▲ alert]"] if regression.is_alert else []
    marks.append(f":gray-badge[{confirmation_text(regression)}]")
    marks.append(state.badge)
    if one.triage.person:
        # untrusted text: a badge would interpret Markdown
        marks.append(f"by {code_span(shortened(one.triage.person, length=40))}")
    return marks


def _suspect_text(regression: Regression) -> str:
    if not regression.suspects:
        return f"Suspect: {regression.cause}"
    likeliest = regression.suspects[0]
    return f"Suspect: {likeliest.cause}, {likeliest.weight:.0%}: {shortened(likeliest.sentence, length=110)}"


def kernel_markdown(kernel: str) -> str:
    return "every kernel" if kernel == ALL_KERNELS else code_span(kernel)


def worst_caption(worst: ChangePoint) -> str:
    """Name the metric of the headline, with its levels if the headline does not show them."""
    levels = "" if headline_text(worst) == transition_text(worst) else f", {transition_text(worst)}"
    return f"{worst.series.definition.title}{levels}"


def trend_of(change_point: ChangePoint) -> dict[str, str]:
    """Return the choices in Trends that show a change point."""
    series = change_point.series
    asked = {
        "kernel": series.kernel,
        "metric": series.metric,
        "case": series.case_id,
        "implementation": series.implementation,
        "runner": series.runner_class,
        "target": series.target,
        "function": series.function,
        "tensor": series.tensor,
    }
    return {name: value for name, value in asked.items() if value}


def show_others(view: View, found: Sequence[TriagedRegression], now: datetime) -> None:
    """Show improvements, inconclusive changes and settled regressions."""

    def standing(verdict: Verdict) -> list[TriagedRegression]:
        own = [one for one in found if one.regression.verdict is verdict]
        return [one for one in own if one.regression.state is RegressionState.OPEN]

    kinds = {
        "Improvements": standing(Verdict.IMPROVED),
        "Inconclusive": standing(Verdict.INCONCLUSIVE),
        "Settled": [one for one in found if one.regression.verdict is Verdict.REGRESSED and not one.is_open],
    }
    for title, rows in kinds.items():
        if rows:
            view.link.unfold(f"{title}: {len(rows)}", partial(_show_table, view, rows, now), parameter=title.lower())


def _show_table(view: View, found: Sequence[TriagedRegression], now: datetime) -> None:
    show_table(
        found,
        Column(
            "open",
            lambda one: view.address_of("regression", regression=one.regression_id),
            link="why",
        ),
        Column("kernel", lambda one: one.regression.kernel),
        Column("what", lambda one: one.regression.summary),
        Column("change", lambda one: change_text(worst_change_point(one.regression))),
        Column("commit", lambda one: one.regression.commit.short_sha),
        Column("subject", lambda one: one.regression.commit.subject),
        Column("age", lambda one: age_text(one.regression.commit.committed_at, now=now)),
        Column("state", lambda one: one.settled_by),
        Column("reason", lambda one: one.triage.reason or ""),
    )


def show_triage(project: str, one: TriagedRegression, zone: tzinfo) -> None:
    """Show the triage state, and a form for those who may change it, else the reason why not."""
    decided, mark = one.triage, TRIAGE_MARKS[one.triage.state]
    st.markdown(f"{mark.badge} {_MEANING[decided.state]}")
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
