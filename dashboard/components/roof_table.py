"""The table of cases by runner: share of the roof, ratio to the vendor's library, and its shape."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from roofwatch.ci.messages import count_of
from roofwatch.collector.device.datasheets import datasheet_ceilings
from roofwatch.dashboard.charts.cells import bullet_html, sparkline_html
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.wording import (
    current_attribute,
    device_text,
    escaped,
    outcome_text,
    shortened,
)
from roofwatch.model.history import SeriesKey
from roofwatch.model.library import is_library
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import RATIO_TO_REFERENCE, metric
from roofwatch.model.stored_results import FleetRun, RoofCell

ROWS_AT_FIRST = 100


@dataclass(frozen=True)
class RoofRow:
    """A cell with what is drawn of its roofs."""

    cell: RoofCell
    peak_share: float | None
    """Peak of the datasheet over the achievable rate; None if either is unknown."""

    @property
    def key(self) -> SeriesKey:
        return self.cell.key

    @property
    def rank(self) -> tuple[object, ...]:
        """Return the sort key: what fails first, then the farthest from its roof, then the slowest
        beside the library, then the rest by name.
        """
        ratio = self.cell.ratio_to_reference
        share = self.cell.utilisation
        is_ok = self.cell.outcome is Outcome.OK
        return is_ok, share is None, share or 0.0, -(ratio or 0.0), self.key


def roof_rows(cells: Iterable[RoofCell], newest_runs: Sequence[FleetRun]) -> list[RoofRow]:
    """Return the rows of what a project wrote, worst first; libraries' only where nothing else was
    measured.

    Args:
        cells: Of any implementation.
        newest_runs: With the ceilings of each runner class.
    """
    every_cell = list(cells)
    written = {_place(cell.key) for cell in every_cell if not is_library(cell.key.implementation)}
    runs = {run.runner_class: run for run in reversed(newest_runs)}
    rows: list[RoofRow] = []
    for cell in every_cell:
        if is_library(cell.key.implementation) and _place(cell.key) in written:
            continue
        run = runs.get(cell.key.runner_class)
        rows.append(RoofRow(cell, None if run is None else peak_share(cell, run)))
    return sorted(rows, key=lambda row: row.rank)


def _place(key: SeriesKey) -> tuple[str, str]:
    return key.case_id, key.runner_class


def peak_share(cell: RoofCell, run: FleetRun) -> float | None:
    """Return the datasheet's rate over the measured one, of what limits a cell."""
    dtype = dtype_of(cell.key)
    published = datasheet_ceilings(run.device_name, [dtype])
    measured = [ceiling for ceiling in run.ceilings if ceiling.source == "measured"]
    for peak in published:
        if peak.resource != cell.bound:
            continue
        for ceiling in measured:
            if (ceiling.resource, ceiling.level, ceiling.dtype) == (
                peak.resource,
                peak.level,
                peak.dtype,
            ):
                return peak.per_s / ceiling.per_s
    return None


def dtype_of(key: SeriesKey) -> str:
    """Return the dtype in a case id; empty for cases of other tools."""
    parts = key.case_id.split("/")
    if len(parts) > 2:
        return parts[2]
    return ""


def table_html(
    view: View,
    rows: Sequence[RoofRow],
    chosen: RoofRow,
    *,
    is_whole: bool,
    tab: str,
    tokens: Mapping[str, float | None],
) -> str:
    """Write one line per row, which leads to its history. Text from records is escaped.

    Args:
        view: The view.
        rows: Worst first.
        chosen: The row whose history is shown.
        is_whole: Write all rows.
        tab: The tab that the links keep.
        tokens: Tokens of a step, by case; a workload shows its rate.
    """
    drawn = list(rows)
    if not is_whole:
        drawn = drawn[:ROWS_AT_FIRST]
    if chosen not in drawn:
        drawn.append(chosen)
    body = "".join(
        _row_html(view, row, is_chosen=row is chosen, tab=tab, tokens=tokens.get(row.key.case_id))
        for row in drawn
    )
    further = ""
    if len(drawn) < len(rows):
        label = f"Show all {count_of(len(rows), 'row')}"
        further = view.anchor(label, view.name, rows="all", **choices_of(chosen.key))
    return (
        '<div class="rw-scroll rw-cells"><table class="rw-table">'
        "<colgroup><col><col><col><col><col><col><col></colgroup>"
        "<thead><tr><th>Case</th><th>Runner</th>"
        '<th colspan="2" title="Share of the measured ceiling; the peak is dotted">Of achievable'
        "</th>"
        '<th class="number" title="Time over the time of the vendor\'s library in the same run: '
        'below 1 is faster">vs library</th>'
        f'<th class="number">Newest</th><th>{escaped(view.range.title)}</th>'
        f"</tr></thead><tbody>{body}</tbody></table></div>{further}"
    )


def choices_of(key: SeriesKey) -> dict[str, str]:
    """Return the parameters of the address that choose a row."""
    return {
        "kernel": key.kernel,
        "case": key.case_id,
        "implementation": key.implementation,
        "runner": key.runner_class,
        "metric": key.metric,
    }


def _row_html(view: View, row: RoofRow, *, is_chosen: bool, tab: str, tokens: float | None) -> str:
    key, cell = row.key, row.cell
    case = key.case_id.removeprefix(f"{key.kernel}/")
    name = f"<b>{escaped(shortened(key.kernel, length=40))}</b> "
    if case != key.kernel:
        name += f'<span class="rw-soft">{escaped(shortened(case, length=60))}</span>'
    title = escaped(f"{key.case_id} {key.implementation}")
    choices = choices_of(key)
    if tab:
        choices["tab"] = tab
    link = view.anchor(name, view.name, **choices)
    share = newest = ""
    values: Sequence[float | None] = cell.values
    if cell.utilisation is not None:
        share = f"{cell.utilisation:.0%}"
        values = cell.utilisations
    if cell.outcome is not Outcome.OK:
        newest = f'<span class="rw-slower">{escaped(outcome_text(cell.outcome))}</span>'
    elif cell.values and tokens:
        newest = escaped(metric("tokens_per_s").format(tokens / cell.values[-1] * 1e9))
    elif cell.values:
        newest = escaped(key.definition.format(cell.values[-1]))
    mark = ' <span title="throttled or shared">○</span>' if cell.is_degraded else ""
    current = current_attribute(is_current=is_chosen)
    return (
        f'<tr{current}><td class="rw-cut" title="{title}">{link}</td>'
        f'<td class="rw-cut" title="{escaped(key.runner_class)}">'
        f"{escaped(device_text(key.runner_class))}</td>"
        f'<td class="number">{share}{mark}</td>'
        f"<td>{bullet_html(cell.utilisation, row.peak_share)}</td>"
        f'<td class="number">{_ratio_html(cell.ratio_to_reference)}</td>'
        f'<td class="number">{newest}</td>'
        f"<td>{sparkline_html(values, cell.dates)}</td></tr>"
    )


def _ratio_html(ratio: float | None) -> str:
    if ratio is None:
        return ""
    text = escape(metric(RATIO_TO_REFERENCE).format(ratio))
    # both marks also differ without colour
    if ratio > 1:
        return f'<span class="rw-slower">{text} ▴</span>'
    return f'<span class="rw-faster">{text} ▾</span>'


def summary_html(rows: Sequence[RoofRow], classes: Mapping[str, str]) -> str:
    """Write the median share of each runner class on one line; empty without roofs.

    Args:
        rows: Of all runner classes.
        classes: Names of devices, by runner class.
    """
    parts: list[str] = []
    for runner_class, name in classes.items():
        shares = sorted(
            row.cell.utilisation
            for row in rows
            if row.key.runner_class == runner_class and row.cell.utilisation is not None
        )
        if shares:
            parts.append(f"<b>{escaped(name)}</b> {shares[len(shares) // 2]:.0%}")
    if not parts:
        return ""
    return f'<p class="rw-line">Median case, of achievable: {" · ".join(parts)}</p>'
