"""The roofline of some cases: their rates over arithmetic intensity, under named roofs.

Source: Williams, Waterman, Patterson, "Roofline" (CACM 2009).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle

from roofwatch.dashboard.charts.palette import GREEN, GREY, ORANGE, PAGE_BLUE, PURPLE, SKY_BLUE
from roofwatch.dashboard.wording import escaped, rate_text
from roofwatch.model.machine import Ceiling
from roofwatch.model.measurement import CaseRecord, Measurement
from roofwatch.model.metrics import format_ns, metric

_WIDTH = 760
_HEIGHT = 400
_LEFT = 92
"""Where the plot begins, right of the rates."""
_TOP = 14
_END = _WIDTH - 12
"""Where the plot ends at the right."""
_BASE = _HEIGHT - 40
"""Where the plot ends at the bottom."""
_MAX_POINTS_READ = 20
"""Points that a screen reader reads: more would be a table."""
_SYMBOLS = (
    ("●", PAGE_BLUE),
    ("■", ORANGE),
    ("▲", GREEN),
    ("◆", PURPLE),
    ("✚", SKY_BLUE),
)
_ROOM = 3.0
"""Factor of intensity that is drawn on both sides of points and ridges."""

STYLE = """
.rw-roofline {width: 100%; max-width: 60rem; height: auto; font-size: 12px; fill: currentColor}
"""


@dataclass(frozen=True)
class RooflinePoint:
    """A measured case with arithmetic."""

    case: CaseRecord
    measurement: Measurement
    time_ns: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.case.flop_count / self.case.memory_bytes

    @property
    def flop_per_s(self) -> float:
        return self.case.flop_count / self.time_ns * 1e9

    @property
    def title(self) -> str:
        measurement = self.measurement
        rate = rate_text("compute", self.flop_per_s)
        time = format_ns(self.time_ns)
        text = f"{self.case.case_id} {measurement.implementation}: {rate} in {time}"
        if measurement.utilisation is not None:
            share = metric("utilisation").format(measurement.utilisation)
            text += f", {share} of the {measurement.bound} roof"
        return text


@dataclass(frozen=True)
class _LogRange:
    """The range of an axis on which factors have equal length."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """Return the place of a value: 0 at the low end, 1 at the high end."""
        log_length = math.log(self.high / self.low)
        return math.log(value / self.low) / log_length

    def powers_of_ten(self) -> list[float]:
        first = math.ceil(math.log10(self.low))
        last = math.floor(math.log10(self.high))
        return [10.0**exponent for exponent in range(first, last + 1)]


def _range_around(values: Sequence[float]) -> _LogRange:
    return _LogRange(
        low=min(values) / _ROOM,
        high=max(values) * _ROOM,
    )


def points_of(
    cases: Iterable[CaseRecord],
    measurements: Iterable[Measurement],
) -> list[RooflinePoint]:
    """Return the measured cases that compute and move bytes."""
    # a copy computes nothing and has no intensity
    computing = [case for case in cases if case.flop_count and case.memory_bytes]
    placed = {case.case_id: case for case in computing}
    points: list[RooflinePoint] = []
    for measurement in measurements:
        case = placed.get(measurement.case_id)
        if case is None:
            continue
        # a measurement that failed has no time
        time_ns = measurement.median_ns
        if time_ns:
            points.append(RooflinePoint(case, measurement, time_ns))
    return points


def roofline_svg(points: Sequence[RooflinePoint], ceilings: Sequence[Ceiling]) -> str:
    """Draw both axes logarithmic; measured roofs are named lines, datasheets' are dotted.

    Args:
        points: At least one.
        ceilings: Of the device, of any dtype.
    """
    return _Roofline(points, ceilings).svg()


class _Roofline:
    """A drawing in units of its view box, which count from the top left corner."""

    def __init__(self, points: Sequence[RooflinePoint], ceilings: Sequence[Ceiling]) -> None:
        self.points = points
        # a symbol for each colour: the implementations differ without it too
        names = sorted({point.measurement.implementation for point in points})
        self.symbols = dict(zip(names, cycle(_SYMBOLS), strict=False))
        self.slopes = [ceiling for ceiling in ceilings if ceiling.resource == "memory"]
        dtypes = {point.case.dtype for point in points}
        flats = [ceiling for ceiling in ceilings if ceiling.resource == "compute"]
        # the roofs of other dtypes do not limit these cases
        self.flats = [flat for flat in flats if flat.dtype in dtypes] or flats
        intensities = [point.intensity for point in points]
        rates = [point.flop_per_s for point in points]
        for flat in self.flats:
            rates.append(flat.per_s)
            # the ridges, where a flat roof meets the slopes
            intensities += [flat.per_s / slope.per_s for slope in self.slopes]
        # room for the slopes left of the points, and for the flat roofs right of the ridges
        self.x_range = _range_around(intensities)
        self.y_range = _range_around(rates)

    def x(self, intensity: float) -> float:
        width = _END - _LEFT
        return _LEFT + self.x_range.share(intensity) * width

    def y(self, rate: float) -> float:
        height = _BASE - _TOP
        # SVG counts from the top
        return _BASE - self.y_range.share(rate) * height

    def svg(self) -> str:
        titles = [point.title for point in self.points[:_MAX_POINTS_READ]]
        alternative = escaped("; ".join(titles))
        return (
            '<div class="rw-plot" style="border:0"><svg class="rw-roofline" role="img" '
            f'style="position:static" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'aria-label="Roofline: {alternative}">'
            f"{self._axes()}{self._roofs()}{self._marks()}"
            f"</svg></div>{self._legend()}"
        )

    def _axes(self) -> str:
        parts = [f'<path d="M{_LEFT} {_TOP}V{_BASE}H{_END}" fill="none" stroke="{GREY}"/>']
        title = "arithmetic intensity (FLOP per byte)"
        middle = (_LEFT + _END) / 2
        parts.append(_text(middle, _HEIGHT - 4, "middle", title))
        # below the plot
        for intensity in self.x_range.powers_of_ten():
            x = self.x(intensity)
            parts.append(_grid_line(f"M{x:.1f} {_TOP}V{_BASE}"))
            parts.append(_text(x, _BASE + 16, "middle", f"{intensity:g}"))
        # left of the plot
        for rate in self.y_range.powers_of_ten():
            y = self.y(rate)
            parts.append(_grid_line(f"M{_LEFT} {y:.1f}H{_END}"))
            label = rate_text("compute", rate)
            parts.append(_text(_LEFT - 6, y + 4, "end", label))
        return "".join(parts)

    def _roofs(self) -> str:
        roofs = [self._slope(slope) for slope in self.slopes]
        roofs += [self._flat(flat) for flat in self.flats]
        return "".join(roofs)

    def _slope(self, slope: Ceiling) -> str:
        """Draw a memory roof up to the highest compute roof of the same source."""
        # a measured slope ends at a measured roof: the datasheet's would promise more
        comparable = _rates_of(self.flats, slope.source)
        highest_rate = self.y_range.high
        if comparable:
            highest_rate = min(highest_rate, max(comparable))
        # from where the slope enters the drawing
        start = max(self.x_range.low, self.y_range.low / slope.per_s)
        end = min(self.x_range.high, highest_rate / slope.per_s)
        x1 = self.x(start)
        y1 = self.y(start * slope.per_s)
        x2 = self.x(end)
        y2 = self.y(end * slope.per_s)
        rate = rate_text("memory", slope.per_s)
        name = f"{slope.level or 'memory'} {rate}"
        line = _roof_line(slope, name, f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}")
        label, offset = _roof_label(slope, name)
        # the name runs along the slope
        angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
        turn = f"translate({x1 + 8:.1f} {y1 - 8:.1f}) rotate({angle:.1f})"
        return f'{line}<text transform="{turn}" dy="{offset}">{escaped(label)}</text>'

    def _flat(self, flat: Ceiling) -> str:
        """Draw a compute roof from the fastest memory of the same source on."""
        comparable = _rates_of(self.slopes, flat.source)
        start = self.x_range.low
        if comparable:
            ridge = flat.per_s / max(comparable)
            start = max(start, ridge)
        x = self.x(start)
        y = self.y(flat.per_s)
        rate = rate_text("compute", flat.per_s)
        name = f"{flat.dtype or 'compute'} {rate}"
        line = _roof_line(flat, name, f"M{x:.1f} {y:.1f}L{_END:.1f} {y:.1f}")
        label, offset = _roof_label(flat, name)
        return line + _text(_END - 4, y + offset, "end", label)

    def _marks(self) -> str:
        marks: list[str] = []
        for point in self.points:
            implementation = point.measurement.implementation
            symbol, colour = self.symbols[implementation]
            x = self.x(point.intensity)
            # the base of a letter lies below its middle
            y = self.y(point.flop_per_s) + 5
            title = escaped(point.title)
            marks.append(
                f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="15" '
                f'text-anchor="middle">{symbol}<title>{title}</title></text>'
            )
        return "".join(marks)

    def _legend(self) -> str:
        names = [
            f'<span style="color:{colour}">{symbol}</span> {escaped(name)}'
            for name, (symbol, colour) in self.symbols.items()
        ]
        return f'<p class="rw-soft">{" &nbsp; ".join(names)}</p>'


def _rates_of(ceilings: Sequence[Ceiling], source: str) -> list[float]:
    """Return the rates that were found the same way: measured, or read in a datasheet."""
    return [ceiling.per_s for ceiling in ceilings if ceiling.source == source]


def _grid_line(path: str) -> str:
    return f'<path d="{path}" stroke="{GREY}" stroke-opacity="0.2"/>'


def _text(
    x: float,
    y: float,
    anchor: str,
    text: str,
) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escaped(text)}</text>'


def _roof_line(ceiling: Ceiling, name: str, path: str) -> str:
    stroke = 'stroke="currentColor"'
    if ceiling.source == "datasheet":
        stroke += ' stroke-dasharray="2 4"'
    title = escaped(f"{name}, {ceiling.source}")
    return f'<path d="{path}" fill="none" {stroke}><title>{title}</title></path>'


def _roof_label(ceiling: Ceiling, name: str) -> tuple[str, int]:
    """Return the label of a roof, and how far below its line it stands."""
    # a peak's name stands above its line, a measured one's below: the two may be close
    if ceiling.source == "datasheet":
        return f"peak {name}", -4
    return name, 13
