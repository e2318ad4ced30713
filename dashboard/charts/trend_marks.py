"""Marks above a trend: its stored change points, and where the measurement setup changed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import pairwise

import plotly.graph_objects as go

from roofwatch.dashboard.charts.style import GREEN, GREY, VERMILLION, commit_lines
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
    CommitRef,
    Regression,
    RegressionState,
    RunSetting,
    Series,
    SeriesPoint,
)
from roofwatch.model.verdict import Verdict

MARKS = "y3"
_VERDICT_STYLES = {
    Verdict.REGRESSED: (VERMILLION, "diamond", "dash"),
    Verdict.IMPROVED: (GREEN, "circle", "dot"),
}
_MAX_CHANGE_LABELS = 6


@dataclass(frozen=True)
class SettingChange:
    """From this commit on, runs of a runner class were measured with another setting."""

    commit: CommitRef
    words: tuple[str, ...]
    """One text per change, such as `triton 3.6.0 → 3.7.0`."""


def setting_changes(series: Iterable[Series]) -> list[SettingChange]:
    """Find the changes over all runs of some series, ordered by commit, without duplicates.

    Settings are followed per runner class, timings per series, because cases of one run may differ
    in timing.
    """
    by_class: dict[str, dict[str, SeriesPoint]] = {}
    found: list[SettingChange] = []
    for one in series:
        by_class.setdefault(one.key.runner_class, {}).update(
            {point.run_id: point for point in one.points}
        )
        for before, after in pairwise(point for point in one.points if point.timing):
            if before.timing != after.timing:
                found.append(
                    SettingChange(after.commit, (f"timed by {before.timing} → {after.timing}",))
                )
    for points in by_class.values():
        known = [point for point in points.values() if point.setting is not None]
        known.sort(key=lambda point: (point.commit, point.measured_at))
        for before, after in pairwise(known):
            if (
                before.setting is not None
                and after.setting is not None
                and before.setting != after.setting
            ):
                found.append(
                    SettingChange(after.commit, tuple(_differences(before.setting, after.setting)))
                )
    return sorted(dict.fromkeys(found), key=lambda change: change.commit)


def _differences(before: RunSetting, after: RunSetting) -> Iterator[str]:
    was, now = _named(before), _named(after)
    for name in dict.fromkeys([*was, *now]):
        if was.get(name) != now.get(name):
            yield f"{name} {was.get(name) or 'none'} → {now.get(name) or 'none'}"


def _named(setting: RunSetting) -> dict[str, str | None]:
    return {
        "harness": setting.harness_version,
        "driver": setting.driver_version,
        "compute capability": setting.compute_capability,
        **dict(setting.toolchain),
        **dict(setting.machine),
    }


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
    shown = [change for change in changes if change.commit.sha in position]
    if not shown:
        return
    starts = sorted({position[change.commit.sha] for change in shown})
    ends = [*starts[1::2], commit_count]
    for left, right in zip(starts[::2], ends, strict=False):
        figure.add_vrect(
            x0=left - 0.5, x1=right - 0.5, fillcolor=GREY, opacity=0.12, line_width=0, layer="below"
        )
    title = "measurement setup changed"
    figure.add_scatter(
        x=[position[change.commit.sha] for change in shown],
        y=[0.85] * len(shown),
        yaxis=MARKS,
        mode="markers",
        name=title,
        marker={"color": GREY, "symbol": "triangle-down", "size": 9},
        hovertext=[
            "<br>".join(
                [
                    f"<b>{title}</b>",
                    *(escaped(shortened(word)) for word in change.words),
                    *commit_lines(change.commit, zone),
                ]
            )
            for change in shown
        ],
    )


@dataclass(frozen=True)
class StoredChange:
    """A change point of a regression."""

    regression: Regression
    change: ChangePoint


def changes_of(series: Sequence[Series], regressions: Sequence[Regression]) -> list[StoredChange]:
    keys = {one.key for one in series}
    return [
        StoredChange(one, change)
        for one in regressions
        for change in one.change_points
        if change.series in keys
    ]


def add_changes(
    figure: go.Figure,
    changes: Sequence[StoredChange],
    position: Mapping[str, int],
    commit_count: int,
    zone: tzinfo,
) -> None:
    for verdict, (colour, symbol, dash) in _VERDICT_STYLES.items():
        own = [
            one
            for one in changes
            if one.change.verdict is verdict and one.change.commit.sha in position
        ]
        if not own:
            continue
        places = [position[one.change.commit.sha] for one in own]
        for at in sorted(set(places)):
            figure.add_shape(
                type="line",
                yref="paper",
                x0=at,
                x1=at,
                y0=0,
                y1=0.95,
                line={"color": colour, "width": 1.5, "dash": dash},
                layer="below",
            )
        figure.add_scatter(
            x=places,
            y=[0.35] * len(own),
            yaxis=MARKS,
            mode="markers+text" if len(changes) <= _MAX_CHANGE_LABELS else "markers",
            text=[change_text(one.change) for one in own],
            # towards the middle, away from the edge
            textposition=[
                "middle left" if at > commit_count / 2 else "middle right" for at in places
            ],
            textfont={"color": colour},
            name=VERDICT_MARKS[verdict].word,
            marker={"color": colour, "symbol": symbol, "size": 11},
            hovertext=[_change_hover(one, zone) for one in own],
        )


def _change_hover(one: StoredChange, zone: tzinfo) -> str:
    change, standing = one.change, confirmation_text(one.regression)
    if one.regression.state is RegressionState.DISMISSED:
        standing = "dismissed: not confirmed when measured again"
    elif one.regression.state is RegressionState.NO_LONGER_FOUND:
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
