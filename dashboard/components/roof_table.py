"""The table of cases by runner: share of the roof, ratio to the vendor's library, and its shape."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from roofwatch.ci.history.commit_rows import cost_of
from roofwatch.ci.messages import count_of
from roofwatch.collector.device.datasheets import datasheet_ceilings
from roofwatch.dashboard.case_labels import case_labels
from roofwatch.dashboard.charts.cells import bullet_html, sparkline_html
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import HtmlColumn, html_table
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    current_attribute,
    device_text,
    escaped,
    headline_text,
    outcome_text,
    shortened,
)
from roofwatch.model.history import ChangePoint, Regression, SeriesKey
from roofwatch.model.library import is_library
from roofwatch.model.machine import Ceiling, Outcome
from roofwatch.model.metrics import RATIO_TO_REFERENCE, metric
from roofwatch.model.stored_results import FleetRun, RoofCell
from roofwatch.model.verdict import Verdict

ROWS_AT_FIRST = 100


@dataclass(frozen=True)
class RoofRow:
    """A cell with what is drawn of its roofs."""

    cell: RoofCell
    peak_share: float | None
    """Peak of the datasheet over the achievable rate; None if either is unknown."""
    worst_change: ChangePoint | None = None
    """The worst open slowdown of the case; None without one."""

    @property
    def key(self) -> SeriesKey:
        return self.cell.key

    @property
    def rank(self) -> tuple[object, ...]:
        """Return the sort key: what fails first, then the farthest from its roof, then the slowest
        beside the library, then what became slower, then the rest by name.
        """
        # a case without a library counts as equal
        ratio = self.cell.ratio_to_reference or 0.0
        share = self.cell.utilisation
        cost = 0.0
        if self.worst_change is not None:
            cost = cost_of(self.worst_change)
        return (
            self.cell.outcome is Outcome.OK,
            share is None,
            share or 0.0,
            -ratio,
            -cost,
            self.key,
        )


def roof_rows(
    cells: Iterable[RoofCell],
    newest_runs: Sequence[FleetRun],
    unsettled: Iterable[Regression],
) -> list[RoofRow]:
    """Return the rows of what a project wrote, worst first; libraries' only where nothing else was
    measured.

    Args:
        cells: Of any implementation.
        newest_runs: With the ceilings of each runner class.
        unsettled: Regressions that nobody settled.
    """
    changes = _worst_changes(unsettled)
    every_cell = list(cells)
    written: set[tuple[str, str]] = set()
    for cell in every_cell:
        if not is_library(cell.key.implementation):
            written.add(_place(cell.key))
    runs = {run.runner_class: run for run in reversed(newest_runs)}
    rows: list[RoofRow] = []
    for cell in every_cell:
        if is_library(cell.key.implementation) and _place(cell.key) in written:
            continue
        run = runs.get(cell.key.runner_class)
        peak = None
        if run is not None:
            peak = peak_share(cell, run)
        change = changes.get(cell.key)
        rows.append(RoofRow(cell, peak, change))
    return sorted(rows, key=lambda row: row.rank)


def _worst_changes(regressions: Iterable[Regression]) -> dict[SeriesKey, ChangePoint]:
    """Return the worst slowdown of each series."""
    worst: dict[SeriesKey, ChangePoint] = {}
    for regression in regressions:
        for change in regression.change_points:
            previous = worst.get(change.series)
            # what became faster is no reason to look
            if change.verdict is not Verdict.REGRESSED:
                continue
            if previous is None or cost_of(change) > cost_of(previous):
                worst[change.series] = change
    return worst


def _place(key: SeriesKey) -> tuple[str, str]:
    return key.case_id, key.runner_class


def peak_share(cell: RoofCell, run: FleetRun) -> float | None:
    """Return the datasheet's rate over the measured one, of what limits a cell."""
    dtype = dtype_of(cell.key)
    published = datasheet_ceilings(run.device_name, [dtype])
    # at the level of memory or of the dtype that limits the case
    peaks = {_kind_of(peak): peak.per_s for peak in published if peak.resource == cell.bound}
    for ceiling in run.ceilings:
        kind = _kind_of(ceiling)
        if ceiling.source == "measured" and kind in peaks:
            return peaks[kind] / ceiling.per_s
    return None


def _kind_of(ceiling: Ceiling) -> tuple[str | None, ...]:
    return ceiling.resource, ceiling.level, ceiling.dtype


def fastest_library(key: SeriesKey, cells: Iterable[RoofCell]) -> SeriesKey | None:
    """Return the fastest other library of the same case, runner and metric."""
    libraries: list[RoofCell] = []
    for cell in cells:
        implementation = cell.key.implementation
        if not cell.values or not is_library(implementation):
            continue
        is_same_case = cell.key == replace(key, implementation=implementation)
        if is_same_case and cell.key != key:
            libraries.append(cell)
    fastest = min(libraries, key=lambda cell: cell.values[-1], default=None)
    if fastest is None:
        return None
    return fastest.key


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
    # an address may choose a row that is not among the worst
    if chosen not in drawn:
        drawn.append(chosen)
    further = ""
    if len(drawn) < len(rows):
        label = f"Show all {count_of(len(rows), 'row')}"
        further = view.anchor(
            label,
            view.name,
            rows="all",
            **choices_of(chosen.key),
        )
    labels = row_labels(rows)
    columns = [
        HtmlColumn(
            "Case",
            lambda row: _case_html(view, row, labels[row.key], tab),
            "case",
        ),
        *_value_columns(view, rows, tokens),
    ]
    table = html_table(
        drawn,
        columns,
        attributes=lambda row: current_attribute(is_current=row is chosen),
    )
    return f'<div class="rw-scroll rw-cells">{table}</div>{further}'


def row_labels(rows: Sequence[RoofRow]) -> dict[SeriesKey, str]:
    """Return short names of cases, with the implementation where a case has several."""
    labels = case_labels(row.key for row in rows)
    counts = Counter(_place(row.key) for row in rows)
    named: dict[SeriesKey, str] = {}
    for row in rows:
        label = labels[row.key.case_id]
        # the only implementation needs no name
        if counts[_place(row.key)] > 1:
            label = f"{label} · {row.key.implementation}".removeprefix(" · ")
        named[row.key] = label
    return named


def _value_columns(
    view: View,
    rows: Sequence[RoofRow],
    tokens: Mapping[str, float | None],
) -> Iterator[HtmlColumn[RoofRow]]:
    """Return the columns for which any row has data."""
    runner_classes = {row.key.runner_class for row in rows}
    # one runner stands in the header already
    if len(runner_classes) > 1:
        yield HtmlColumn("Runner", _runner_html, "runner rw-cut")
    has_shares = any(row.cell.utilisation is not None for row in rows)
    has_changes = any(row.worst_change is not None for row in rows)
    has_ratios = any(row.cell.ratio_to_reference is not None for row in rows)
    if has_shares:
        share_help = "Share of the measured ceiling; the peak is dotted"
        yield HtmlColumn(
            "",
            _share_html,
            "share number",
            share_help,
        )
        yield HtmlColumn(
            "Of achievable",
            _bullet_html,
            "bullet",
            share_help,
        )
    elif has_changes:
        yield HtmlColumn(
            "Open change",
            _change_html,
            "change number",
            "The worst open change of the case, as the ledger has it",
        )
    if has_ratios:
        yield HtmlColumn(
            "vs library",
            _ratio_html,
            "ratio number",
            "Time over the time of the vendor's library in the same run: below 1 is faster",
        )
    yield HtmlColumn(
        "Newest",
        lambda row: _newest_html(row, tokens),
        "newest number",
    )
    title = view.range.title
    # two dates do not fit above a small drawing
    if view.range.is_dragged:
        title = "these dates"
    yield HtmlColumn(escaped(title), _spark_html, "spark")


def choices_of(key: SeriesKey) -> dict[str, str]:
    """Return the parameters of the address that choose a row."""
    return {
        "kernel": key.kernel,
        "case": key.case_id,
        "implementation": key.implementation,
        "runner": key.runner_class,
        "metric": key.metric,
    }


def _case_html(
    view: View,
    row: RoofRow,
    label: str,
    tab: str,
) -> str:
    key = row.key
    kernel = escaped(shortened(key.kernel, length=40))
    name = f"<b>{kernel}</b>"
    if label:
        name += f' <span class="rw-soft">{escaped(label)}</span>'
    choices = choices_of(key)
    if tab:
        choices["tab"] = tab
    title = escaped(f"{key.case_id} {key.implementation}")
    link = view.anchor(name, view.name, **choices)
    return f'<span class="rw-cut" title="{title}">{link}</span>'


def _runner_html(row: RoofRow) -> str:
    title = escaped(row.key.runner_class)
    device = escaped(device_text(row.key.runner_class))
    return f'<span title="{title}">{device}</span>'


def _share_html(row: RoofRow) -> str:
    text = ""
    if row.cell.utilisation is not None:
        text = f"{row.cell.utilisation:.0%}"
    if row.cell.is_degraded:
        text += ' <span title="throttled or shared">○</span>'
    return text


def _bullet_html(row: RoofRow) -> str:
    return bullet_html(row.cell.utilisation, row.peak_share)


def _change_html(row: RoofRow) -> str:
    change = row.worst_change
    if change is None:
        return ""
    symbol = VERDICT_MARKS[change.verdict].symbol
    text = escaped(f"{symbol} {headline_text(change)}")
    title = escaped(change.evidence)
    return f'<span class="rw-slower" title="{title}">{text}</span>'


def _ratio_html(row: RoofRow) -> str:
    ratio = row.cell.ratio_to_reference
    if ratio is None:
        return ""
    text = escape(metric(RATIO_TO_REFERENCE).format(ratio))
    # both marks also differ without colour
    if ratio > 1:
        return f'<span class="rw-slower">{text} ▴</span>'
    return f'<span class="rw-faster">{text} ▾</span>'


def _newest_html(row: RoofRow, tokens: Mapping[str, float | None]) -> str:
    cell = row.cell
    if cell.outcome is not Outcome.OK:
        outcome = escaped(outcome_text(cell.outcome))
        return f'<span class="rw-slower">{outcome}</span>'
    if not cell.values:
        return ""
    newest = cell.values[-1]
    token_count = tokens.get(row.key.case_id)
    # people ask for the rate of a model, not for the time of its step
    if token_count:
        tokens_per_s = token_count / newest * 1e9
        return escaped(metric("tokens_per_s").format(tokens_per_s))
    return escaped(row.key.definition.format(newest))


def _spark_html(row: RoofRow) -> str:
    cell = row.cell
    if cell.utilisation is not None:
        return sparkline_html(cell.utilisations, cell.dates)
    return sparkline_html(cell.values, cell.dates)


def summary_html(rows: Sequence[RoofRow], classes: Mapping[str, str]) -> str:
    """Write the median share of each runner class on one line; empty without roofs.

    Args:
        rows: Of all runner classes.
        classes: Names of devices, by runner class.
    """
    parts: list[str] = []
    for runner_class, name in classes.items():
        of_class = [row for row in rows if row.key.runner_class == runner_class]
        known_shares = (row.cell.utilisation for row in of_class)
        shares = sorted(share for share in known_shares if share is not None)
        if shares:
            median_share = shares[len(shares) // 2]
            parts.append(f"<b>{escaped(name)}</b> {median_share:.0%}")
    if not parts:
        return ""
    return f'<p class="rw-line">Median case, of achievable: {" · ".join(parts)}</p>'
