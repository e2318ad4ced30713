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
from roofwatch.model.history import Cause, ChangePoint, Regression, RegressionState
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


def in_order(regressions: Iterable[TriagedRegression]) -> list[TriagedRegression]:
    """Sort regressions by priority: alerts first, then untriaged ones."""
    return sorted(regressions, key=_priority)


def _priority(triaged: TriagedRegression) -> tuple[object, ...]:
    is_new = triaged.triage.state is TriageState.NEW
    return not triaged.regression.is_alert, not is_new, triaged.regression.place


def row_html(view: View, triaged: TriagedRegression, now: datetime) -> str:
    """Write what changed, by how much, its series, where, and why, as one row. Text from records is
    escaped.
    """
    regression = triaged.regression
    cells = {
        "what": _what_lines(view, triaged),
        "size": _size_lines(regression.change_points[0]),
        "line": [_outline_html(regression)],
        "where": _where_lines(view, regression, now),
        "why": [escape(_suspect_text(regression)), _cut(certainty_text(regression))],
    }
    parts = [_cell_html(name, lines) for name, lines in cells.items()]
    return f"<div class='rw-row'>{''.join(parts)}</div>"


def _cell_html(name: str, lines: Sequence[str]) -> str:
    body = "".join(f"<div>{line}</div>" for line in lines if line)
    return f"<div class='rw-{name}'>{body}</div>"


def _what_lines(view: View, triaged: TriagedRegression) -> list[str]:
    regression = triaged.regression
    points = regression.change_points
    badges = [mark.text for mark in standing_marks(triaged)]
    if triaged.triage.person:
        badges.append(f"by {shortened(triaged.triage.person, length=40)}")
    parts = view.filters.families_of(point.series.kernel for point in points)
    subject = list(parts)
    if len(points) > 1:
        subject.append(f"{len(points)} series")
    series = points[0].series
    subject.append(series.label.removeprefix(f"{series.kernel}/"))
    return [
        f"<b>{escape(kernel_text(regression.kernel))}</b>",
        "".join(f"<span class='rw-badge'>{escape(badge)}</span>" for badge in badges),
        _cut(" · ".join(subject)),
    ]


def _size_lines(point: ChangePoint) -> list[str]:
    headline = headline_text(point)
    transition = transition_text(point)
    levels = point.series.definition.title
    if headline != transition:
        levels += f", {transition}"
    return [f"<b>{escape(headline)}</b>", escape(levels)]


def _outline_html(regression: Regression) -> str:
    outline = regression.outline
    if outline is None:
        return ""
    colour = VERMILLION if regression.verdict is Verdict.REGRESSED else BLUE
    return sparkline(outline.values, changed_at=outline.changed_at, colour=colour)


def _where_lines(view: View, regression: Regression, now: datetime) -> list[str]:
    commit = regression.commit
    age = age_text(commit.committed_at, now=now)
    owner = ""
    if view.filters.owners:
        owner = f" · Owner: {', '.join(owners_of(view, regression)) or 'none'}"
    if regression.change_points[0].is_gradual:  # the first commit of a drift did not cause it
        return [
            f"since {date_written(commit.committed_at, view.zone)}",
            f"No single commit: it drifts.{escape(owner)}",
        ]
    if regression.is_range:
        return [
            f"{escape(regression.range_text)} {age}",
            f"No commit between them was measured.{escape(owner)}",
        ]
    return [
        f"{view.sources.commit_html(commit)} {age}",
        _cut(commit.subject),
        _cut(f"{commit.author}{owner}"),
    ]


def _cut(text: str) -> str:
    """Write text on one line, which ends where the cell ends; hovering over it shows all."""
    whole = escaped(text)
    return f"<div class='rw-cut' title='{whole}'>{whole}</div>"


def sparkline(values: Sequence[float], *, changed_at: int | None = None, colour: str = BLUE) -> str:
    """Draw the shape of a series as an image, from its change on in a colour; empty without a
    shape.
    """
    if len(values) < 2:
        return ""
    width, height = _SPARK_PX
    low, high = min(values), max(values)
    span = max(high - low, _MIN_RELATIVE_SPAN * abs(high)) or 1
    step_px = (width - 4) / (len(values) - 1)
    points: list[str] = []
    for index, value in enumerate(values):
        x = 2 + index * step_px
        y = height - 3 - (value - low) / span * (height - 6)
        points.append(f"{x:.1f},{y:.1f}")
    changed_part = ""
    if changed_at is not None:
        # halfway to the value before; the coloured line begins at that value
        change_x = 2 + (changed_at - 0.5) * step_px
        changed_points = " ".join(points[max(changed_at - 1, 0) :])
        changed_part = (
            f"<path d='M{change_x:.1f} 0V{height}' stroke-dasharray='3 2'/>"
            f"<polyline points='{changed_points}' stroke='{colour}' stroke-width='2'/>"
        )
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' fill='none' "
        f"stroke='{GREY}'>"
        f"<polyline points='{' '.join(points[:changed_at])}' stroke-width='1.5'/>"
        f"{changed_part}</svg>"
    )
    return (
        f'<img src="data:image/svg+xml,{quote(svg)}" alt="The shape of the series" width="{width}">'
    )


def owners_of(view: View, regression: Regression) -> list[str]:
    return view.filters.owners_of(point.series.kernel for point in regression.change_points)


def standing_marks(triaged: TriagedRegression) -> list[Mark]:
    regression = triaged.regression
    marks: list[Mark] = []
    if regression.change_points[0].is_gradual:
        marks.append(Mark("↗", "drift", "gray"))
    if regression.is_alert:
        marks.append(Mark("▲", "alert", "orange"))
    symbol = "✓" if regression.is_confirmed else "?"
    marks.append(Mark(symbol, confirmation_text(regression), "gray"))
    marks.append(TRIAGE_MARKS[triaged.triage.state])
    return marks


def _suspect_text(regression: Regression) -> str:
    if not regression.suspects:
        return f"Suspect: {regression.cause}"
    named = [suspect for suspect in regression.suspects if suspect.cause is not Cause.UNKNOWN]
    if not named:
        return "Cause unknown"
    likeliest = named[0]
    label = "Suspect" if regression.cause is not Cause.UNKNOWN else "Cause unknown; suspect"
    return (
        f"{label}: {likeliest.cause}, {likeliest.weight:.0%}: "
        f"{shortened(likeliest.sentence, length=120)}"
    )


def kernel_text(kernel: str) -> str:
    if kernel == ALL_KERNELS:
        return "every kernel"
    return on_one_line(kernel)


def trend_of(change_point: ChangePoint) -> dict[str, str]:
    """Return the choices in Trends that show a change point."""
    series = change_point.series
    choices = {"case": series.case_id, "runner": series.runner_class}
    for name in ("kernel", "metric", "implementation", "target", "function", "tensor"):
        choices[name] = getattr(series, name)
    return {name: value for name, value in choices.items() if value}


def show_others(view: View, regressions: Sequence[TriagedRegression], now: datetime) -> None:

    def with_verdict(verdict: Verdict) -> list[TriagedRegression]:
        return [triaged for triaged in regressions if triaged.regression.verdict is verdict]

    def standing(verdict: Verdict) -> list[TriagedRegression]:
        same_verdict = with_verdict(verdict)
        return [
            triaged for triaged in same_verdict if triaged.regression.state is RegressionState.OPEN
        ]

    kinds = {
        "Improvements": standing(Verdict.IMPROVED),
        "Inconclusive": standing(Verdict.INCONCLUSIVE),
        "Settled": [triaged for triaged in with_verdict(Verdict.REGRESSED) if not triaged.is_open],
    }
    for title, rows in kinds.items():
        if rows:
            view.link.unfold(
                f"{title}: {len(rows)}",
                partial(_show_table, view, rows, now),
                parameter=title.lower(),
            )


def _show_table(
    view: View, triaged_regressions: Sequence[TriagedRegression], now: datetime
) -> None:
    show_table(
        triaged_regressions,
        Column(
            "open",
            lambda triaged: view.address_of("regression", regression=triaged.regression_id),
            link="details",
        ),
        Column("kernel", lambda triaged: triaged.regression.kernel),
        Column("what", lambda triaged: triaged.regression.summary),
        Column(
            "change", lambda triaged: triaged.regression.change_points[0].relative_change, percent
        ),
        Column("commit", lambda triaged: triaged.regression.range_text),
        Column(
            "subject",
            lambda triaged: (
                "" if triaged.regression.is_range else triaged.regression.commit.subject
            ),
        ),
        Column("age", lambda triaged: age_text(triaged.regression.commit.committed_at, now=now)),
        Column("state", lambda triaged: triaged.settled_by),
        Column("reason", lambda triaged: triaged.triage.reason or ""),
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


def show_triage(project: str, triaged: TriagedRegression, zone: tzinfo) -> None:
    """Show the triage state, and a form for those who may change it, else the reason why not."""
    decided = triaged.triage
    mark = TRIAGE_MARKS[decided.state]
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
            _show_form(project, [triaged])


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
    ids = [f"{triaged.regression_id}:{triaged.triage.state}" for triaged in chosen]
    key = ",".join(ids)
    state = chosen[0].triage.state
    states = list(TriageState)
    # the usual first decision
    preselected = TriageState.ACKNOWLEDGED if state is TriageState.NEW else state
    with st.form(f"triage:{key}", border=False):
        st.radio(
            "Status",
            states,
            index=states.index(preselected),
            key=f"state:{key}",
            format_func=lambda state: TRIAGE_MARKS[state].text,
            captions=[_MEANING[state] for state in states],
        )
        st.text_input("Reason", key=f"reason:{key}", max_chars=_LONGEST_REASON)
        st.form_submit_button(
            "Set status",
            type="primary",
            on_click=_decide,
            args=(project, chosen, key),
        )


def _decide(project: str, chosen: Sequence[TriagedRegression], key: str) -> None:
    """Callback of the form; a regression that somebody else changed meanwhile keeps its state."""
    state = st.session_state[f"state:{key}"]
    reason = str(st.session_state[f"reason:{key}"]).strip()
    person = person_here()
    if person is None:
        st.warning("You are signed out; sign in again.", icon=":material/error:")
        return
    if not reason:
        st.warning("A reason is required; it is stored with the decision.", icon=":material/error:")
        return
    for triaged in chosen:
        try:
            data.decide(
                project,
                triaged.triage.regression_id,
                state,
                seen=triaged.triage.state,
                person=person,
                reason=reason,
            )
        # the others of the selection are decided all the same
        except (NotAllowedError, StaleTriageError) as error:
            failure = f"Not set for {code_span(triaged.regression.kernel)}: {code_span(str(error))}"
            st.warning(failure, icon=":material/error:")
