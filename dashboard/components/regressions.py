"""Lists of regressions: rows of open ones, and tables of others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial

import streamlit as st

from roofwatch.ci.history.finding import ALL_KERNELS
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
)
from roofwatch.db.auth.values import TriagedRegression, TriageState
from roofwatch.db.values import ChangePoint, Regression, RegressionState, Verdict

_SUMMARY_LENGTH = 110
"""Length of a summary in a row."""


class Order(StrEnum):
    """Order of a list of regressions."""

    URGENCY = "urgency"
    CHANGE = "largest change"
    COMMIT = "newest commit"
    KERNEL = "kernel"


def in_order(found: Iterable[TriagedRegression], order: Order) -> list[TriagedRegression]:
    """Sort regressions; ties keep the order of urgency."""
    urgent = most_urgent_first(found)
    if order is Order.CHANGE:
        return sorted(urgent, key=_size, reverse=True)
    if order is Order.COMMIT:
        return sorted(urgent, key=lambda one: one.regression.commit, reverse=True)
    if order is Order.KERNEL:
        return sorted(urgent, key=lambda one: natural_order(one.regression.kernel))
    return urgent


def _size(one: TriagedRegression) -> float:
    """Return the size of the worst change: symmetric for slower and faster, infinite for failures."""
    change = worst_change_point(one.regression).relative_change
    return math.inf if change is None or change <= -1 else abs(math.log1p(change))


def most_urgent_first(found: Iterable[TriagedRegression]) -> list[TriagedRegression]:
    """Sort by alert, then new ones, then newest commit."""
    newest_first = sorted(found, key=lambda one: one.regression.commit, reverse=True)
    return sorted(newest_first, key=lambda one: (not one.regression.is_alert, one.triage.state is not TriageState.NEW))


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
    marks.append(f":{state.badge_colour}-badge[{state.text}]")
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
