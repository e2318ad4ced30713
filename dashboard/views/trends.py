"""Series over commits, with the change points that were judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ci.group import kernel_of
from collector.metrics import METRICS
from collector.part import Outcome
from dashboard import data
from dashboard.charts.trend import Scale, series_names, trend_figure
from dashboard.frame import View, open_view, say_how_to_begin
from dashboard.setting_changes import setting_changes
from dashboard.tables.table import show_table
from dashboard.thinning import MOST_POINTS
from dashboard.wording import VERDICT_MARKS, change_text, code_span, natural_order, outcome_text, transition_text
from db.values import CommitRef, Regression, Series, SeriesKey

# What tells the series of one kernel, metric and case apart, besides the implementation: those are shown together.
_NARROWED_BY: tuple[tuple[str, str, Callable[[SeriesKey], str]], ...] = (
    ("Runner class", "runner", lambda key: key.runner_class),
    ("Target", "target", lambda key: key.target),
    ("Function", "function", lambda key: key.function),
    ("Tensor", "tensor", lambda key: key.tensor),
)
_WINDOWS = ("100", "500", "2000", "all")
_EVERY_COMMIT = "all"
_MOST_ENDS = 200
"""Commits to choose the end of a window from."""
_MOST_ROWS = 1_000
"""Of a table of values."""


def show() -> None:
    with open_view("trends", "Trends", "How a kernel moved over commits, and which commit moved it.") as view:
        first, second, third = (st.container(horizontal=True, vertical_alignment="bottom") for _ in range(3))
        include_dirty = view.link.switch("With runs of uncommitted changes", parameter="dirty", place=third)
        every_key = data.list_series_keys(view.project, include_dirty=include_dirty)
        if not every_key:
            say_how_to_begin(
                "This project has no series yet: no committed state was measured. Commit and measure, then store the "
                "record:"
            )
        admitted = [key for key in every_key if view.filters.admits_series(key)]
        if not admitted:
            st.info("Nothing that was measured is within the filters: widen them.", icon=":material/filter_alt:")
            return
        keys = _narrow(view, admitted, first, second)
        series = data.read_series(view.project, tuple(keys), include_dirty=include_dirty)
        series = _within_window(view, _choose_implementations(view, series, second), third)
        if not series:
            st.info("Choose at least one implementation.", icon=":material/filter_alt:")
            return
        regressions = data.list_regressions(view.project)
        scale = Scale(view.link.choose("Scale", [*Scale], parameter="scale", place=third))
        if scale is Scale.LOGARITHMIC and any(point.value == 0 for one in series for point in one.points):
            st.info("The scale stays linear: a logarithmic one has no place for zero.", icon=":material/linear_scale:")
            scale = Scale.ABSOLUTE
        figure = trend_figure(series, regressions, scale=scale, setting_changes=setting_changes(series))
        st.plotly_chart(figure, key="trend")
        _explain(series)
        _show_changes({one.key for one in series}, regressions)
        _show_points(series)


def _explain(series: Sequence[Series]) -> None:
    longest = max(len(one.points) for one in series)
    thinned = (
        f" Of {longest:,} runs the figure draws each stretch's first, last, lowest and highest value and its failures: "
        "a shorter window shows every run."
        if longest > MOST_POINTS
        else ""
    )
    st.caption(
        "Whiskers reach from the first to the third quartile of the samples. A run that failed has no value and "
        "stands in a strip of its own. Vertical lines are stored change points; shaded bands begin where versions, the "
        f"driver or the machine changed; this page judges nothing.{thinned}"
    )


def _narrow(view: View, keys: Sequence[SeriesKey], first: DeltaGenerator, second: DeltaGenerator) -> list[SeriesKey]:
    """The series of one kernel, of one case or several, of one metric or several."""
    kernel = view.link.choose("Kernel", sorted({kernel_of(key) for key in keys}), parameter="kernel", place=first)
    left = [key for key in keys if kernel_of(key) == kernel]
    metrics = [known for known in METRICS if known in {key.metric for key in left}]
    title = _title_of_metric
    chosen_metric = view.link.choose("Metric", metrics, parameter="metric", title=title, place=first)
    others = [known for known in metrics if known != chosen_metric]
    further = view.link.narrow(
        "Further metrics", others, parameter="further", title=title, placeholder="none", place=first
    )
    cases = sorted({key.case_id for key in left if key.metric == chosen_metric}, key=natural_order)
    case = view.link.choose("Case", cases, parameter="case", place=first)
    other_cases = [known for known in cases if known != case]
    beside = view.link.narrow("Beside it", other_cases, parameter="beside", placeholder="no other", place=first)
    left = [key for key in left if key.metric in {chosen_metric, *further} and key.case_id in {case, *beside}]
    for label, parameter, part_of in _NARROWED_BY:
        # machine code belongs to no runner, a time to no target: what has no such part stays
        parts = sorted({part_of(key) for key in left} - {""}, key=natural_order)
        if parts:
            chosen = view.link.choose(label, parts, parameter=parameter, place=second)
            left = [key for key in left if part_of(key) in {"", chosen}]
    order = {name: at for at, name in enumerate([chosen_metric, *further])}
    return sorted(left, key=lambda key: order[key.metric])


def _title_of_metric(name: str) -> str:
    return METRICS[name].title


def _within_window(view: View, series: Sequence[Series], place: DeltaGenerator) -> list[Series]:
    """What was measured of the commits in the window, of the branches that are looked at."""
    admitted = [
        replace(one, points=tuple(point for point in one.points if view.filters.admits_commit(point.commit.sha)))
        for one in series
    ]
    commits = sorted({point.commit.sha: point.commit for one in admitted for point in one.points}.values())
    if len(commits) > int(_WINDOWS[0]):
        window = view.link.choose("Commits", _WINDOWS, parameter="window", default=_EVERY_COMMIT, place=place)
        if window != _EVERY_COMMIT and len(commits) > int(window):
            commits = list(_window_of(view, commits, int(window), place))
            shas = {commit.sha for commit in commits}
            admitted = [
                replace(one, points=tuple(point for point in one.points if point.commit.sha in shas))
                for one in admitted
            ]
    return [one for one in admitted if one.points]


def _window_of(view: View, commits: Sequence[CommitRef], length: int, place: DeltaGenerator) -> Sequence[CommitRef]:
    by_sha = {commit.sha: position for position, commit in enumerate(commits)}
    step = max(1, -(-(len(commits) - length) // _MOST_ENDS))
    ends = [commits[position].sha for position in range(len(commits) - 1, length - 2, -step)]
    end = view.link.choose(
        "Up to", ends, parameter="end", title=lambda sha: _title_of_commit(commits[by_sha[sha]]), place=place
    )
    return commits[by_sha[end] + 1 - length : by_sha[end] + 1]


def _title_of_commit(commit: CommitRef) -> str:
    return f"{commit.short_sha} of {commit.committed_at:%Y-%m-%d}"


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
            "standing": _standing(regression),
            "implementation": change.series.implementation,
            "change": change_text(change),
            "level": transition_text(change),
            "commit": change.commit.short_sha,
            "author": change.commit.author,
            "subject": change.commit.subject,
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


def _show_points(series: Sequence[Series]) -> None:
    with st.expander("The values as a table"):
        for one, name in zip(series, series_names(series), strict=True):
            shown = one.points[-_MOST_ROWS:]
            st.markdown(f"{code_span(name)}, {one.key.definition.title}")
            if len(shown) < len(one.points):
                st.caption(f"The last {len(shown):,} of {len(one.points):,} runs in the window.")
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
                        "run": [point.run_id for point in shown],
                    }
                ),
                formats=dict.fromkeys(["value", "first quartile", "third quartile"], one.key.definition.format),
            )


if __name__ == "__main__":
    show()
