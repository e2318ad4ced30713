"""Around the figure of a trend: zoom, the selected commit, change points and values."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

import streamlit as st

from roofwatch.dashboard.charts.trend import commits_of, series_names
from roofwatch.dashboard.charts.trend_marks import changes_of
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    change_text,
    code_span,
    confirmation_text,
    outcome_text,
    percent,
    transition_text,
    written,
)
from roofwatch.model.history import CommitRef, Regression, Series, SeriesPoint
from roofwatch.model.metrics import Metric
from roofwatch.model.stored_results import Trend

EVERY_COMMIT = "all"
_ZOOM = "zoom"
# `on` of a figure is Plotly's public interface; a double click is reported before the range that it
# restores
_REPORT_JS = """
export default ({ setTriggerValue }) => {
  let timer, isReset = false;
  const watch = event => {
    const figure = event.target.closest?.(".js-plotly-plot");
    if (!figure?.on || figure.isWatched) return;
    figure.isWatched = true;
    const report = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        setTriggerValue("range", isReset ? [] : figure.layout.xaxis.range);
        isReset = false;
      }, 300);
    };
    figure.on("plotly_doubleclick", () => { isReset = true; report(); });
    figure.on("plotly_relayout", change => {
      if (Object.keys(change).some(name => name.startsWith("xaxis."))) report();
    });
  };
  document.addEventListener("pointerdown", watch, true);
  return () => document.removeEventListener("pointerdown", watch, true);
};
"""
_report_range = st.components.v2.component("report_range", js=_REPORT_JS)


def watch_zoom(view: View, trend: Trend) -> None:
    """Make the range over which a reader drags on the figure the window; all commits after a double
    click.
    """

    def zoom() -> None:
        shown = st.session_state[_ZOOM]["range"]
        window = (EVERY_COMMIT, "") if shown == [] else shown and window_of(trend, shown)
        if window:
            view.link.choose_next("window", window[0])
            view.link.choose_next("end", window[1])

    _report_range(key=_ZOOM, height=1, on_range_change=zoom)


def window_of(trend: Trend, shown: Sequence[float]) -> tuple[str, str] | None:
    """Return length and last commit of the window of a range; None if it has fewer than two
    commits.
    """
    left, right = max(0, ceil(shown[0])), min(floor(shown[1]), trend.commit_count - 1)
    # of a thinned series, not every commit is known
    last, sha = min((place, sha) for sha, place in trend.places.items() if place >= right)
    return (str(last - left + 1), sha) if left < right else None


@dataclass(frozen=True)
class _Value:
    series: str
    metric: Metric
    point: SeriesPoint

    @property
    def text(self) -> str:
        value = self.point.value
        return outcome_text(self.point.outcome) if value is None else self.metric.format(value)


def show_picked_commit(
    view: View, sha: str | None, series: Sequence[Series], regressions: Sequence[Regression]
) -> None:
    """Show the selected commit, its values, and links to other views."""
    commits = commits_of(series)
    at = next((place for place, commit in enumerate(commits) if commit.sha == sha), None)
    if at is None:
        return
    commit = commits[at]
    changes = [
        one.change for one in changes_of(series, regressions) if one.change.commit.sha == sha
    ]
    with st.container(border=True):
        st.markdown(f"{view.commit_line(commit)}, {written(commit.committed_at, view.zone)}")
        for change in changes:
            st.text(
                f"{VERDICT_MARKS[change.verdict].text} {change_text(change)}: {change.evidence}"
            )
        show_table(
            [
                _Value(name, one.key.definition, point)
                for one, name in zip(series, series_names(series), strict=True)
                for point in one.points
                if point.commit.sha == sha
            ],
            Column("run", lambda one: view.address_of("run", run=one.point.run_id), link="open"),
            Column("measured at", lambda one: written(one.point.measured_at, view.zone)),
            Column("series", lambda one: one.series),
            Column("metric", lambda one: one.metric.title),
            Column("value", lambda one: one.text),
        )
        _show_links(view, commit, commits[at - 1] if at else None, was_judged=bool(changes))


def _show_links(
    view: View, commit: CommitRef, before: CommitRef | None, *, was_judged: bool
) -> None:
    links = st.container(horizontal=True)
    if was_judged:
        view.page_link(
            "regression", "Details", icon=":material/search:", place=links, commit=commit.sha
        )
    if before is not None:
        view.compare_link(
            f"Compare with {before.short_sha}", base=before.sha, head=commit.sha, place=links
        )
    view.page_link(
        "kernel",
        "Roofline at this commit",
        icon=":material/memory:",
        place=links,
        commit=commit.sha,
    )


def show_changes(series: Sequence[Series], regressions: Sequence[Regression]) -> None:
    st.header("Change points", anchor=False)
    show_table(
        changes_of(series, regressions),
        Column(
            "verdict", lambda one: one.change.verdict, lambda verdict: VERDICT_MARKS[verdict].text
        ),
        Column("change", lambda one: one.change.relative_change, percent),
        Column("cause", lambda one: one.regression.cause),
        Column("commit", lambda one: one.change.commit.short_sha),
        Column("subject", lambda one: one.change.commit.subject),
        Column("author", lambda one: one.change.commit.author),
        Column("implementation", lambda one: one.change.series.implementation),
        Column("level", lambda one: transition_text(one.change)),
        Column(
            "status", lambda one: f"{one.regression.state}, {confirmation_text(one.regression)}"
        ),
        Column("evidence", lambda one: one.change.evidence),
        if_empty="None stored for these series.",
    )


def show_values(view: View, series: Sequence[Series]) -> None:
    for one, name in zip(series, series_names(series), strict=True):
        st.markdown(f"{code_span(name)}, {one.key.definition.title}")
        write = one.key.definition.format
        show_table(
            one.points,
            Column("commit", lambda point: point.commit.short_sha),
            Column("subject", lambda point: point.commit.subject),
            Column("outcome", lambda point: point.outcome, outcome_text),
            Column("value", lambda point: point.value, write),
            Column("first quartile", lambda point: point.low, write),
            Column("third quartile", lambda point: point.high, write),
            Column("message", lambda point: point.message),
            Column("run", lambda point: view.address_of("run", run=point.run_id), link="open"),
        )
