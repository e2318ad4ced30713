"""Series over commits, with the change points that were judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.plotly_chart import PlotlyState

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import METRICS
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.trend import Scale, series_names, trend_figure
from roofwatch.dashboard.figure import show_selectable_figure
from roofwatch.dashboard.filters import Filters
from roofwatch.dashboard.frame import MAIN_FIGURE, View, open_view, say_how_to_begin
from roofwatch.dashboard.panels.pinned_commit import show_pinned_commit
from roofwatch.dashboard.setting_changes import setting_changes
from roofwatch.dashboard.tables.markup import Column
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    change_text,
    code_span,
    natural_order,
    outcome_text,
    transition_text,
    worst_change_point,
)
from roofwatch.dashboard.zone import date_written
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.db.queries.trend_values import Trend, WindowEnd
from roofwatch.db.values import Regression, RegressionState, Series, SeriesKey, Verdict

# What tells the series of one kernel, metric and case apart, besides the implementation: those are shown together.
_NARROWED_BY: tuple[tuple[str, str, Callable[[SeriesKey], str]], ...] = (
    ("Runner class", "runner", lambda key: key.runner_class),
    ("Target", "target", lambda key: key.target),
    ("Function", "function", lambda key: key.function),
    ("Tensor", "tensor", lambda key: key.tensor),
)
_WINDOWS = ("100", "500", "2000", "all")
_EVERY_COMMIT = "all"
_OTHER_WAYS_TO_ZOOM = ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"]
"""Which no address would know of."""
_MOST_ROWS = 1_000
"""Of a table of values."""


def show() -> None:
    with open_view("trends", "Trends", "How a kernel moved over commits, and which commit moved it.") as view:
        *first, scaled, dirty = st.columns([1.3, 2.6, 1.3, 1.1, 1.4], vertical_alignment="bottom")
        second = st.container(horizontal=True, vertical_alignment="bottom")
        include_dirty = view.link.switch("Uncommitted changes too", parameter="dirty", place=dirty)
        every_key = _list_keys(view.project, view.filters, include_dirty=include_dirty)
        if not every_key:
            say_how_to_begin(
                "This project has no series yet: no committed state was measured. Commit and measure, then store the "
                "record:"
            )
        admitted = [key for key in every_key if view.filters.admits_series(key)]
        if not admitted:
            st.info("Nothing that was measured is within the filters: widen them.", icon=":material/filter_alt:")
            return
        regressions = data.list_regressions(view.project)
        keys = _narrow(view, admitted, _first_to_look_at(regressions, admitted), first, second)
        trend = data.read_trend(_question(view, keys, regressions, second, include_dirty=include_dirty))
        if not trend.series:
            st.info(
                "Nothing of these series was measured on the chosen branch: choose others, or widen the filters.",
                icon=":material/filter_alt:",
            )
            return
        series = _choose_implementations(view, trend.series, second)
        if not series:
            st.info("Choose at least one implementation.", icon=":material/filter_alt:")
            return
        scale = Scale(view.link.choose("Scale", [*Scale], parameter="scale", place=scaled))
        if scale is Scale.LOGARITHMIC and any(point.value == 0 for one in series for point in one.points):
            st.info("The scale stays linear: a logarithmic one has no place for zero.", icon=":material/linear_scale:")
            scale = Scale.ABSOLUTE
        figure = trend_figure(
            *(series, regressions, view.zone),
            scale=scale,
            setting_changes=setting_changes(series),
            places=trend.places,
        )
        # a figure of other commits is another one: what was marked on the last is gone
        key = f"{MAIN_FIGURE} {view.link.asked_or_chosen('window')} {view.link.asked_or_chosen('end')}"
        drawn = show_selectable_figure(
            figure,
            key=key,
            on_select=partial(_zoom, view, key, trend),
            config={"modeBarButtonsToRemove": _OTHER_WAYS_TO_ZOOM},
        )
        pin = view.link.pin(parameter="commit", picked=_picked_commit(drawn, trend))
        _explain(trend)
        show_pinned_commit(view, pin, series, regressions)
        _show_changes({one.key for one in series}, regressions)
        _show_points(view, series)


def _list_keys(project: str, filters: Filters, *, include_dirty: bool) -> Sequence[SeriesKey]:
    return data.list_series_keys(project, include_dirty=include_dirty, include_branches=bool(filters.branches))


def _explain(trend: Trend) -> None:
    thinned = (
        f" Of {trend.run_count:,} runs the figure draws each stretch's first, last, lowest and highest value and its "
        "failures: a shorter window shows every run."
        if trend.is_thinned
        else ""
    )
    st.caption(
        "Whiskers reach from the first to the third quartile of the samples. A run that failed has no value and "
        "stands in a strip of its own. Vertical lines are stored change points; shaded bands begin where versions, the "
        "driver, the machine, the timer or the cache state changed; this page judges nothing. A click on a point tells "
        "of its commit. *Box Select* on the figure shows the stretch that a box is drawn over, until *Commits* says "
        f"all again.{thinned}"
    )


def _first_to_look_at(regressions: Sequence[Regression], keys: Collection[SeriesKey]) -> SeriesKey | None:
    """What to show a reader who asks for nothing: the newest regression that stands."""
    offered = set(keys)
    for regression in regressions:
        if regression.verdict is Verdict.REGRESSED and regression.state is RegressionState.OPEN:
            worst = worst_change_point(regression).series
            if worst in offered:
                return worst
    return None


def _picked_commit(drawn: PlotlyState, trend: Trend) -> str | None:
    """The commit of the point that the reader clicked on; None where there is none."""
    points = [] if drawn["selection"]["box"] else drawn["selection"]["points"]
    return next((sha for sha, place in trend.places.items() if points and place == int(points[0]["x"])), None)


def _zoom(view: View, key: str, trend: Trend) -> None:
    """Make the stretch that the reader drew a box over the window, which is in the address."""
    stretch = commits_within(trend, st.session_state[key]["selection"]["box"])
    if stretch is not None:
        first, last = stretch
        view.link.choose_next("window", str(trend.places[last] - trend.places[first] + 1))
        view.link.choose_next("end", last)


def commits_within(trend: Trend, boxes: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """The first and the last commit under a box that was drawn; None where there is no box, or no two commits are."""
    if not boxes:
        return None
    left, *_, right = sorted(boxes[-1]["x"])
    within = sorted((place, sha) for sha, place in trend.places.items() if left <= place <= right)
    return (within[0][1], within[-1][1]) if within and within[0][0] < within[-1][0] else None


def _narrow(
    view: View,
    keys: Sequence[SeriesKey],
    start: SeriesKey | None,
    first: Sequence[DeltaGenerator],
    second: DeltaGenerator,
) -> list[SeriesKey]:
    """The series of one kernel or several, of one case or several, of one metric or several, on one runner class or
    several; those of `start` at first.
    """
    at_kernel, at_case, at_metric = first
    kernels = sorted({key.kernel for key in keys})
    kernel = view.link.choose(
        "Kernel",
        kernels,
        parameter="kernel",
        default=None if start is None else start.kernel,
        place=at_kernel,
    )
    left = [key for key in keys if key.kernel == kernel]
    begun = start if start in left else None
    metrics = [known for known in METRICS if known in {key.metric for key in left}]
    title = _title_of_metric
    chosen_metric = view.link.choose(
        "Metric",
        metrics,
        parameter="metric",
        title=title,
        default=None if begun is None else begun.metric,
        place=at_metric,
    )
    cases = sorted({key.case_id for key in left if key.metric == chosen_metric}, key=natural_order)
    case = view.link.choose(
        "Case", cases, parameter="case", default=None if begun is None else begun.case_id, place=at_case
    )
    others = [known for known in metrics if known != chosen_metric]
    further = beside = further_kernels = list[str]()
    # a choice without an option is not offered, unless an address asks for one: that it is not there is said then
    if others or view.link.asked_or_chosen("further"):
        further = view.link.narrow(
            "Further metrics", others, parameter="further", title=title, placeholder="none", place=second
        )
    other_kernels = [known for known in kernels if known != kernel]
    if other_kernels or view.link.asked_or_chosen("kernels"):
        further_kernels = view.link.narrow(
            "Further kernels", other_kernels, parameter="kernels", placeholder="none", place=second
        )
    cases_of = {kernel: cases, **{one: _cases_of(keys, one, chosen_metric) for one in further_kernels}}
    other_cases = [known for own in cases_of.values() for known in own if known != case]
    if other_cases or view.link.asked_or_chosen("beside"):
        beside = view.link.narrow("Beside it", other_cases, parameter="beside", placeholder="no other", place=second)
    # a kernel of which no case is named shows its first
    first_cases = [own[0] for own in cases_of.values() if own and not {case, *beside} & set(own)]
    shown_cases = {case, *beside, *first_cases}
    left = [key for key in keys if key.metric in {chosen_metric, *further} and key.case_id in shown_cases]
    for label, parameter, part_of in _NARROWED_BY:
        # machine code belongs to no runner, a time to no target: what has no such part stays
        parts = sorted({part_of(key) for key in left} - {""}, key=natural_order)
        if parts:
            chosen = view.link.choose_some(
                label, parts, parameter=parameter, default=None if begun is None else part_of(begun), place=second
            )
            left = [key for key in left if part_of(key) in {"", *chosen}]
    order = {name: at for at, name in enumerate([chosen_metric, *further])}
    return sorted(left, key=lambda key: order[key.metric])


def _cases_of(keys: Sequence[SeriesKey], kernel: str, metric: str) -> list[str]:
    return sorted({key.case_id for key in keys if key.kernel == kernel and key.metric == metric}, key=natural_order)


def _title_of_metric(name: str) -> str:
    return METRICS[name].title


def _question(
    view: View,
    keys: Sequence[SeriesKey],
    regressions: Sequence[Regression],
    place: DeltaGenerator,
    *,
    include_dirty: bool,
) -> TrendQuestion:
    """These series of the commits in the window, on the branches that are looked at."""
    wanted = set(keys)
    moved = {move.commit.sha for one in regressions for move in one.change_points if move.series in wanted}
    question = TrendQuestion(
        view.project,
        tuple(keys),
        include_dirty=include_dirty,
        branches=view.filters.branches,
        # what the address pins is there to be told of
        kept_commits=tuple(sorted({*moved, *st.query_params.get_all("commit")})),
    )
    windows = _windows(view)
    if windows == [_EVERY_COMMIT]:
        return question
    window = view.link.choose("Commits", windows, parameter="window", default=_EVERY_COMMIT, place=place)
    return question if window == _EVERY_COMMIT else _with_end(view, replace(question, length=int(window)), place)


def _windows(view: View) -> list[str]:
    """What is shorter than the history, with what the reader drew a box over, and all."""
    commit_count = view.filters.facets.commit_count
    offered = {int(window) for window in _WINDOWS if window != _EVERY_COMMIT}
    drawn = view.link.asked_or_chosen("window")
    if drawn is not None and drawn.isascii() and drawn.isdecimal() and len(drawn) <= len(str(commit_count)):
        offered.add(int(drawn))
    return [*(str(length) for length in sorted(offered) if 1 < length < commit_count), _EVERY_COMMIT]


def _with_end(view: View, question: TrendQuestion, place: DeltaGenerator) -> TrendQuestion:
    asked = view.link.asked_or_chosen("end")
    ends = {end.sha: end for end in data.list_window_ends(replace(question, kept_commits=(), end=asked))}
    if len(ends) < 2:
        return question
    chosen = view.link.choose(
        *("Up to", list(ends)), parameter="end", title=lambda sha: _title_of_end(ends[sha], view.zone), place=place
    )
    return replace(question, end=chosen)


def _title_of_end(end: WindowEnd, zone: tzinfo) -> str:
    return f"{end.sha[:8]} of {date_written(end.committed_at, zone)}"


def _choose_implementations(view: View, series: Sequence[Series], place: DeltaGenerator) -> list[Series]:
    """The chosen ones; what can never run here, such as Triton code on a CPU, is offered only if there is no other."""
    tried = [one for one in series if any(point.outcome is not Outcome.UNSUPPORTED for point in one.points)]
    offered = tried or list(series)
    implementations = view.link.choose_many(
        "Implementations",
        sorted({one.key.implementation for one in offered}),
        parameter="implementation",
        place=place,
    )
    return [one for one in offered if one.key.implementation in implementations]


def _show_changes(keys: Collection[SeriesKey], regressions: Sequence[Regression]) -> None:
    rows = [
        {
            "verdict": VERDICT_MARKS[change.verdict].text,
            "change": change_text(change),
            "commit": change.commit.short_sha,
            "subject": change.commit.subject,
            "author": change.commit.author,
            "implementation": change.series.implementation,
            "level": transition_text(change),
            "standing": _standing(regression),
            "evidence": change.evidence,
        }
        for regression in regressions
        for change in regression.change_points
        if change.series in keys
    ]
    st.subheader("Change points", anchor=False)
    if rows:
        show_table(pd.DataFrame(rows))
    else:
        st.text("None stored for these series.")


def _standing(regression: Regression) -> str:
    return f"{regression.state}, {'confirmed' if regression.is_confirmed else 'not confirmed yet'}"


def _show_points(view: View, series: Sequence[Series]) -> None:
    table = view.link.unfold("The values as a table", parameter="values")
    if table is None:
        return
    with table:
        for one, name in zip(series, series_names(series), strict=True):
            shown = one.points[-_MOST_ROWS:]
            st.markdown(f"{code_span(name)}, {one.key.definition.title}")
            if len(shown) < len(one.points):
                st.caption(f"The last {len(shown):,} of {len(one.points):,} points of the figure.")
            show_table(
                pd.DataFrame(
                    {
                        "commit": [point.commit.short_sha for point in shown],
                        "subject": [point.commit.subject for point in shown],
                        "outcome": [outcome_text(point.outcome) for point in shown],
                        "value": [point.value for point in shown],
                        "first quartile": [point.low for point in shown],
                        "third quartile": [point.high for point in shown],
                        "message": [point.message for point in shown],
                        "run": [view.link.address_of("run", project=view.project, run=point.run_id) for point in shown],
                    }
                ),
                formats=dict.fromkeys(["value", "first quartile", "third quartile"], one.key.definition.format),
                columns={"run": Column(link_text="open")},
                name=name,
            )


if __name__ == "__main__":
    show()
