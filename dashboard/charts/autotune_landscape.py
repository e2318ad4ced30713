"""The landscape of what the autotuner tried for one function: times over the two parameters that matter most. Pure.

A table with coloured cells, as the heat map of the Overview.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from roofwatch.collector.record.measurement import AutotuneTiming, Autotuning
from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard.charts.autotune import NOT_RUN
from roofwatch.dashboard.charts.heat_map import blended, palette_of
from roofwatch.dashboard.wording import shortened

_MOST_VALUES = 16
"""Of a parameter that has a row or a column for each."""
_CHOSEN, _FAILED = "★", "✕"

Value = int | float


def landscape_html(tuned: Autotuning, *, is_dark: bool = False) -> str | None:
    """A cell for each pair of values of two parameters, with the best time that the others allow; of that configuration
    a cell's title tells all. The darker, the nearer to the fastest of all, on a logarithmic scale.

    The two are those whose values tell most of the time: whose means of its logarithm differ most between their values,
    which is the main effect in an analysis of variance.

    Args:
        tuned: With timings.
        is_dark: The page is.

    Returns:
        None where fewer than two numbers differ between the configurations that ran.
    """
    timed = [one for one in tuned.timings if one.time_ns is not None]
    names = sorted(_numbers(timed), key=lambda name: (-_main_effect(name, timed), name))[:2]
    if len(names) < 2:
        return None
    across, down = names
    cells = _cells(tuned, down, across)
    rows, columns = (sorted({place[at] for place in cells}) for at in (0, 1))
    best = {place: min(map(_time_ns, tried)) for place, tried in cells.items()}
    fastest_ns, slowest_ns = min(best.values()), max(time_ns for time_ns in best.values() if time_ns < math.inf)
    palette = palette_of(is_dark=is_dark)

    def cell_html(place: tuple[Value, Value]) -> str:
        if place not in cells:
            return "<td></td>"
        title = escape("\n".join(_told(cells[place], fastest_ns)))
        if best[place] == math.inf:
            return f'<td title="{title}">{_FAILED}</td>'
        depth = 1 - math.log(best[place] / fastest_ns) / (math.log(slowest_ns / fastest_ns) or 1.0)
        colour = blended(palette.unchanged, palette.faster, depth)
        mark = f"{_CHOSEN} " if any(one.configuration == tuned.chosen for one in cells[place]) else ""
        return f'<td style="background:{colour}" title="{title}">{mark}{format_ns(best[place])}</td>'

    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{row}</th>{"".join(cell_html((row, column)) for column in columns)}</tr>' for row in rows
    )
    corner = f"{escape(shortened(down, length=40))} ↓ {escape(shortened(across, length=40))} →"
    return (
        f'<div class="rw-scroll" tabindex="0"><table class="rw-heat" style="--rw-ink:{palette.ink}">'
        f'<thead><tr><th scope="col">{corner}</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _numbers(timed: Sequence[AutotuneTiming]) -> list[str]:
    """Parameters that are a number in all of these, and not the same one."""
    names = dict.fromkeys(name for one in timed for name in one.configuration)
    found = []
    for name in names:
        values = [one.configuration.get(name) for one in timed]
        if all(_is_number(value) for value in values) and 1 < len(set(values)) <= _MOST_VALUES:
            found.append(name)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _main_effect(name: str, timed: Sequence[AutotuneTiming]) -> float:
    """Sum of squares between the values of a parameter, of the logarithm of the time."""
    by_value: dict[object, list[float]] = {}
    for one in timed:
        by_value.setdefault(one.configuration[name], []).append(math.log(_time_ns(one)))
    mean = sum(map(sum, by_value.values())) / len(timed)
    return sum(len(own) * (sum(own) / len(own) - mean) ** 2 for own in by_value.values())


def _cells(tuned: Autotuning, down: str, across: str) -> Mapping[tuple[Value, Value], list[AutotuneTiming]]:
    """By both values; what failed has its place too, where it says them."""
    found: dict[tuple[Value, Value], list[AutotuneTiming]] = {}
    for one in tuned.timings:
        row, column = one.configuration.get(down), one.configuration.get(across)
        if isinstance(row, int | float) and isinstance(column, int | float):
            found.setdefault((row, column), []).append(one)
    return found


def _time_ns(one: AutotuneTiming) -> float:
    """Without end where it could not run."""
    return math.inf if one.time_ns is None else one.time_ns


def _told(tried: Sequence[AutotuneTiming], fastest_ns: float) -> list[str]:
    """Of the fastest in a cell, or of one that failed where all did: its time, and the whole of its configuration."""
    best = min(tried, key=_time_ns)
    failed_count = sum(one.time_ns is None for one in tried)
    configuration = [shortened(f"{name}={value}") for name, value in best.configuration.items()]
    if best.time_ns is None:
        return [NOT_RUN, *configuration]
    told = [f"{format_ns(best.time_ns)}, {best.time_ns / fastest_ns:.2f}× the fastest", *configuration]
    if len(tried) - failed_count > 1:
        told.append(f"the best of {len(tried) - failed_count}")
    return [*told, f"{failed_count} {NOT_RUN}"] if failed_count else told
