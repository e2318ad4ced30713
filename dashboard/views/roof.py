"""Series over commits, with stored change points."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import tzinfo

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.plotly_chart import PlotlyState

from roofwatch.ci.messages import on_one_line
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.trend import Scale, trend_figure
from roofwatch.dashboard.components.page import (
    MAIN_FIGURE,
    View,
    open_view,
    show_first_steps,
    show_no_match,
)
from roofwatch.dashboard.components.trend import (
    EVERY_COMMIT,
    show_changes,
    show_picked_commit,
    show_values,
    watch_zoom,
)
from roofwatch.dashboard.components.workloads import CPU_NOTE
from roofwatch.dashboard.wording import code_span, date_written, natural_order
from roofwatch.db.queries import questions
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.model.history import CommitRef, Regression, RegressionState, Series, SeriesKey
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import METRICS, metric
from roofwatch.model.stored_results import Trend
from roofwatch.model.verdict import Verdict
from roofwatch.spec.workload import WORKLOADS

_NARROWED_BY = {
    "runner_class": "runner",
    "target": "target",
    "function": "function",
    "tensor": "tensor",
}
"""Parameters, by part of the key, that distinguish series of one kernel, metric and case."""
_WINDOWS = (100, 500, 2_000)
_OTHER_WAYS_TO_ZOOM = ["pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d"]


def show() -> None:
    with open_view(
        "roof", "Trends", "One or more series over commits, with their changes."
    ) as view:
        *first, scaled, dirty = st.columns([1.3, 2.6, 1.3, 1.1, 1.4], vertical_alignment="bottom")
        second = st.container(horizontal=True, vertical_alignment="bottom")
        include_dirty = view.link.switch("Include dirty runs", parameter="dirty", place=dirty)
        every_key = data.ask(
            questions.list_series_keys,
            view.project,
            include_dirty=include_dirty,
            include_branches=bool(view.filters.branches),
        )
        if not every_key:
            show_first_steps(
                "This project has no series yet: no committed state was measured. Commit and "
                "measure, then store the "
                "record:"
            )
        admitted = [key for key in every_key if view.filters.admits_series(key)]
        if not admitted:
            show_no_match(view, "series")
            return
        regressions = data.list_regressions(view.project)
        kernel = view.link.asked_or_chosen("kernel")
        of_kernel = [key for key in admitted if key.kernel == kernel] or admitted
        keys = _narrow(view, admitted, _default_series(regressions, of_kernel), first, second)
        trend = data.ask(
            questions.read_trend,
            _question(view, keys, regressions, second, include_dirty=include_dirty),
        )
        if not trend.series:
            st.info(
                "These series have no runs on the chosen branch: choose others, or widen the "
                "filters.",
                icon=":material/filter_alt:",
            )
            return
        series = _choose_implementations(view, trend.series, second)
        # times of several runners differ too much for one axis
        default = Scale.RELATIVE if len({one.key.runner_class for one in series}) > 1 else None
        scale = Scale(
            view.link.choose("Scale", [*Scale], parameter="scale", default=default, place=scaled)
        )
        if scale is Scale.LOGARITHMIC and any(
            point.value == 0 for one in series for point in one.points
        ):
            st.info(
                "The scale stays linear, because there are values of zero.",
                icon=":material/linear_scale:",
            )
            scale = Scale.ABSOLUTE
        figure = trend_figure(series, regressions, view.zone, scale=scale, places=trend.places)
        # a key per window, so a selection is dropped with its commits
        key = (
            f"{MAIN_FIGURE} {view.link.asked_or_chosen('window')} "
            f"{view.link.asked_or_chosen('end')}"
        )
        selected = st.session_state.get(key, {}).get("selection", {}).get("points")
        is_pinned = bool(selected) or view.link.asked_or_chosen("commit") is not None
        main, beside = st.columns([5, 3]) if is_pinned else (st.container(), st.container())
        drawn = main.plotly_chart(
            figure,
            key=key,
            on_select="rerun",
            selection_mode="points",
            config={"modeBarButtonsToRemove": _OTHER_WAYS_TO_ZOOM},
        )
        watch_zoom(view, trend)
        pin = view.link.pin(parameter="commit", picked=_picked_commit(drawn, trend))
        with beside:
            show_picked_commit(view, pin, series, regressions)
        _explain(trend)
        workloads = {case.kernel for case in view.filters.facets.cases if case.family == WORKLOADS}
        on_a_cpu = {one.key.runner_class for one in series} & view.filters.facets.cpu_classes
        if on_a_cpu and not workloads.isdisjoint(one.key.kernel for one in series):
            st.caption(f"{', '.join(map(code_span, sorted(on_a_cpu)))}: a CPU. {CPU_NOTE}")
        show_changes(series, regressions)
        view.link.unfold(
            "The values as a table", lambda: show_values(view, series), parameter="values"
        )


def _explain(trend: Trend) -> None:
    thinned = (
        f"With {trend.run_count:,} runs, the line is a median, and the band reaches from 5 % to "
        f"95 % of the runs; a "
        "shorter window shows every run."
    )
    st.caption(
        "Whiskers reach from the first to the third quartile of the samples. Failed runs are in a "
        "row of their own. "
        "Vertical lines are change points. Shaded bands start where versions, the driver, the "
        "machine, the timer or "
        "the cache state changed. Click a point to see its commit. Drag to zoom, and double-click "
        "to see all commits. "
        f"{thinned if trend.is_thinned else ''}"
    )


def _default_series(
    regressions: Sequence[Regression], keys: Collection[SeriesKey]
) -> SeriesKey | None:
    """Return the default choices: the newest open regression."""
    offered = set(keys)
    for regression in regressions:
        if regression.verdict is Verdict.REGRESSED and regression.state is RegressionState.OPEN:
            best = regression.change_points[0].series
            if best in offered:
                return best
    return None


def _picked_commit(drawn: PlotlyState, trend: Trend) -> str | None:
    """Return the commit of the selected point, if any."""
    points = drawn["selection"]["points"]
    return next(
        (sha for sha, place in trend.places.items() if points and place == int(points[0]["x"])),
        None,
    )


def _narrow(
    view: View,
    keys: Sequence[SeriesKey],
    start: SeriesKey | None,
    first: Sequence[DeltaGenerator],
    second: DeltaGenerator,
) -> list[SeriesKey]:
    """Choose kernels, cases, metrics and runner classes; return the selected series."""
    link = view.link
    at_kernel, at_case, at_metric = first

    def choose_further(
        label: str, options: Sequence[str], parameter: str, title: Callable[[str], str]
    ) -> list[str]:
        # a choice without options is hidden, unless the address asks for one, which gives a notice
        if not options and not link.asked_or_chosen(parameter):
            return []
        return link.choose_some(
            label, options, parameter=parameter, placeholder="none", title=title, place=second
        )

    kernels = sorted({key.kernel for key in keys})
    start_kernel = None if start is None else start.kernel
    kernel = link.choose(
        "Kernel", kernels, parameter="kernel", default=start_kernel, place=at_kernel
    )
    left = [key for key in keys if key.kernel == kernel]
    begun = start if start in left else None
    known = {key.metric for key in left}
    metrics = [*(one for one in METRICS if one in known), *sorted(known - METRICS.keys())]
    start_metric = None if begun is None else begun.metric
    metric = link.choose(
        "Metric",
        metrics,
        parameter="metric",
        title=_title_of,
        default=start_metric,
        place=at_metric,
    )
    cases = _cases_of(keys, kernel, metric)
    start_case = None if begun is None else begun.case_id
    case = link.choose("Case", cases, parameter="case", default=start_case, place=at_case)
    further = choose_further(
        "Add metric", [one for one in metrics if one != metric], "further", _title_of
    )
    further_kernels = choose_further(
        "Add kernel", [one for one in kernels if one != kernel], "kernels", on_one_line
    )
    cases_of = {one: _cases_of(keys, one, metric) for one in (kernel, *further_kernels)}
    other_cases = [one for own in cases_of.values() for one in own if one != case]
    beside = choose_further("Add case", other_cases, "beside", on_one_line)
    # a kernel without a chosen case shows its first
    first_cases = [own[0] for own in cases_of.values() if own and not {case, *beside} & set(own)]
    shown_cases = {case, *beside, *first_cases}
    left = [key for key in keys if key.metric in {metric, *further} and key.case_id in shown_cases]
    for name, parameter in _NARROWED_BY.items():
        # machine code has no runner and times have no target: keep series without that part
        parts = sorted({getattr(key, name) for key in left} - {""}, key=natural_order)
        if parts:
            start_part: str = getattr(begun, name, "")
            default = start_part if start_part in parts else parts[0]
            label = name.replace("_", " ").capitalize()
            chosen = link.choose_some(
                label, parts, parameter=parameter, default=[default], place=second
            )
            left = [key for key in left if getattr(key, name) in {"", *chosen}]
    return sorted(left, key=lambda key: [metric, *further].index(key.metric))


def _title_of(key: str) -> str:
    known = metric(key)
    return known.title if key in METRICS else f"{known.title} ({known.unit})"


def _cases_of(keys: Sequence[SeriesKey], kernel: str, metric: str) -> list[str]:
    return sorted(
        {key.case_id for key in keys if key.kernel == kernel and key.metric == metric},
        key=natural_order,
    )


def _question(
    view: View,
    keys: Sequence[SeriesKey],
    regressions: Sequence[Regression],
    place: DeltaGenerator,
    *,
    include_dirty: bool,
) -> TrendQuestion:
    """Return the question for these series in the chosen window."""
    wanted = set(keys)
    moved = {
        move.commit.sha
        for one in regressions
        for move in one.change_points
        if move.series in wanted
    }
    question = TrendQuestion(
        view.project,
        tuple(keys),
        include_dirty=include_dirty,
        branches=view.filters.branches,
        # keep commits that the address selects
        kept_commits=tuple(sorted({*moved, *st.query_params.get_all("commit")})),
    )
    windows = [*map(str, _windows(view)), EVERY_COMMIT]
    if windows == [EVERY_COMMIT]:
        # in the address, to which Back returns from a zoom
        view.link.pin(parameter="window", picked=EVERY_COMMIT)
        return question
    window = view.link.choose(
        "Commits", windows, parameter="window", default=EVERY_COMMIT, place=place
    )
    if window == EVERY_COMMIT:
        return question
    question = replace(question, length=int(window))
    asked = replace(question, kept_commits=(), end=view.link.asked_or_chosen("end"))
    ends = {end.sha: end for end in data.ask(questions.list_window_ends, asked)}
    if len(ends) < 2:
        return question
    end = view.link.choose(
        "Up to",
        list(ends),
        parameter="end",
        title=lambda sha: _title_of_end(ends[sha], view.zone),
        place=place,
    )
    return replace(question, end=end)


def _windows(view: View) -> list[int]:
    """Return window lengths shorter than the history, and the selected one."""
    commit_count = view.filters.facets.commit_count
    drawn = view.link.asked_or_chosen("window")
    offered = {*_WINDOWS}
    if (
        drawn is not None
        and drawn.isascii()
        and drawn.isdecimal()
        and len(drawn) <= len(str(commit_count))
    ):
        offered.add(int(drawn))
    return sorted(length for length in offered if 1 < length < commit_count)


def _title_of_end(end: CommitRef, zone: tzinfo) -> str:
    return f"{end.sha[:8]} of {date_written(end.committed_at, zone)}"


def _choose_implementations(
    view: View, series: Sequence[Series], place: DeltaGenerator
) -> list[Series]:
    """Choose implementations; those that never run here are offered only if there is no other."""
    tried = [
        one
        for one in series
        if any(point.outcome is not Outcome.UNSUPPORTED for point in one.points)
    ]
    offered = tried or list(series)
    chosen = view.link.choose_some(
        "Implementations",
        sorted({one.key.implementation for one in offered}),
        parameter="implementation",
        place=place,
    )
    return [one for one in offered if not chosen or one.key.implementation in chosen]


if __name__ == "__main__":
    show()
