"""Regressions in a list: a row for each that waits for somebody, and tables of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

import pandas as pd
import streamlit as st

from roofwatch.ci.history.finding import ALL_KERNELS
from roofwatch.dashboard.frame import View
from roofwatch.dashboard.tables.markup import Column, badge_html, link_html
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.triaged import Triaged
from roofwatch.dashboard.wording import (
    TRIAGE_MARKS,
    VERDICT_MARKS,
    age_text,
    change_text,
    code_span,
    headline_text,
    shortened,
    transition_text,
    worst_change_point,
)
from roofwatch.db.values import ChangePoint, Regression, Suspect

_SUMMARY_LENGTH = 110
"""Of a row: the whole of it stands in the Regression view."""


def show_row(view: View, one: Triaged, now: datetime) -> None:
    """What it says is one piece of HTML: a widget for each part of each row would keep a browser busy for seconds."""
    address = {"project": view.project, "regression": str(one.triage.regression_id)}
    with st.container(border=True, horizontal=True, vertical_alignment="center", key=f"row {one.triage.regression_id}"):
        st.html(_row_html(view, one, now))
        st.page_link("views/regression.py", label="Why", query_params=address)
        trend = trend_of(view.project, worst_change_point(one.regression))
        st.page_link("views/trends.py", label="Trend", query_params=trend)


def _row_html(view: View, one: Triaged, now: datetime) -> str:
    regression, worst, commit = one.regression, worst_change_point(one.regression), one.regression.commit
    kernel = "every kernel" if regression.kernel == ALL_KERNELS else f"<code>{escape(regression.kernel)}</code>"
    families = view.filters.families_of(point.series.kernel for point in regression.change_points)
    family = f" {escape(', '.join(families))}" if families else ""
    what = [
        f"<strong>{kernel}</strong>{family} {_marks_html(one)}",
        escape(shortened(_without_kernel(regression), length=_SUMMARY_LENGTH)),
        escape(_suspect_text(regression)),
    ]
    how_much = [f'<span class="rw-change">{escape(headline_text(worst))}</span>', escape(worst_caption(worst))]
    age = age_text(commit.committed_at, now=now)
    where = [
        f"<code>{link_html(view.sources.commit(commit.sha), commit.short_sha)}</code> {age}",
        escape(shortened(commit.subject, length=70)),
        escape(shortened(commit.author)),
    ]
    parts = [what, how_much, where]
    if view.filters.owners:
        parts.append(["Owner", *map(escape, owners_of(view, regression) or ["nobody named"])])
    owned = " rw-owned" if view.filters.owners else ""
    return f'<div class="rw-row{owned}">' + "".join(f"<div>{'<br>'.join(part)}</div>" for part in parts) + "</div>"


def _marks_html(one: Triaged) -> str:
    """As `standing_marks`."""
    regression, state = one.regression, TRIAGE_MARKS[one.triage.state]
    marks = [badge_html("▲ alert", colour="orange")] if regression.is_alert else []
    marks.append(badge_html("confirmed" if regression.is_confirmed else "not confirmed yet"))
    marks.append(badge_html(state.text, colour=state.badge_colour))
    if one.triage.person:
        marks.append(f"by <code>{escape(shortened(one.triage.person, length=40))}</code>")
    return " ".join(marks)


def owners_of(view: View, regression: Regression) -> list[str]:
    """Of all kernels that moved."""
    return view.filters.owners_of(point.series.kernel for point in regression.change_points)


def standing_marks(one: Triaged) -> list[str]:
    """Whether it calls somebody, how sure it is, and what people decided; as Markdown."""
    regression, state = one.regression, TRIAGE_MARKS[one.triage.state]
    marks = [":orange-badge[▲ alert]"] if regression.is_alert else []
    marks.append(f":gray-badge[{'confirmed' if regression.is_confirmed else 'not confirmed yet'}]")
    marks.append(f":{state.badge_colour}-badge[{state.text}]")
    if one.triage.person:
        # a name is somebody else's text, which a badge would interpret
        marks.append(f"by {code_span(shortened(one.triage.person, length=40))}")
    return marks


def marks_of(one: Triaged) -> str:
    """Those of its standing, after its verdict."""
    verdict = VERDICT_MARKS[one.regression.verdict]
    return " ".join([f":{verdict.badge_colour}-badge[{verdict.text}]", *standing_marks(one)])


def _without_kernel(regression: Regression) -> str:
    """The summary, of which the kernel stands above it."""
    return regression.summary.removeprefix(f"{regression.kernel}: ")


def _suspect_text(regression: Regression) -> str:
    if not regression.suspects:
        return f"Suspect: {regression.cause}"
    likeliest = regression.suspects[0]
    return f"Suspect: {likeliest.cause}, {likeliest.weight:.0%}: {shortened(likeliest.sentence, length=110)}"


def suspects_html(suspects: Sequence[Suspect]) -> str:
    """A line for each, with its weight as a number and as a bar."""
    rows = "".join(
        f"<div><strong>{escape(one.cause)}</strong> {one.weight:.0%}</div>"
        f'<div class="rw-bar" aria-hidden="true"><div style="width:{one.weight:.0%}"></div></div>'
        f"<div>{escape(one.sentence)}</div>"
        for one in suspects
    )
    return f'<div class="rw-suspects">{rows}</div>'


def kernel_markdown(kernel: str) -> str:
    return "every kernel" if kernel == ALL_KERNELS else code_span(kernel)


def worst_caption(worst: ChangePoint) -> str:
    """Which metric the number beside it is of, and its levels where that number does not say them."""
    levels = "" if headline_text(worst) == transition_text(worst) else f", {transition_text(worst)}"
    return f"{worst.series.definition.title}{levels}"


def trend_of(project: str, change_point: ChangePoint) -> dict[str, str]:
    """The address of the trend on which a change point lies."""
    series = change_point.series
    asked = {
        "project": project,
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


def show_others(view: View, found: Sequence[Triaged], now: datetime) -> None:
    kinds = (
        ("improvements", "Improvements", [one for one in found if one.is_improvement]),
        ("inconclusive", "Inconclusive", [one for one in found if one.is_inconclusive]),
        ("settled", "Settled", [one for one in found if one.is_settled]),
    )
    for parameter, title, rows in kinds:
        if not rows:
            continue
        table = view.link.unfold(f"{title}: {len(rows)}", parameter=parameter)
        if table is None:
            continue
        with table:
            show_table(
                pd.DataFrame(
                    {
                        "open": [_address(view, one) for one in rows],
                        "kernel": [one.regression.kernel for one in rows],
                        "what": [one.regression.summary for one in rows],
                        "change": [change_text(worst_change_point(one.regression)) for one in rows],
                        "commit": [one.regression.commit.short_sha for one in rows],
                        "subject": [one.regression.commit.subject for one in rows],
                        "age": [age_text(one.regression.commit.committed_at, now=now) for one in rows],
                        "state": [one.settled_by for one in rows],
                        "reason": [one.triage.reason or "" for one in rows],
                    }
                ),
                columns={"open": Column(link_text="why")},
            )


def _address(view: View, one: Triaged) -> str:
    return view.link.address_of("regression", project=view.project, regression=str(one.triage.regression_id))
