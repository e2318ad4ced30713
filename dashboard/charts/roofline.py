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

_WIDTH, _HEIGHT = 760, 400
_LEFT, _TOP = 92, 14
_END, _BASE = _WIDTH - 12, _HEIGHT - 40
"""Where the plot ends at the right and at the bottom."""
_SYMBOLS = (("●", PAGE_BLUE), ("■", ORANGE), ("▲", GREEN), ("◆", PURPLE), ("✚", SKY_BLUE))
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
        text = (
            f"{self.case.case_id} {measurement.implementation}: {rate} in {format_ns(self.time_ns)}"
        )
        if measurement.utilisation is not None:
            share = metric("utilisation").format(measurement.utilisation)
            text += f", {share} of the {measurement.bound} roof"
        return text


def points_of(
    cases: Iterable[CaseRecord], measurements: Iterable[Measurement]
) -> list[RooflinePoint]:
    """Return the measured cases that compute and move bytes."""
    # a copy computes nothing and has no intensity
    placed = {case.case_id: case for case in cases if case.flop_count and case.memory_bytes}
    return [
        RooflinePoint(placed[measurement.case_id], measurement, measurement.median_ns)
        for measurement in measurements
        if measurement.case_id in placed and measurement.median_ns
    ]


def roofline_svg(points: Sequence[RooflinePoint], ceilings: Sequence[Ceiling]) -> str:
    """Draw both axes logarithmic; measured roofs are named lines, datasheets' are dotted.

    Args:
        points: At least one.
        ceilings: Of the device, of any dtype.
    """
    return _Roofline(points, ceilings).svg()


class _Roofline:
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
        rates = [point.flop_per_s for point in points] + [flat.per_s for flat in self.flats]
        for flat in self.flats:
            intensities += [flat.per_s / slope.per_s for slope in self.slopes]
        # room for the slopes left of the points, and for the flat roofs right of the ridges
        self.x_range = _padded(intensities, _ROOM)
        self.y_range = _padded(rates, _ROOM)

    def x(self, intensity: float) -> float:
        return _LEFT + _share(intensity, self.x_range) * (_END - _LEFT)

    def y(self, rate: float) -> float:
        return _BASE - _share(rate, self.y_range) * (_BASE - _TOP)

    def svg(self) -> str:
        # a screen reader reads the points; more than twenty would be a table
        alternative = escaped("; ".join(point.title for point in self.points[:20]))
        return (
            f'<div class="rw-plot" style="border:0"><svg class="rw-roofline" role="img" '
            f'style="position:static" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'aria-label="Roofline: {alternative}">{self._axes()}{self._roofs()}{self._marks()}'
            f"</svg></div>{self._legend()}"
        )

    def _axes(self) -> str:
        middle = (_LEFT + _END) / 2
        ticks = [
            *map(self._intensity_tick, _decades(self.x_range)),
            *map(self._rate_tick, _decades(self.y_range)),
        ]
        return (
            f'<path d="M{_LEFT} {_TOP}V{_BASE}H{_END}" fill="none" stroke="{GREY}"/>'
            f'<text x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">'
            f"arithmetic intensity (FLOP per byte)</text>{''.join(ticks)}"
        )

    def _intensity_tick(self, intensity: float) -> str:
        x = f"{self.x(intensity):.1f}"
        return (
            f'<path d="M{x} {_TOP}V{_BASE}" stroke="{GREY}" stroke-opacity="0.2"/>'
            f'<text x="{x}" y="{_BASE + 16}" text-anchor="middle">{intensity:g}</text>'
        )

    def _rate_tick(self, rate: float) -> str:
        y = self.y(rate)
        text = escaped(rate_text("compute", rate))
        return (
            f'<path d="M{_LEFT} {y:.1f}H{_END}" stroke="{GREY}" stroke-opacity="0.2"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )

    def _roofs(self) -> str:
        return "".join([*map(self._slope, self.slopes), *map(self._flat, self.flats)])

    def _slope(self, slope: Ceiling) -> str:
        """Draw a memory roof up to the highest compute roof of the same source."""
        # a measured slope ends at a measured roof: the datasheet's would promise more
        comparable = [flat.per_s for flat in self.flats if flat.source == slope.source]
        top = min(max(comparable, default=self.y_range[1]), self.y_range[1])
        # from where the slope enters the drawing
        start = max(self.x_range[0], self.y_range[0] / slope.per_s)
        end = min(top / slope.per_s, self.x_range[1])
        places = (
            self.x(start),
            self.y(start * slope.per_s),
            self.x(end),
            self.y(end * slope.per_s),
        )
        name = f"{slope.level or 'memory'} {rate_text('memory', slope.per_s)}"
        return self._line(
            slope,
            places,
            name,
            is_at_start=True,
        )

    def _flat(self, flat: Ceiling) -> str:
        """Draw a compute roof from the fastest memory of the same source on."""
        comparable = [slope.per_s for slope in self.slopes if slope.source == flat.source]
        start = self.x_range[0]
        if comparable:
            start = max(start, flat.per_s / max(comparable))
        y = self.y(flat.per_s)
        places = (self.x(start), y, float(_END), y)
        name = f"{flat.dtype or 'compute'} {rate_text('compute', flat.per_s)}"
        return self._line(
            flat,
            places,
            name,
            is_at_start=False,
        )

    def _line(
        self,
        ceiling: Ceiling,
        places: tuple[float, float, float, float],
        name: str,
        *,
        is_at_start: bool,
    ) -> str:
        x1, y1, x2, y2 = places
        # names of slopes run along them; a peak's stands above its line, a measured one's below
        text, dash, offset = name, "", 13
        if ceiling.source == "datasheet":
            text, dash, offset = f"peak {name}", 'stroke-dasharray="2 4"', -4
        line = (
            f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" fill="none" stroke="currentColor" '
            f"{dash}><title>{escaped(name)}, {ceiling.source}</title></path>"
        )
        if is_at_start:
            angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
            return line + (
                f'<text transform="translate({x1 + 8:.1f} {y1 - 8:.1f}) rotate({angle:.1f})" '
                f'dy="{offset}">{escaped(text)}</text>'
            )
        return line + (
            f'<text x="{x2 - 4:.1f}" y="{y2 + offset:.1f}" text-anchor="end">{escaped(text)}</text>'
        )

    def _marks(self) -> str:
        marks: list[str] = []
        for point in self.points:
            symbol, colour = self.symbols[point.measurement.implementation]
            x, y = self.x(point.intensity), self.y(point.flop_per_s) + 5
            marks.append(
                f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="15" '
                f'text-anchor="middle">{symbol}<title>{escaped(point.title)}</title></text>'
            )
        return "".join(marks)

    def _legend(self) -> str:
        names = [
            f'<span style="color:{colour}">{symbol}</span> {escaped(name)}'
            for name, (symbol, colour) in self.symbols.items()
        ]
        return f'<p class="rw-soft">{" &nbsp; ".join(names)}</p>'


def _padded(values: Sequence[float], room: float) -> tuple[float, float]:
    return min(values) / room, max(values) * room


def _share(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return math.log(value / low) / math.log(high / low)


def _decades(limits: tuple[float, float]) -> list[float]:
    low, high = limits
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**exponent for exponent in range(first, last + 1)]
