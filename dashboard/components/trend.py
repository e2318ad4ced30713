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
        visible_range = st.session_state[_ZOOM]["range"]
        window: tuple[str, str] | None = None
        if visible_range == []:  # a double click
            window = (EVERY_COMMIT, "")
        elif visible_range:
            window = window_of(trend, visible_range)
        if window is not None:
            length, end = window
            view.link.choose_next("window", length)
            view.link.choose_next("end", end)

    _report_range(
        key=_ZOOM,
        height=1,
        on_range_change=zoom,
    )


def window_of(trend: Trend, visible_range: Sequence[float]) -> tuple[str, str] | None:
    """Return length and last commit of the window of a range; None if it has fewer than two
    commits.
    """
    start = max(0, ceil(visible_range[0]))
    end = min(floor(visible_range[1]), trend.commit_count - 1)
    if start >= end:
        return None
    # of a thinned series, not every commit is known
    following = [(index, sha) for sha, index in trend.places.items() if index >= end]
    last, sha = min(following)
    return str(last - start + 1), sha


@dataclass(frozen=True)
class _Value:
    series: str
    metric: Metric
    point: SeriesPoint

    @property
    def text(self) -> str:
        value = self.point.value
        if value is None:
            return outcome_text(self.point.outcome)
        return self.metric.format(value)


def show_picked_commit(
    view: View,
    sha: str | None,
    series: Sequence[Series],
    regressions: Sequence[Regression],
) -> None:
    """Show the selected commit, its values, and links to other views."""
    commits = commits_of(series)
    indices = [index for index, commit in enumerate(commits) if commit.sha == sha]
    if not indices:
        return
    index = indices[0]
    commit = commits[index]
    # the first commit has none to compare with
    previous = commits[index - 1] if index else None
    all_changes = [stored.change for stored in changes_of(series, regressions)]
    changes = [change for change in all_changes if change.commit.sha == sha]
    with st.container(border=True):
        st.markdown(f"{view.commit_line(commit)}, {written(commit.committed_at, view.zone)}")
        for change in changes:
            st.text(
                f"{VERDICT_MARKS[change.verdict].text} {change_text(change)}: {change.evidence}"
            )
        show_table(
            _values_at(commit, series),
            Column(
                "run", lambda value: view.address_of("run", run=value.point.run_id), link="open"
            ),
            Column("measured at", lambda value: written(value.point.measured_at, view.zone)),
            Column("series", lambda value: value.series),
            Column("metric", lambda value: value.metric.title),
            Column("value", lambda value: value.text),
        )
        _show_links(view, commit, previous, was_judged=bool(changes))


def _values_at(commit: CommitRef, series: Sequence[Series]) -> list[_Value]:
    values: list[_Value] = []
    for line, name in zip(series, series_names(series), strict=True):
        points = [point for point in line.points if point.commit.sha == commit.sha]
        values += [_Value(name, line.key.definition, point) for point in points]
    return values


def _show_links(
    view: View,
    commit: CommitRef,
    previous: CommitRef | None,
    *,
    was_judged: bool,
) -> None:
    links = st.container(horizontal=True)
    if was_judged:
        view.page_link(
            "ledger",
            "Details",
            icon=":material/search:",
            place=links,
            commit=commit.sha,
        )
    if previous is not None:
        view.compare_link(
            f"Compare with {previous.short_sha}",
            base=previous.sha,
            head=commit.sha,
            place=links,
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
            "verdict",
            lambda stored: stored.change.verdict,
            lambda verdict: VERDICT_MARKS[verdict].text,
        ),
        Column("change", lambda stored: stored.change.relative_change, percent),
        Column("cause", lambda stored: stored.regression.cause),
        Column("commit", lambda stored: stored.change.commit.short_sha),
        Column("subject", lambda stored: stored.change.commit.subject),
        Column("author", lambda stored: stored.change.commit.author),
        Column("implementation", lambda stored: stored.change.series.implementation),
        Column("level", lambda stored: transition_text(stored.change)),
        Column(
            "status",
            lambda stored: f"{stored.regression.state}, {confirmation_text(stored.regression)}",
        ),
        Column("evidence", lambda stored: stored.change.evidence),
        if_empty="None stored for these series.",
    )


def show_values(view: View, series: Sequence[Series]) -> None:
    for line, name in zip(series, series_names(series), strict=True):
        st.markdown(f"{code_span(name)}, {line.key.definition.title}")
        write = line.key.definition.format
        show_table(
            line.points,
            Column("commit", lambda point: point.commit.short_sha),
            Column("subject", lambda point: point.commit.subject),
            Column("outcome", lambda point: point.outcome, outcome_text),
            Column("value", lambda point: point.value, write),
            Column("first quartile", lambda point: point.low, write),
            Column("third quartile", lambda point: point.high, write),
            Column("message", lambda point: point.message),
            Column("run", lambda point: view.address_of("run", run=point.run_id), link="open"),
        )
