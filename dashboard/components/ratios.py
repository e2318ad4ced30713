"""Times as multiples of a library's time in the same run, of one kernel."""

from collections.abc import Sequence

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.charts.trend import trend_figure
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.db.queries import questions
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.model.history import SeriesKey
from roofwatch.model.metrics import RATIO_TO, RATIO_TO_REFERENCE
from roofwatch.model.record import RunRecord

_DRAWN = 6
"""Series in the figure."""
_FIGURE_PX = 220


def show_ratios(view: View, part: RunRecord) -> None:
    """Show the ratios to a library of a kernel in one run, and over commits; nothing without any.

    Args:
        view: The view.
        part: One kernel of a run.
    """
    ratios = _ratios_of(part)
    if not ratios:
        return
    st.header("Against the library", anchor=False)
    series = list(ratios)
    _show_trend(view, series[:_DRAWN])
    show_table(
        series,
        Column("case", lambda key: key.case_id),
        Column("implementation", lambda key: key.implementation),
        Column("metric", lambda key: key.definition.title),
        Column("ratio", lambda key: ratios[key], series[0].definition.format),
    )
    st.caption(
        "Value over the library's value for the same case in the same run. The machine, the driver "
        "and the clock change both equally. Of a time, below 1 is faster than the library."
    )


def _ratios_of(part: RunRecord) -> dict[SeriesKey, float]:
    values = [
        (
            measurement.case_id,
            measurement.implementation,
            RATIO_TO_REFERENCE,
            measurement.ratio_to_reference,
        )
        for measurement in part.measurements
    ]
    values += [
        (measurement.case_id, measurement.implementation, measurement.key, measurement.value)
        for measurement in part.imported
        if RATIO_TO in measurement.metric
    ]
    runner_class = part.environment.runner_class
    ratios: dict[SeriesKey, float] = {}
    for case_id, implementation, name, ratio in values:
        if ratio is not None:
            key = SeriesKey(part.project, case_id, implementation, name, runner_class=runner_class)
            ratios[key] = ratio
    return ratios


def _show_trend(view: View, keys: Sequence[SeriesKey]) -> None:
    trend = data.ask(questions.read_trend, TrendQuestion(view.project, tuple(keys)))
    if trend.commit_count < 2:
        return
    figure = trend_figure(
        trend.series,
        data.list_regressions(view.project),
        view.zone,
        places=trend.places,
        values_px=_FIGURE_PX,
    )
    st.plotly_chart(figure, key="ratios")
