"""What the autotuner tried for one function: times over two parameters."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from roofwatch.collector.record.measurement import AutotuneTiming, Autotuning
from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard.charts.style import BLUE, lay_out
from roofwatch.dashboard.wording import shortened

_MAX_VALUES = 16
"""Maximum values of a parameter on an axis."""
_NOT_RUN = "could not run"

Number = int | float


def landscape_figure(tuned: Autotuning) -> go.Figure | None:
    """Draw the best time for each pair of values of two parameters, coloured by its logarithm.

    The parameters are the two with the largest main effect, as in an analysis of variance. None if fewer than two
    numeric parameters vary.
    """
    timed = [one for one in tuned.timings if one.time_ns is not None]
    names = sorted(_numbers(timed), key=lambda name: (-_main_effect(name, timed), name))[:2]
    if len(names) < 2:
        return None
    across, down = names
    cells: dict[tuple[Number, Number], list[AutotuneTiming]] = {}
    for one in tuned.timings:
        row, column = one.configuration.get(down), one.configuration.get(across)
        if isinstance(row, int | float) and isinstance(column, int | float):
            cells.setdefault((row, column), []).append(one)
    best = {at: min(map(_time_ns, tried)) for at, tried in cells.items()}
    fastest_ns, slowest_ns = min(best.values()), max(time_ns for time_ns in best.values() if time_ns < math.inf)
    rows, columns = (sorted({at[side] for at in cells}) for side in (0, 1))
    places = [[(row, column) for column in columns] for row in rows]
    figure = go.Figure(
        go.Heatmap(
            x=[str(column) for column in columns],
            y=[str(row) for row in rows],
            z=[
                [math.log(min(best[at], slowest_ns) / fastest_ns) if at in best else None for at in line]
                for line in places
            ],
            text=[[_cell_text(cells.get(at, []), tuned.chosen) for at in line] for line in places],
            hovertext=[[_cell_hover(cells.get(at, []), fastest_ns) for at in line] for line in places],
            texttemplate="%{text}",
            colorscale=[[0, BLUE], [1, "#D9E9F3"]],
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    return lay_out(
        figure,
        height=140 + 36 * len(rows),
        xaxis={"title": escape(shortened(across, length=40)), "type": "category"},
        yaxis={"title": escape(shortened(down, length=40)), "type": "category", "autorange": "reversed"},
    )


def _time_ns(one: AutotuneTiming) -> float:
    """Return the time, or infinity for a failed configuration."""
    return math.inf if one.time_ns is None else one.time_ns


def _numbers(timed: Sequence[AutotuneTiming]) -> list[str]:
    """Return parameters that are numeric in all configurations and vary."""
    found = []
    for name in dict.fromkeys(name for one in timed for name in one.configuration):
        values = [one.configuration.get(name) for one in timed]
        are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        if are_numbers and 1 < len(set(values)) <= _MAX_VALUES:
            found.append(name)
    return found


def _main_effect(name: str, timed: Sequence[AutotuneTiming]) -> float:
    """Return the sum of squares of the log time between the values of a parameter."""
    by_value: dict[object, list[float]] = {}
    for one in timed:
        by_value.setdefault(one.configuration[name], []).append(math.log(_time_ns(one)))
    mean = sum(map(sum, by_value.values())) / len(timed)
    return sum(len(own) * (sum(own) / len(own) - mean) ** 2 for own in by_value.values())


def _cell_text(tried: Sequence[AutotuneTiming], chosen: Mapping[str, object]) -> str:
    if not tried:
        return ""
    best_ns = min(map(_time_ns, tried))
    if best_ns == math.inf:
        return "✕"
    return f"{'★ ' if any(one.configuration == chosen for one in tried) else ''}{format_ns(best_ns)}"


def _cell_hover(tried: Sequence[AutotuneTiming], fastest_ns: float) -> str:
    """Describe the fastest configuration of a cell, or a failed one if all failed."""
    if not tried:
        return ""
    best = min(tried, key=_time_ns)
    failed_count = sum(one.time_ns is None for one in tried)
    told = [shortened(f"{name}={value}") for name, value in best.configuration.items()]
    if best.time_ns is None:
        return escape(_NOT_RUN) + "".join(f"<br>{escape(one)}" for one in told)
    told.insert(0, f"{format_ns(best.time_ns)}, {best.time_ns / fastest_ns:.2f}× the fastest")
    if len(tried) - failed_count > 1:
        told.append(f"the best of {len(tried) - failed_count}")
    if failed_count:
        told.append(f"{failed_count} {_NOT_RUN}")
    return "<br>".join(map(escape, told))
