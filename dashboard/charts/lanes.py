"""Lanes under the dates of a history: releases, and what changed around a series."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from roofwatch.dashboard.charts.scale import DateScale
from roofwatch.dashboard.charts.setup_changes import setting_changes
from roofwatch.dashboard.wording import date_written, escaped
from roofwatch.model.history import Series

_MAX_LANE_LABELS = 8
_RELEASES = "releases"
_TOOLCHAIN = "toolchain"
_LANE_OF_PREFIX = {
    "driver ": "driver",
    "harness ": "harness",
    "timed by ": "timing",
}
"""Lane by the beginning of a text about a change of the setup."""


@dataclass(frozen=True)
class LaneMark:
    moment: datetime
    text: str
    """Short text that is drawn, such as `v0.5.0` or `570.1 → 580.2`."""


@dataclass(frozen=True)
class Lane:
    """What happened around a series, in a row of its own under the dates."""

    name: str
    marks: tuple[LaneMark, ...]


def lanes_of(series: Iterable[Series], releases: Sequence[LaneMark]) -> list[Lane]:
    """Return the lanes of releases, driver, toolchain, harness and timing that have marks.

    Args:
        series: Whose settings are followed.
        releases: Dates and names, oldest first.
    """
    marks: dict[str, list[LaneMark]] = {
        _RELEASES: list(releases),
        "driver": [],
        _TOOLCHAIN: [],
        "harness": [],
        "timing": [],
    }
    for change in setting_changes(series):
        for word in change.words:
            lane, text = _lane_of(word)
            mark = LaneMark(change.commit.committed_at, text)
            marks[lane].append(mark)
    lanes = [Lane(name, tuple(marks_of_lane)) for name, marks_of_lane in marks.items()]
    return [lane for lane in lanes if lane.marks]


def _lane_of(word: str) -> tuple[str, str]:
    """Return the lane of a change of the setup, and what is written there."""
    # the lane already says driver, so its marks need not
    for prefix, lane in _LANE_OF_PREFIX.items():
        if word.startswith(prefix):
            return lane, word.removeprefix(prefix)
    return _TOOLCHAIN, word


def lane_html(
    lane: Lane,
    dates: DateScale,
    zone: tzinfo,
) -> str:
    """Draw the marks of a lane that lie within the dates; nothing without any."""
    marks = [mark for mark in lane.marks if dates.covers(mark.moment)]
    if not marks:
        return ""
    labels: list[str] = []
    for number, mark in enumerate(marks, start=1):
        start = dates.percent(mark.moment)
        # a name may reach up to the next mark
        end = 100.0
        if number < len(marks):
            end = dates.percent(marks[number].moment)
        # many names would overlap; each is still in the title of its mark
        text = "&nbsp;"
        if len(marks) <= _MAX_LANE_LABELS:
            text = escaped(mark.text)
        width = max(end - start, 0.5)
        date = date_written(mark.moment, zone)
        title = escaped(f"{date}: {mark.text}")
        labels.append(
            f'<span style="left:{start:.2f}%;max-width:{width:.2f}%" title="{title}">{text}</span>'
        )
    return (
        f'<div class="rw-lane-name">{escaped(lane.name)}</div>'
        f'<div class="rw-lane">{"".join(labels)}</div>'
    )
