"""What needs attention now: open regressions, then improvements, then the latest runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pandas as pd
import streamlit as st

from ci.group import ALL_KERNELS, kernel_of
from collector.part import Outcome
from dashboard import data
from dashboard.frame import View, open_view, say_how_to_begin
from dashboard.table import show_table
from dashboard.wording import (
    VERDICT_MARKS,
    age_text,
    change_text,
    code_span,
    outcome_text,
    shortened,
    transition_text,
    worst_change_point,
)
from db.values import ChangePoint, Regression, RegressionState, RunSummary, Verdict

_ROWS_AT_FIRST = 20
_NO_FAILURE = {Outcome.OK, Outcome.UNSUPPORTED}


def show() -> None:
    now = datetime.now(UTC)
    with open_view("overview", "Overview", "What became slower, at which commit, and by how much.") as view:
        runs = data.list_runs(view.project)
        if not runs:
            say_how_to_begin("This project has no runs yet. Measure a benchmark file, then store its record:")
        found = data.list_regressions(view.project)
        open_ones = [one for one in found if one.state is RegressionState.OPEN]
        regressed = _newest_first(one for one in open_ones if one.verdict is Verdict.REGRESSED)
        improved = _newest_first(one for one in open_ones if one.verdict is Verdict.IMPROVED)
        _show_counts(regressed, improved, runs[0])
        row_limit = _ROWS_AT_FIRST
        if max(len(regressed), len(improved)) > row_limit and view.link.switch(
            f"Show more than the newest {row_limit} of each", parameter="all"
        ):
            row_limit = max(len(regressed), len(improved))

        st.subheader("Open regressions", anchor=False)
        if not regressed:
            st.success("None: nothing that was judged became slower or wrong.", icon=":material/check:")
        _show_rows(view, regressed[:row_limit], now)
        if improved:
            st.subheader("Improvements", anchor=False)
            _show_rows(view, improved[:row_limit], now)
        _show_dismissed([one for one in found if one.state is RegressionState.DISMISSED])
        _show_runs(runs, now)


def _newest_first(regressions: Iterable[Regression]) -> list[Regression]:
    return sorted(regressions, key=lambda one: one.commit, reverse=True)


def _show_counts(regressed: Sequence[Regression], improved: Sequence[Regression], latest: RunSummary) -> None:
    columns = st.columns(4)
    columns[0].metric("Open regressions", len(regressed), border=True)
    columns[1].metric("of these confirmed", sum(one.is_confirmed for one in regressed), border=True)
    columns[2].metric("Improvements", len(improved), border=True)
    failed = sum(latest.outcome_counts.get(outcome, 0) for outcome in Outcome if outcome not in _NO_FAILURE)
    columns[3].metric(
        "Failed in the latest run",
        f"{failed} of {sum(latest.outcome_counts.values())}",
        border=True,
        help="Measurements of the run listed first below.",
    )


def _show_rows(view: View, regressions: Sequence[Regression], now: datetime) -> None:
    for regression in regressions:
        worst = worst_change_point(regression)
        mark = VERDICT_MARKS[regression.verdict]
        with st.container(border=True):
            columns = st.columns([5, 2, 3, 1], vertical_alignment="center")
            what, how_much, where = (column.container(gap=None) for column in columns[:3])
            standing = "confirmed" if regression.is_confirmed else "not confirmed yet"
            what.markdown(
                f"**{_kernel_markdown(regression.kernel)}** :{mark.badge_colour}-badge[{mark.text}] "
                f":gray-badge[{standing}] :gray-badge[cause: {regression.cause}]"
            )
            what.text(regression.summary)
            how_much.subheader(change_text(worst), anchor=False)
            how_much.caption(_worst_caption(worst))
            age = age_text(regression.commit.committed_at, now=now)
            where.markdown(f"{code_span(regression.commit.short_sha)} {age}")
            where.text(f"{shortened(regression.commit.subject)}\n{shortened(regression.commit.author)}")
            columns[3].page_link(
                "views/trends.py",
                label="Trend",
                icon=":material/show_chart:",
                query_params=_trend_of(view.project, worst),
            )


def _kernel_markdown(kernel: str) -> str:
    return "every kernel" if kernel == ALL_KERNELS else code_span(kernel)


def _worst_caption(worst: ChangePoint) -> str:
    """Which metric the number beside it is of, and its levels where that number is a ratio."""
    levels = "" if worst.relative_change is None else f", {transition_text(worst)}"
    return f"{worst.series.definition.title}{levels}"


def _trend_of(project: str, change_point: ChangePoint) -> dict[str, str]:
    series = change_point.series
    asked = {
        "project": project,
        "kernel": kernel_of(series),
        "metric": series.metric,
        "case": series.case_id,
        "implementation": series.implementation,
        "runner": series.runner_class,
        "target": series.target,
        "function": series.function,
        "tensor": series.tensor,
    }
    return {name: value for name, value in asked.items() if value}


def _show_dismissed(dismissed: Sequence[Regression]) -> None:
    if not dismissed:
        return
    with st.expander(f"Dismissed: {len(dismissed)} measured again, base against head, and not there"):
        show_table(
            pd.DataFrame(
                {
                    "kernel": [one.kernel for one in dismissed],
                    "what": [one.summary for one in dismissed],
                    "commit": [one.commit.short_sha for one in dismissed],
                    "subject": [one.commit.subject for one in dismissed],
                }
            )
        )


def _show_runs(runs: Sequence[RunSummary], now: datetime) -> None:
    st.subheader("Latest runs", anchor=False)
    show_table(
        pd.DataFrame(
            {
                "commit": [run.commit.short_sha + (" (dirty)" if run.is_dirty else "") for run in runs],
                "subject": [run.commit.subject for run in runs],
                "author": [run.commit.author for run in runs],
                "measured": [age_text(run.started_at, now=now) for run in runs],
                "outcomes": [_outcomes_text(run) for run in runs],
                "runner class": [run.runner_class for run in runs],
                "took (s)": [(run.finished_at - run.started_at).total_seconds() for run in runs],
                "harness": [run.harness_version for run in runs],
            }
        ),
        formats={"took (s)": "{:.0f}".format},
    )


def _outcomes_text(run: RunSummary) -> str:
    counts = [(outcome, run.outcome_counts.get(outcome, 0)) for outcome in Outcome]
    return ", ".join(f"{count} {outcome_text(outcome)}" for outcome, count in counts if count)


if __name__ == "__main__":
    show()
