"""Below a trend: the selected commit, change points and values."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from roofwatch.dashboard.charts.trend import changes_of, commits_of, series_names
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import show_table
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    change_text,
    code_span,
    outcome_text,
    shortened,
    transition_text,
    written,
)
from roofwatch.db.values import CommitRef, Regression, Series

_MAX_ROWS = 1_000
"""Maximum rows of a table of values."""


def show_picked_commit(
    view: View, sha: str | None, series: Sequence[Series], regressions: Sequence[Regression]
) -> None:
    """Show the selected commit, its values, and links to other views."""
    commits = commits_of(series)
    at = next((place for place, commit in enumerate(commits) if commit.sha == sha), None)
    if at is None:
        return
    commit = commits[at]
    changes = [change for _, change in changes_of(series, regressions) if change.commit.sha == sha]
    with st.container(border=True):
        st.markdown(
            f"{view.sources.commit(commit.sha)} {code_span(shortened(commit.subject) or 'without a subject')} by "
            f"{code_span(shortened(commit.author) or 'none')}, {written(commit.committed_at, view.zone)}"
        )
        for change in changes:
            st.text(f"{VERDICT_MARKS[change.verdict].text} {change_text(change)}: {change.evidence}")
        rows = [
            {
                "run": view.address_of("run", run=point.run_id),
                "measured at": written(point.measured_at, view.zone),
                "series": name,
                "metric": one.key.definition.title,
                "value": outcome_text(point.outcome) if point.value is None else one.key.definition.format(point.value),
            }
            for one, name in zip(series, series_names(series), strict=True)
            for point in one.points
            if point.commit.sha == sha
        ]
        show_table(pd.DataFrame(rows), links={"run": "open"})
        _show_links(view, commit, commits[at - 1] if at else None, was_judged=bool(changes))


def _show_links(view: View, commit: CommitRef, before: CommitRef | None, *, was_judged: bool) -> None:
    links = st.container(horizontal=True)
    if was_judged:
        view.page_link("regression", "Why", icon=":material/search:", place=links, commit=commit.sha)
    if before is not None:
        view.page_link(
            "compare",
            f"Compare with {before.short_sha}",
            icon=":material/compare_arrows:",
            place=links,
            by="commits",
            base=before.sha,
            head=commit.sha,
        )
    view.page_link("kernel", "Roofline at this commit", icon=":material/memory:", place=links, commit=commit.sha)


def show_changes(series: Sequence[Series], regressions: Sequence[Regression]) -> None:
    st.subheader("Change points", anchor=False)
    rows = [
        {
            "verdict": VERDICT_MARKS[change.verdict].text,
            "change": change_text(change),
            "commit": change.commit.short_sha,
            "subject": change.commit.subject,
            "author": change.commit.author,
            "implementation": change.series.implementation,
            "level": transition_text(change),
            "standing": f"{regression.state}, {'confirmed' if regression.is_confirmed else 'not confirmed yet'}",
            "evidence": change.evidence,
        }
        for regression, change in changes_of(series, regressions)
    ]
    show_table(pd.DataFrame(rows), if_empty="None stored for these series.")


def show_values(view: View, series: Sequence[Series]) -> None:
    for one, name in zip(series, series_names(series), strict=True):
        shown = one.points[-_MAX_ROWS:]
        st.markdown(f"{code_span(name)}, {one.key.definition.title}")
        if len(shown) < len(one.points):
            st.caption(f"The last {len(shown):,} of {len(one.points):,} points of the figure.")
        rows = [
            {
                "commit": point.commit.short_sha,
                "subject": point.commit.subject,
                "outcome": outcome_text(point.outcome),
                "value": point.value,
                "first quartile": point.low,
                "third quartile": point.high,
                "message": point.message,
                "run": view.address_of("run", run=point.run_id),
            }
            for point in shown
        ]
        show_table(
            pd.DataFrame(rows),
            formats=dict.fromkeys(["value", "first quartile", "third quartile"], one.key.definition.format),
            links={"run": "open"},
        )
