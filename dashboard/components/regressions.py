"""Regressions: rows of open ones, tables of others, and their triage: state, form and trail of
decisions.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from functools import partial
from html import escape
from urllib.parse import quote

import streamlit as st

from roofwatch.ci.history.finding import ALL_KERNELS
from roofwatch.ci.messages import on_one_line
from roofwatch.dashboard import data
from roofwatch.dashboard.access import NotAllowedError, Person, may_triage, person_here
from roofwatch.dashboard.charts.style import BLUE, GREY, VERMILLION
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import (
    TRIAGE_MARKS,
    Mark,
    age_text,
    certainty_text,
    code_span,
    confirmation_text,
    date_written,
    escaped,
    headline_text,
    percent,
    shortened,
    transition_text,
    written,
)
from roofwatch.db.access import AuditEntry
from roofwatch.db.regressions.triage import StaleTriageError
from roofwatch.model.history import ChangePoint, Regression, RegressionState
from roofwatch.model.triage import TriagedRegression, TriageState
from roofwatch.model.verdict import Verdict
from roofwatch.settings import load_settings

_SPARK_PX = (140, 48)
_MIN_RELATIVE_SPAN = 0.02
"""Relative range that fills the height of a small drawing at least: noise must not look like steps.
"""


_MEANING = {
    TriageState.NEW: "not triaged",
    TriageState.ACKNOWLEDGED: "being investigated",
    TriageState.EXPECTED: "accepted trade-off",
    TriageState.FIXED: "fixed",
    TriageState.INVALID: "false alarm",
}
_LONGEST_REASON = 500


def in_order(found: Iterable[TriagedRegression]) -> list[TriagedRegression]:
    """Sort regressions by priority: alerts first, then untriaged ones."""
    return sorted(
        found,
        key=lambda one: (
            not one.regression.is_alert,
            one.triage.state is not TriageState.NEW,
            one.regression.place,
        ),
    )


def row_html(view: View, one: TriagedRegression, now: datetime) -> str:
    """Write what changed, by how much, its series, where, and why, as one row. Text from records is
    escaped.
    """
    regression, best = one.regression, one.regression.change_points[0]
    families = view.filters.families_of(point.series.kernel for point in regression.change_points)
    by = [f"by {shortened(one.triage.person, length=40)}"] if one.triage.person else []
    badges = [*(mark.text for mark in standing_marks(one)), *by]
    levels = "" if headline_text(best) == transition_text(best) else f", {transition_text(best)}"
    commit = regression.commit
    owner = (
        f" · Owner: {', '.join(owners_of(view, regression)) or 'none'}"
        if view.filters.owners
        else ""
    )
    if best.is_gradual:  # the first commit of a drift did not cause it
        where = [
            f"since {date_written(commit.committed_at, view.zone)}",
            f"No single commit: it drifts.{escape(owner)}",
        ]
    elif regression.is_range:
        where = [
            f"{escape(regression.range_text)} {age_text(commit.committed_at, now=now)}",
            f"No commit between them was measured.{escape(owner)}",
        ]
    else:
        where = [
            f"{view.sources.commit_html(commit)} {age_text(commit.committed_at, now=now)}",
            _cut(commit.subject),
            _cut(f"{commit.author}{owner}"),
        ]
    count, outline = len(regression.change_points), regression.outline
    colour = VERMILLION if regression.verdict is Verdict.REGRESSED else BLUE
    series = best.series.label.removeprefix(f"{best.series.kernel}/")
    cells = {
        "what": [
            f"<b>{escape(kernel_text(regression.kernel))}</b>",
            "".join(f"<span class='rw-badge'>{escape(badge)}</span>" for badge in badges),
            _cut(" · ".join([*families, *([f"{count} series"] if count > 1 else []), series])),
        ],
        "size": [
            f"<b>{escape(headline_text(best))}</b>",
            escape(f"{best.series.definition.title}{levels}"),
        ],
        "line": []
        if outline is None
        else [sparkline(outline.values, changed_at=outline.changed_at, colour=colour)],
        "where": where,
        "why": [escape(_suspect_text(regression)), _cut(certainty_text(regression))],
    }
    parts = (
        f"<div class='rw-{name}'>{''.join(f'<div>{line}</div>' for line in lines if line)}</div>"
        for name, lines in cells.items()
    )
    return f"<div class='rw-row'>{''.join(parts)}</div>"


def _cut(text: str) -> str:
    """Write text on one line, which ends where the cell ends; hovering over it shows all."""
    shown = escaped(text)
    return f"<div class='rw-cut' title='{shown}'>{shown}</div>"


def sparkline(values: Sequence[float], *, changed_at: int | None = None, colour: str = BLUE) -> str:
    """Draw the shape of a series as an image, from its change on in a colour; empty without a
    shape.
    """
    if len(values) < 2:
        return ""
    width, height = _SPARK_PX
    low, high = min(values), max(values)
    span = max(high - low, _MIN_RELATIVE_SPAN * abs(high)) or 1
    step = (width - 4) / (len(values) - 1)
    places = [
        f"{2 + at * step:.1f},{height - 3 - (value - low) / span * (height - 6):.1f}"
        for at, value in enumerate(values)
    ]
    after = ""
    if changed_at is not None:
        after = (
            f"<path d='M{2 + (changed_at - 0.5) * step:.1f} 0V{height}' stroke-dasharray='3 2'/>"
            f"<polyline points='{' '.join(places[max(changed_at - 1, 0) :])}' stroke='{colour}' "
            f"stroke-width='2'/>"
        )
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' fill='none' "
        f"stroke='{GREY}'>"
        f"<polyline points='{' '.join(places[:changed_at])}' stroke-width='1.5'/>{after}</svg>"
    )
    return (
        f'<img src="data:image/svg+xml,{quote(svg)}" alt="The shape of the series" width="{width}">'
    )


def owners_of(view: View, regression: Regression) -> list[str]:
    return view.filters.owners_of(point.series.kernel for point in regression.change_points)


def standing_marks(one: TriagedRegression) -> list[Mark]:
    regression = one.regression
    return [
        *([Mark("↗", "drift", "gray")] if regression.change_points[0].is_gradual else []),
        *([Mark("▲", "alert", "orange")] if regression.is_alert else []),
        Mark("✓" if regression.is_confirmed else "?", confirmation_text(regression), "gray"),
        TRIAGE_MARKS[one.triage.state],
    ]


def _suspect_text(regression: Regression) -> str:
    if not regression.suspects:
        return f"Suspect: {regression.cause}"
    likeliest = regression.suspects[0]
    return (
        f"Suspect: {likeliest.cause}, {likeliest.weight:.0%}: "
        f"{shortened(likeliest.sentence, length=120)}"
    )


def kernel_text(kernel: str) -> str:
    return "every kernel" if kernel == ALL_KERNELS else on_one_line(kernel)


def trend_of(change_point: ChangePoint) -> dict[str, str]:
    """Return the choices in Trends that show a change point."""
    series = change_point.series
    asked = {"case": series.case_id, "runner": series.runner_class}
    same = ("kernel", "metric", "implementation", "target", "function", "tensor")
    return {
        name: value
        for name, value in (asked | {name: getattr(series, name) for name in same}).items()
        if value
    }


def show_others(view: View, found: Sequence[TriagedRegression], now: datetime) -> None:

    def standing(verdict: Verdict) -> list[TriagedRegression]:
        own = [one for one in found if one.regression.verdict is verdict]
        return [one for one in own if one.regression.state is RegressionState.OPEN]

    kinds = {
        "Improvements": standing(Verdict.IMPROVED),
        "Inconclusive": standing(Verdict.INCONCLUSIVE),
        "Settled": [
            one for one in found if one.regression.verdict is Verdict.REGRESSED and not one.is_open
        ],
    }
    for title, rows in kinds.items():
        if rows:
            view.link.unfold(
                f"{title}: {len(rows)}",
                partial(_show_table, view, rows, now),
                parameter=title.lower(),
            )


def _show_table(view: View, found: Sequence[TriagedRegression], now: datetime) -> None:
    show_table(
        found,
        Column(
            "open",
            lambda one: view.address_of("regression", regression=one.regression_id),
            link="details",
        ),
        Column("kernel", lambda one: one.regression.kernel),
        Column("what", lambda one: one.regression.summary),
        Column("change", lambda one: one.regression.change_points[0].relative_change, percent),
        Column("commit", lambda one: one.regression.range_text),
        Column(
            "subject",
            lambda one: "" if one.regression.is_range else one.regression.commit.subject,
        ),
        Column("age", lambda one: age_text(one.regression.commit.committed_at, now=now)),
        Column("state", lambda one: one.settled_by),
        Column("reason", lambda one: one.triage.reason or ""),
    )


# --- triage


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
            f"{shortened(decided.person)}, "
            f"{written(decided.changed_at, zone)}\n{on_one_line(decided.reason or '')}"
        )
    person, why_not = find_triager(project)
    if person is None:
        line.caption(why_not)
    else:
        with line.popover("Set status", icon=":material/rule:"):
            _show_form(project, [one])


def show_selected(project: str, chosen: Sequence[TriagedRegression]) -> None:
    with st.popover(
        f"Set status of {len(chosen)} selected", icon=":material/rule:", disabled=not chosen
    ):
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
        st.form_submit_button(
            "Set status", type="primary", on_click=_decide, args=(project, chosen, key)
        )


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
            data.decide(
                project, one.triage.regression_id, state, seen=seen, person=person, reason=reason
            )
        except (NotAllowedError, StaleTriageError) as error:
            failure = f"Not set for {code_span(one.regression.kernel)}: {code_span(str(error))}"
            st.warning(failure, icon=":material/error:")
