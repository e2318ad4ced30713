"""One metric of one case over commits, with the change points that were judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ci.group import kernel_of
from collector.metrics import METRICS
from collector.part import Outcome
from dashboard import data
from dashboard.charts import series_names, trend_figure
from dashboard.frame import View, open_view, say_how_to_begin
from dashboard.table import show_table
from dashboard.wording import VERDICT_MARKS, change_text, code_span, natural_order, outcome_text, transition_text
from db.values import Regression, Series, SeriesKey

# What tells the series of one kernel and metric apart, besides the implementation: those are shown together.
_NARROWED_BY: tuple[tuple[str, str, Callable[[SeriesKey], str]], ...] = (
    ("Case", "case", lambda key: key.case_id),
    ("Runner class", "runner", lambda key: key.runner_class),
    ("Target", "target", lambda key: key.target),
    ("Function", "function", lambda key: key.function),
    ("Tensor", "tensor", lambda key: key.tensor),
)


def show() -> None:
    with open_view("trends", "Trends", "How a kernel moved over commits, and which commit moved it.") as view:
        choices, switches = st.container(), st.container(horizontal=True)
        is_log_scale = view.link.switch("Logarithmic scale", parameter="log", place=switches)
        include_dirty = view.link.switch("With runs of uncommitted changes", parameter="dirty", place=switches)
        every_key = data.list_series_keys(view.project, include_dirty=include_dirty)
        if not every_key:
            say_how_to_begin(
                "This project has no series yet: no committed state was measured. Commit and measure, then store the "
                "record:"
            )
        first, second = choices.container(horizontal=True), choices.container(horizontal=True)
        keys = _narrow(view, every_key, first, second)
        series = data.read_series(view.project, tuple(keys), include_dirty=include_dirty)
        series = _choose_implementations(view, series, second)
        if not series:
            st.info("Choose at least one implementation.", icon=":material/filter_alt:")
            return
        regressions = data.list_regressions(view.project)
        if is_log_scale and any(point.value == 0 for one in series for point in one.points):
            st.info("The scale stays linear: a logarithmic one has no place for zero.", icon=":material/linear_scale:")
            is_log_scale = False
        st.plotly_chart(trend_figure(series, regressions, is_log_scale=is_log_scale), key="trend")
        st.caption(
            "Whiskers reach from the first to the third quartile of the samples. A run that failed has no value and "
            "stands below the axis. Vertical lines are stored change points; this page judges nothing."
        )
        _show_changes({one.key for one in series}, regressions)
        _show_points(series)


def _narrow(view: View, keys: Sequence[SeriesKey], first: DeltaGenerator, second: DeltaGenerator) -> list[SeriesKey]:
    """The series of one kernel, metric, case and so on: one per implementation."""
    kernel = view.link.choose("Kernel", sorted({kernel_of(key) for key in keys}), parameter="kernel", place=first)
    left = [key for key in keys if kernel_of(key) == kernel]
    measured = {key.metric for key in left}
    chosen_metric = view.link.choose(
        "Metric",
        [known for known in METRICS if known in measured],
        parameter="metric",
        title=lambda known: METRICS[known].title,
        place=first,
    )
    left = [key for key in left if key.metric == chosen_metric]
    for label, parameter, part_of in _NARROWED_BY:
        parts = sorted({part_of(key) for key in left}, key=natural_order)
        if parts == [""]:
            continue
        chosen = view.link.choose(
            label,
            parts,
            parameter=parameter,
            title=lambda part: part or "none",
            place=first if parameter == "case" else second,
        )
        left = [key for key in left if part_of(key) == chosen]
    return left


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
            st.markdown(code_span(name))
            show_table(
                pd.DataFrame(
                    {
                        "commit": [point.commit.short_sha for point in one.points],
                        "subject": [point.commit.subject for point in one.points],
                        "outcome": [outcome_text(point.outcome) for point in one.points],
                        "value": [point.value for point in one.points],
                        "first quartile": [point.low for point in one.points],
                        "third quartile": [point.high for point in one.points],
                        "message": [point.message for point in one.points],
                        "run": [point.run_id for point in one.points],
                    }
                ),
                formats=dict.fromkeys(["value", "first quartile", "third quartile"], one.key.definition.format),
            )


if __name__ == "__main__":
    show()
