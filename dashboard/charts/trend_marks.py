"""Marks above a trend: its stored change points, and where the measurement setup changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import plotly.graph_objects as go

from roofwatch.dashboard.charts.palette import GREEN, GREY, VERMILLION
from roofwatch.dashboard.charts.setup_changes import SettingChange
from roofwatch.dashboard.charts.style import (
    commit_lines,
)
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    change_text,
    confirmation_text,
    escaped,
    shortened,
    transition_text,
)
from roofwatch.model.history import (
    ChangePoint,
    Regression,
    RegressionState,
    Series,
)
from roofwatch.model.verdict import Verdict

MARKS = "y3"
_VERDICT_STYLES = {
    Verdict.REGRESSED: (VERMILLION, "diamond", "dash"),
    Verdict.IMPROVED: (GREEN, "circle", "dot"),
}
_MAX_CHANGE_LABELS = 6


def add_setup_changes(
    figure: go.Figure,
    changes: Sequence[SettingChange],
    position: Mapping[str, int],
    commit_count: int,
    zone: tzinfo,
) -> None:
    """Shade every other stretch between setting changes,
    with a marker that describes each change.
    """
    drawn = [change for change in changes if change.commit.sha in position]
    if not drawn:
        return
    starts = sorted({position[change.commit.sha] for change in drawn})
    ends = [*starts[1::2], commit_count]
    for start, end in zip(starts[::2], ends, strict=False):
        figure.add_vrect(
            x0=start - 0.5,
            x1=end - 0.5,
            fillcolor=GREY,
            opacity=0.12,
            line_width=0,
            layer="below",
        )
    title = "measurement setup changed"
    figure.add_scatter(
        x=[position[change.commit.sha] for change in drawn],
        y=[0.85] * len(drawn),
        yaxis=MARKS,
        mode="markers",
        name=title,
        marker={"color": GREY, "symbol": "triangle-down", "size": 9},
        hovertext=[_setup_hover(title, change, zone) for change in drawn],
    )


def _setup_hover(title: str, change: SettingChange, zone: tzinfo) -> str:
    words = [escaped(shortened(word)) for word in change.words]
    return "<br>".join(
        [
            f"<b>{title}</b>",
            *words,
            *commit_lines(change.commit, zone),
        ]
    )


@dataclass(frozen=True)
class StoredChange:
    """A change point of a regression."""

    regression: Regression
    change: ChangePoint


def changes_of(series: Sequence[Series], regressions: Sequence[Regression]) -> list[StoredChange]:
    keys = {line.key for line in series}
    changes: list[StoredChange] = []
    for regression in regressions:
        points = [point for point in regression.change_points if point.series in keys]
        changes += [StoredChange(regression, point) for point in points]
    return changes


def add_changes(
    figure: go.Figure,
    changes: Sequence[StoredChange],
    position: Mapping[str, int],
    commit_count: int,
    zone: tzinfo,
) -> None:
    drawn = [stored for stored in changes if stored.change.commit.sha in position]
    for verdict, (colour, symbol, dash) in _VERDICT_STYLES.items():
        same_verdict = [stored for stored in drawn if stored.change.verdict is verdict]
        if not same_verdict:
            continue
        places = [position[stored.change.commit.sha] for stored in same_verdict]
        for x in sorted(set(places)):
            figure.add_shape(
                type="line",
                yref="paper",
                x0=x,
                x1=x,
                y0=0,
                y1=0.95,
                line={"color": colour, "width": 1.5, "dash": dash},
                layer="below",
            )
        figure.add_scatter(
            x=places,
            y=[0.35] * len(same_verdict),
            yaxis=MARKS,
            mode="markers+text" if len(changes) <= _MAX_CHANGE_LABELS else "markers",
            text=[change_text(stored.change) for stored in same_verdict],
            # towards the middle, away from the edge
            textposition=[
                "middle left" if x > commit_count / 2 else "middle right" for x in places
            ],
            textfont={"color": colour},
            name=VERDICT_MARKS[verdict].word,
            marker={"color": colour, "symbol": symbol, "size": 11},
            hovertext=[_change_hover(stored, zone) for stored in same_verdict],
        )


def _change_hover(stored: StoredChange, zone: tzinfo) -> str:
    change = stored.change
    standing = confirmation_text(stored.regression)
    if stored.regression.state is RegressionState.DISMISSED:
        standing = "dismissed: not confirmed when measured again"
    elif stored.regression.state is RegressionState.NO_LONGER_FOUND:
        standing = "no longer found"
    return "<br>".join(
        [
            f"<b>{VERDICT_MARKS[change.verdict].text} {escaped(change_text(change))}</b> "
            f"({escaped(transition_text(change))}), {standing}",
            escaped(shortened(change.evidence, length=120)),
            escaped(change.series.label),
            *commit_lines(change.commit, zone),
        ]
    )
