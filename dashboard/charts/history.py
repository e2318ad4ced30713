"""The history of one metric over dates: its roofs, the vendor's values, changes, and what changed
around it.

Drawn in HTML and SVG that need no script: places are percentages, so a drawing fits every width.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from roofwatch.dashboard.charts.lanes import Lane, lane_html
from roofwatch.dashboard.charts.palette import COLOUR_OF_VERDICT, GREY, PAGE_BLUE, VERMILLION
from roofwatch.dashboard.charts.scale import (
    DateScale,
    Tick,
    ValueScale,
    date_ticks,
    fit,
    fit_dates,
    round_values,
)
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    date_written,
    escaped,
    headline_text,
    outcome_text,
    shortened,
)
from roofwatch.model.history import ChangePoint, CommitRef, Series, SeriesPoint
from roofwatch.model.metrics import Metric

_MIN_RELATIVE_SPAN = 0.1
"""Relative range that fills the height of a drawing at least: noise must not look like steps."""
_LOW_PERCENT = 85
"""From here down a name has no place below its line."""
_DATE_TICKS = 6
_DATE_TICKS_OF_SMALL = 4
"""Most dates under a drawing."""
_MAX_CHANGE_LABELS = 4

STYLE = f"""
.rw-history {{display: grid; grid-template-columns: 4.6rem minmax(0, 1fr); font-size: 0.72rem;
  line-height: 1.2; font-variant-numeric: tabular-nums}}
.rw-history > * {{min-width: 0}}
.rw-plot, .rw-values, .rw-dates, .rw-lane {{position: relative}}
.rw-plot {{border-left: 1px solid {GREY}; border-bottom: 1px solid {GREY}}}
.rw-plot > svg {{position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible}}
.rw-values span, .rw-dates span, .rw-lane span, .rw-plot span {{position: absolute;
  white-space: nowrap}}
.rw-values span {{right: 0.4rem; transform: translateY(50%); opacity: 0.85}}
.rw-dates {{height: 1.2rem; grid-column: 2}}
.rw-dates span {{transform: translateX(-50%); top: 0.2rem; opacity: 0.85}}
.rw-dates span:first-child {{transform: translateX(-20%)}}
.rw-dates span:last-child {{transform: translateX(-80%)}}
.rw-lane {{height: 1.1rem; border-top: 1px dotted {GREY}; overflow: hidden}}
.rw-lane span {{border-left: 2px solid {GREY}; padding-left: 0.2rem; overflow: hidden;
  text-overflow: ellipsis}}
.rw-lane-name {{text-align: right; padding-right: 0.4rem; opacity: 0.85}}
/* a line of a change may cross the name */
.rw-plot .rw-roof {{right: 0.2rem; opacity: 0.9; text-shadow: 0 0 2px var(--rw-page, Canvas),
  0 0 2px var(--rw-page, Canvas), 0 0 3px var(--rw-page, Canvas)}}
.rw-changes {{position: relative; height: 1rem; grid-column: 2; font-weight: 600}}
.rw-changes span {{position: absolute; white-space: nowrap}}
.rw-changes .regressed {{color: var(--rw-slower, #B84A00)}}
.rw-changes .improved {{color: var(--rw-faster, #0063A0)}}
.rw-history polyline, .rw-history line, .rw-history polygon {{vector-effect: non-scaling-stroke}}
.rw-history circle {{stroke-width: 1.5}}
"""


@dataclass(frozen=True)
class RoofLine:
    """A limit of the hardware, in the unit of the metric."""

    name: str
    """Such as `achievable (measured)` or `peak (datasheet)`."""
    value: float
    is_measured: bool


@dataclass(frozen=True, kw_only=True)
class History:
    """What a drawing shows."""

    series: Series
    vendor: Series | None = None
    """The same metric of the vendor's library."""
    roofs: tuple[RoofLine, ...] = ()
    changes: tuple[ChangePoint, ...] = ()
    """Stored change points of any metric of the case."""
    lanes: tuple[Lane, ...] = ()

    @property
    def metric(self) -> Metric:
        return self.series.key.definition


def history_html(
    history: History,
    zone: tzinfo,
    *,
    height_px: int = 180,
    dates: DateScale | None = None,
    is_small: bool = False,
) -> str:
    """Draw a history; nothing without values.

    Args:
        history: What is drawn.
        zone: Time zone of the dates.
        height_px: Height of the plot, without dates and lanes.
        dates: Common date axis of several drawings; None for the range of this one.
        is_small: Leave out lanes and names of roofs, which a larger drawing has.
    """
    if not _values(history.series):
        return ""
    scale = _value_scale(history)
    dates = dates or date_range([history])
    drawing = _Drawing(history, scale, dates, zone)
    lanes = history.lanes
    roof_labels = drawing.roof_labels()
    tick_count = _DATE_TICKS
    # the larger drawing next to it says it, and more dates would overlap
    if is_small:
        lanes = ()
        roof_labels = ""
        tick_count = _DATE_TICKS_OF_SMALL
    ticks = date_ticks(dates, zone, max_count=tick_count)
    lane_rows = [lane_html(lane, dates, zone) for lane in lanes]
    alternative = _alternative(history, dates, zone)
    return (
        f'<div class="rw-history" role="img" aria-label="{alternative}" '
        f'data-since="{dates.start.isoformat()}" data-until="{dates.end.isoformat()}">'
        f'<div class="rw-changes">{drawing.change_labels()}</div>'
        f'<div class="rw-values">{drawing.value_labels()}</div>'
        f'<div class="rw-plot" style="height:{height_px}px">{drawing.svg()}'
        f"{roof_labels}</div>"
        f'<div class="rw-dates">{_date_labels(ticks)}</div>'
        f"{''.join(lane_rows)}</div>"
    )


def figure_html(caption: str, picture: str) -> str:
    """Put a caption, which is HTML, above a drawing."""
    return f'<figure><figcaption class="rw-cut">{caption}</figcaption>{picture}</figure>'


def date_range(histories: Iterable[History]) -> DateScale:
    """Return the date axis that several drawings share."""
    moments: list[datetime] = []
    for history in histories:
        points = history.series.points
        moments += [point.commit.committed_at for point in points]
    return fit_dates(moments)


def _value_scale(history: History) -> ValueScale:
    values = _values(history.series)
    roof_values = [roof.value for roof in history.roofs]
    if history.metric.unit == "share":
        # a value above its roof came from a cache that the roof leaves out
        highest = max(1.0, *values, *roof_values)
        return ValueScale(0.0, highest * 1.02)
    if history.vendor is not None:
        values += _values(history.vendor)
    scale = fit(values, min_relative_span=_MIN_RELATIVE_SPAN)
    # a far roof would flatten the series, so it is named in the corner instead
    near_roofs = [value for value in roof_values if _is_near(value, scale)]
    return fit(values + near_roofs, min_relative_span=_MIN_RELATIVE_SPAN)


def _is_near(value: float, scale: ValueScale) -> bool:
    reach = 2 * (scale.high - scale.low)
    return scale.low - reach <= value <= scale.high + reach


def _values(series: Series) -> list[float]:
    return [point.value for point in series.points if point.value is not None]


@dataclass(frozen=True)
class _Drawing:
    """A history within its axes, whose places are percentages from the top left corner."""

    history: History
    scale: ValueScale
    dates: DateScale
    zone: tzinfo

    def x(self, commit: CommitRef) -> float:
        return self.dates.percent(commit.committed_at)

    def y(self, value: float) -> float:
        return 100 - self.scale.percent(value)

    def _place(self, commit: CommitRef, value: float) -> str:
        return f"{self.x(commit):.2f},{self.y(value):.1f}"

    def value_labels(self) -> str:
        metric = self.history.metric
        labels: list[str] = []
        for value in round_values(self.scale):
            # zero has no unit: `0 ns` under `50 ms` reads like another scale
            text = "0"
            if metric.unit == "share":
                text = f"{value:.0%}"
            elif value:
                text = metric.format(value)
            bottom = self.scale.percent(value)
            labels.append(f'<span style="bottom:{bottom:.1f}%">{escaped(text)}</span>')
        return "".join(labels)

    def svg(self) -> str:
        lines = self._grid()
        lines += self._band()
        lines += self._roofs()
        lines += self._changes()
        series = self.history.series
        vendor = self.history.vendor
        points = ""
        # first, because what is drawn later lies on top
        if vendor is not None:
            lines += self._line(vendor, GREY)
            points += self._points(vendor, GREY)
        lines += self._line(series, PAGE_BLUE)
        points += self._points(series, PAGE_BLUE)
        # lines stretch with the drawing, points keep their form
        return (
            '<svg viewBox="0 0 100 100" preserveAspectRatio="none" fill="none" '
            f'aria-hidden="true">{lines}</svg><svg>{points}</svg>'
        )

    def _grid(self) -> str:
        stroke = f'stroke="{GREY}" stroke-opacity="0.2"'
        lines = [self._horizontal(value, stroke) for value in round_values(self.scale)]
        return "".join(lines)

    def _horizontal(self, value: float, stroke: str) -> str:
        y = f"{self.y(value):.1f}"
        return f'<line x1="0" x2="100" y1="{y}" y2="{y}" {stroke}/>'

    def _roofs(self) -> str:
        lines: list[str] = []
        for roof in self.history.roofs:
            if not self.scale.covers(roof.value):
                continue
            stroke = 'stroke="currentColor"'
            if not roof.is_measured:
                stroke += ' stroke-dasharray="2 3"'
            lines.append(self._horizontal(roof.value, stroke))
        return "".join(lines)

    def _changes(self) -> str:
        lines: list[str] = []
        for change in self._drawn_changes():
            x = f"{self.x(change.commit):.2f}"
            colour = COLOUR_OF_VERDICT.get(change.verdict, GREY)
            lines.append(
                f'<line x1="{x}" x2="{x}" y1="0" y2="100" stroke="{colour}" '
                'stroke-dasharray="4 3"/>'
            )
        return "".join(lines)

    def _drawn_changes(self) -> list[ChangePoint]:
        """Return one change of each commit and metric within the dates."""
        drawn: dict[tuple[str, str], ChangePoint] = {}
        for change in self.history.changes:
            if self.dates.covers(change.commit.committed_at):
                # the same change may be stored of several tensors or targets
                subject = change.commit.sha, change.series.metric
                drawn.setdefault(subject, change)
        return list(drawn.values())

    def _band(self) -> str:
        band = self.history.series.band
        if not band:
            return ""
        # up along the upper edge, and back along the lower one
        upper = [self._place(point.commit, point.high) for point in band]
        lower = [self._place(point.commit, point.low) for point in reversed(band)]
        outline = " ".join(upper + lower)
        return f'<polygon points="{outline}" fill="{PAGE_BLUE}" fill-opacity="0.2"/>'

    def _line(self, series: Series, colour: str) -> str:
        """Draw the medians of a band, else the values."""
        if series.band:
            medians = [self._place(point.commit, point.median) for point in series.band]
            return _polyline(medians, colour)
        # a failed run breaks the line
        stretches: list[list[str]] = [[]]
        for point in series.points:
            if point.value is None:
                stretches.append([])
            else:
                coordinates = self._place(point.commit, point.value)
                stretches[-1].append(coordinates)
        lines = [_polyline(places, colour) for places in stretches if places]
        return "".join(lines)

    def _points(self, series: Series, colour: str) -> str:
        points = [self._point(series, point, colour) for point in series.points]
        return "".join(points)

    def _point(
        self,
        series: Series,
        point: SeriesPoint,
        colour: str,
    ) -> str:
        x = self.x(point.commit)
        tip = f"<title>{_point_text(series, point, self.zone)}</title>"
        if point.value is None:
            return (
                f'<text x="{x:.2f}%" y="99%" fill="{VERMILLION}" text-anchor="middle">✕{tip}</text>'
            )
        y = self.y(point.value)
        fill = colour
        # a hollow point was measured while the device was slowed down or shared
        if point.degraded_by:
            fill = "none"
        return (
            f'<circle cx="{x:.2f}%" cy="{y:.1f}%" r="2.6" fill="{fill}" stroke="{colour}">'
            f"{tip}</circle>"
        )

    def roof_labels(self) -> str:
        labels: list[str] = []
        for roof in self.history.roofs:
            # an arrow says that the roof lies outside the drawing
            direction = ""
            if roof.value > self.scale.high:
                direction = "↑ "
            elif not self.scale.covers(roof.value):
                direction = "↓ "
            text = f"{direction}{roof.name}"
            # 100 % of what is achievable says nothing
            if roof.value != 1.0:
                text += f" {self.history.metric.format(roof.value)}"
            # below its line, unless that is the end of the plot
            y = self.y(roof.value)
            style = f"top:{y:.1f}%"
            if y > _LOW_PERCENT:
                style += ";transform:translateY(-100%)"
            labels.append(f'<span class="rw-roof" style="{style}">{escaped(text)}</span>')
        return "".join(labels)

    def change_labels(self) -> str:
        labels: list[str] = []
        # more labels than these would cover one another; all keep their lines
        for change in self._drawn_changes()[:_MAX_CHANGE_LABELS]:
            x = self.x(change.commit)
            # towards the middle, away from the edge
            side = f"right:{100 - x:.2f}%"
            if x < 60:
                side = f"left:{x:.2f}%"
            title = _change_title(change)
            label = _change_label(change, self.history)
            labels.append(
                f'<span class="{change.verdict}" style="{side}" title="{title}">{label}</span>'
            )
        return "".join(labels)


def _polyline(places: Sequence[str], colour: str) -> str:
    return f'<polyline points="{" ".join(places)}" stroke="{colour}" stroke-width="1.5"/>'


def _change_label(change: ChangePoint, history: History) -> str:
    mark = VERDICT_MARKS[change.verdict]
    text = f"{mark.symbol} {headline_text(change)}"
    # a drop of the share is explained by the time that rose
    if change.series.metric != history.series.key.metric:
        text += f" {change.series.definition.title}"
    return escaped(shortened(text, length=30))


def _change_title(change: ChangePoint) -> str:
    mark = VERDICT_MARKS[change.verdict]
    commit = _commit_text(change.commit)
    return escaped(f"{mark.word} at {commit}: {change.evidence}")


def _point_text(
    series: Series,
    point: SeriesPoint,
    zone: tzinfo,
) -> str:
    value = outcome_text(point.outcome)
    if point.value is not None:
        value = series.key.definition.format(point.value)
    date = date_written(point.commit.committed_at, zone)
    text = f"{value}, {series.key.implementation}, {date} {_commit_text(point.commit)}"
    if point.degraded_by:
        text += f"; {', '.join(point.degraded_by)}"
    return escaped(text)


def _commit_text(commit: CommitRef) -> str:
    subject = shortened(commit.subject)
    author = shortened(commit.author)
    return f"{commit.short_sha} {subject} by {author}"


def _date_labels(ticks: Sequence[Tick]) -> str:
    labels = [
        f'<span style="left:{tick.percent:.2f}%">{escaped(tick.text)}</span>' for tick in ticks
    ]
    return "".join(labels)


def _alternative(
    history: History,
    dates: DateScale,
    zone: tzinfo,
) -> str:
    """Write what a reader sees, for one who does not see it."""
    points = history.series.points
    values = _values(history.series)
    write = history.metric.format
    since = date_written(dates.start, zone)
    until = date_written(dates.end, zone)
    parts = [
        f"{history.metric.title} of {history.series.key.label}",
        f"{since} to {until}",
        f"{write(values[0])} at first, {write(values[-1])} at last",
    ]
    counts = {
        "change": len(history.changes),
        "failed": len(points) - len(values),
        "throttled": sum(bool(point.degraded_by) for point in points),
    }
    parts += [f"{count} {name}" for name, count in counts.items() if count]
    return escaped("; ".join(parts))
