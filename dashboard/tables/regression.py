"""Regressions in a list: a row for each that waits for somebody, and tables of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pandas as pd
import streamlit as st

from ci.group import ALL_KERNELS
from dashboard.frame import View
from dashboard.tables.table import show_table
from dashboard.triaged import Triaged
from dashboard.wording import (
    TRIAGE_MARKS,
    VERDICT_MARKS,
    age_text,
    change_text,
    code_span,
    shortened,
    transition_text,
    worst_change_point,
)
from db.values import ChangePoint, Regression

_SUMMARY_LENGTH = 160
"""Of a row: the whole of it stands in the Regression view."""


def show_row(view: View, one: Triaged, now: datetime) -> None:
    regression, worst = one.regression, worst_change_point(one.regression)
    address = {"project": view.project, "regression": str(one.triage.regression_id)}
    with st.container(border=True):
        columns = st.columns([5, 2, 3, 1.3], vertical_alignment="center")
        what, how_much, where, links = (column.container(gap=None) for column in columns)
        what.markdown(f"**{kernel_markdown(regression.kernel)}** {marks_of(one)}")
        what.text(shortened(regression.summary, length=_SUMMARY_LENGTH))
        what.text(_suspect_text(regression))
        how_much.subheader(change_text(worst), anchor=False)
        how_much.caption(_worst_caption(worst))
        age = age_text(regression.commit.committed_at, now=now)
        where.markdown(f"{code_span(regression.commit.short_sha)} {age}")
        where.text(f"{shortened(regression.commit.subject)}\n{shortened(regression.commit.author)}")
        links.page_link("views/regression.py", label="Why", icon=":material/search:", query_params=address)
        links.page_link(
            "views/trends.py", label="Trend", icon=":material/show_chart:", query_params=trend_of(view.project, worst)
        )


def marks_of(one: Triaged) -> str:
    regression = one.regression
    verdict, state = VERDICT_MARKS[regression.verdict], TRIAGE_MARKS[one.triage.state]
    owner = f", by {shortened(one.triage.person, length=40)}" if one.triage.person else ""
    marks = [f":{verdict.badge_colour}-badge[{verdict.text}]"]
    if regression.is_alert:
        marks.append(":orange-badge[▲ alert]")
    marks.append(f":gray-badge[{'confirmed' if regression.is_confirmed else 'not confirmed yet'}]")
    marks.append(f":{state.badge_colour}-badge[{state.text}]")
    # a name is somebody else's text, which a badge would interpret
    return " ".join(marks) + (f" {code_span(owner.removeprefix(', '))}" if owner else "")


def _suspect_text(regression: Regression) -> str:
    if not regression.suspects:
        return f"Suspect: {regression.cause}"
    likeliest = regression.suspects[0]
    return f"Suspect: {likeliest.cause}, {likeliest.weight:.0%}: {shortened(likeliest.sentence, length=120)}"


def kernel_markdown(kernel: str) -> str:
    return "every kernel" if kernel == ALL_KERNELS else code_span(kernel)


def _worst_caption(worst: ChangePoint) -> str:
    """Which metric the number beside it is of, and its levels where that number is a ratio."""
    levels = "" if worst.relative_change is None else f", {transition_text(worst)}"
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
    improved = [one for one in found if one.is_improvement]
    settled = [one for one in found if one.is_settled]
    for title, rows in ((f"Improvements: {len(improved)}", improved), (f"Settled: {len(settled)}", settled)):
        if not rows:
            continue
        with st.expander(title):
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
                columns={"open": st.column_config.LinkColumn("open", display_text="why", width=50)},
            )


def _address(view: View, one: Triaged) -> str:
    return view.link.address_of("regression", project=view.project, regression=str(one.triage.regression_id))
