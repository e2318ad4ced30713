"""The trend of a change of the ledger, with its roof and the fastest library."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.charts.history import History, RoofLine, history_html
from roofwatch.dashboard.charts.lanes import lanes_of
from roofwatch.dashboard.components.markup import show_markup
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.roof_table import fastest_library
from roofwatch.dashboard.wording import (
    device_text,
    escaped,
)
from roofwatch.db.queries import questions
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.model.history import ChangePoint, SeriesKey
from roofwatch.model.stored_results import RoofCell

_TREND_PX = 120


def show_trend(view: View, change: ChangePoint, cells: Sequence[RoofCell]) -> None:
    """Draw the series of a change with its roof, the library, releases and new drivers."""
    series = change.series
    keys = [series]
    library = fastest_library(series, cells)
    if library is not None:
        keys.append(library)
    question = TrendQuestion(
        view.project,
        tuple(keys),
        kept_commits=(change.commit.sha, change.previous_commit.sha),
    )
    # the trend is longer than the list, unless its reader chose dates
    if view.range.is_dragged:
        question = replace(
            question,
            since=view.range.since,
            until=view.range.until,
        )
    trend = data.ask(questions.read_trend, question)
    lines = {line.key: line for line in trend.series}
    line = lines.pop(series, None)
    # a change that only a pair shows has no series
    if line is None:
        st.html("<p class=rw-soft>This series has no runs outside pairs.</p>")
        return
    releases = view.list_releases()
    history = History(
        series=line,
        vendor=next(iter(lines.values()), None),
        roofs=tuple(_roofs(series, cells)),
        changes=(change,),
        lanes=tuple(lanes_of([line], releases)),
    )
    drawn = history_html(
        history,
        view.zone,
        height_px=_TREND_PX,
    )
    title = f"{series.definition.title}, {series.label}"
    if series.runner_class:
        title += f" on {device_text(series.runner_class)}"
    roof = view.anchor(
        "Roof →",
        "roof",
        kernel=series.kernel,
        case=series.case_id,
        runner=series.runner_class,
    )
    st.html(f"<p class=rw-caption>{escaped(title)} {roof}</p>")
    show_markup(drawn, key="main-figure")


def _roofs(series: SeriesKey, cells: Sequence[RoofCell]) -> Iterator[RoofLine]:
    for cell in cells:
        if cell.key == series and cell.utilisation:
            # the time at the roof: the share of it that the newest run took
            roof_ns = cell.values[-1] * cell.utilisation
            yield RoofLine(
                "achievable (measured)",
                roof_ns,
                is_measured=True,
            )
