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
    changes: list[SettingChange] = []
    for line in series:
        points_of_class = by_class.setdefault(line.key.runner_class, {})
        points_of_class.update({point.run_id: point for point in line.points})
        changes += _timing_changes(line.points)
    for points in by_class.values():
        ordered = sorted(points.values(), key=lambda point: (point.commit, point.measured_at))
        settings = [(point.commit, point.setting) for point in ordered]
        known_settings = [(commit, setting) for commit, setting in settings if setting is not None]
        for (_, previous), (commit, setting) in pairwise(known_settings):
            if previous != setting:
                changes.append(SettingChange(commit, tuple(_differences(previous, setting))))
    return sorted(dict.fromkeys(changes), key=lambda change: change.commit)


def _timing_changes(points: Iterable[SeriesPoint]) -> Iterator[SettingChange]:
    timed = [point for point in points if point.timing]
    for previous, point in pairwise(timed):
        if previous.timing != point.timing:
            words = (f"timed by {previous.timing} → {point.timing}",)
            yield SettingChange(point.commit, words)


def _differences(previous: RunSetting, setting: RunSetting) -> Iterator[str]:
    old_values, new_values = _named(previous), _named(setting)
    for name in dict.fromkeys([*old_values, *new_values]):
        old_value, new_value = old_values.get(name), new_values.get(name)
        if old_value != new_value:
            yield f"{name} {old_value or 'none'} → {new_value or 'none'}"


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
