"""What one commit of a trend is: who made it, what was measured of it, and where to look further."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from roofwatch.dashboard.charts.trend import commits_of, series_names
from roofwatch.dashboard.frame import View
from roofwatch.dashboard.source_links import linked
from roofwatch.dashboard.tables.markup import Column
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.wording import VERDICT_MARKS, change_text, code_span, outcome_text, shortened
from roofwatch.dashboard.zone import written
from roofwatch.db.values import ChangePoint, CommitRef, Regression, Series


def show_pinned_commit(
    view: View, sha: str | None, series: Sequence[Series], regressions: Sequence[Regression]
) -> None:
    """The commit that the reader pinned, if the figure has it."""
    commits = commits_of(series)
    at = next((place for place, commit in enumerate(commits) if commit.sha == sha), None)
    if at is None:
        return
    commit = commits[at]
    moves = _moves_at(commit, series, regressions)
    with st.container(border=True):
        st.markdown(
            f"{linked(code_span(commit.short_sha), view.sources.commit(commit.sha))} "
            f"{code_span(shortened(commit.subject) or 'without a subject')} by "
            f"{code_span(shortened(commit.author) or 'nobody named')}, {written(commit.committed_at, view.zone)}"
        )
        for move in moves:
            st.text(f"{VERDICT_MARKS[move.verdict].text} {change_text(move)}: {move.evidence}")
        _show_runs(view, commit, series)
        _show_links(view, commit, commits[at - 1] if at else None, was_judged=bool(moves))


def _moves_at(commit: CommitRef, series: Sequence[Series], regressions: Sequence[Regression]) -> list[ChangePoint]:
    keys = {one.key for one in series}
    return [
        move
        for regression in regressions
        for move in regression.change_points
        if move.series in keys and move.commit.sha == commit.sha
    ]


def _show_runs(view: View, commit: CommitRef, series: Sequence[Series]) -> None:
    rows = [
        {
            "run": view.link.address_of("run", project=view.project, run=point.run_id),
            "measured at": written(point.measured_at, view.zone),
            "series": name,
            "metric": one.key.definition.title,
            "value": outcome_text(point.outcome) if point.value is None else one.key.definition.format(point.value),
        }
        for one, name in zip(series, series_names(series), strict=True)
        for point in one.points
        if point.commit.sha == commit.sha
    ]
    show_table(pd.DataFrame(rows), columns={"run": Column(link_text="open")})


def _show_links(view: View, commit: CommitRef, before: CommitRef | None, *, was_judged: bool) -> None:
    links = st.container(horizontal=True)
    project = {"project": view.project}
    if was_judged:
        links.page_link(
            "views/regression.py", label="Why", icon=":material/search:", query_params={**project, "commit": commit.sha}
        )
    if before is not None:
        links.page_link(
            "views/compare.py",
            label=f"Compare with {before.short_sha}",
            icon=":material/compare_arrows:",
            query_params={**project, "by": "commits", "base": before.sha, "head": commit.sha},
        )
    links.page_link(
        "views/kernel.py",
        label="Roofline at this commit",
        icon=":material/memory:",
        query_params={**project, "commit": commit.sha},
    )
