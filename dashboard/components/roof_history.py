"""The history of a chosen case with its roofs, and of its siblings as small multiples."""

from collections.abc import Sequence

from roofwatch.dashboard import data
from roofwatch.dashboard.charts.history import (
    History,
    RoofLine,
    date_range,
    figure_html,
    history_html,
)
from roofwatch.dashboard.charts.lanes import lanes_of
from roofwatch.dashboard.charts.palette import GREY, PAGE_BLUE
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.roof_table import (
    RoofRow,
    choices_of,
    fastest_library,
    row_labels,
)
from roofwatch.dashboard.headline import once_a_commit
from roofwatch.dashboard.wording import device_text, escaped, shortened
from roofwatch.db.queries import questions
from roofwatch.model.history import ChangePoint, RegressionState, Series, SeriesKey
from roofwatch.model.metrics import Layer, is_metric, metric
from roofwatch.model.stored_results import RoofCell

_MULTIPLES = 4
_MAIN_PX, _MULTIPLE_PX = 230, 90
_NO_VALUES = '<p class="rw-soft">No run of these dates has a value of it.</p>'
_ACHIEVABLE, _PEAK = "achievable (measured)", "peak (datasheet)"


def siblings_of(chosen: RoofRow, rows: Sequence[RoofRow]) -> list[RoofRow]:
    """Return the same case elsewhere, then other cases of its kernel on its runner."""

    def distance(row: RoofRow) -> tuple[object, ...]:
        return (
            row.key.metric != chosen.key.metric,
            row.key.case_id != chosen.key.case_id,
            row.key.runner_class != chosen.key.runner_class,
            row.rank,
        )

    related = [row for row in rows if row.key.kernel == chosen.key.kernel and row is not chosen]
    return sorted(related, key=distance)[:_MULTIPLES]


def histories_html(
    view: View,
    chosen: RoofRow,
    rows: Sequence[RoofRow],
    cells: Sequence[RoofCell],
) -> str:
    """Draw a chosen row large, and its siblings small on the same date axis."""
    other_key = asked_series(view, chosen)
    if other_key is not None:
        return other_metric_html(view, other_key)
    siblings = siblings_of(chosen, rows)
    histories = _read(view, [chosen, *siblings], cells)
    if chosen.key not in histories:
        return f"<p>{_caption(chosen, chosen.key.kernel)}</p>{_NO_VALUES}"
    dates = date_range(histories.values())
    labels = row_labels(rows)
    multiples: list[str] = []
    for sibling in siblings:
        if sibling.key not in histories:
            continue
        picture = history_html(
            histories[sibling.key],
            view.zone,
            height_px=_MULTIPLE_PX,
            dates=dates,
            is_small=True,
        )
        # of the kernel of the large drawing, which needs no second mention
        caption = _caption(sibling, labels[sibling.key])
        link = view.anchor(caption, view.name, **choices_of(sibling.key))
        multiples.append(figure_html(link, picture))
    history = histories[chosen.key]
    picture = history_html(
        history,
        view.zone,
        height_px=_MAIN_PX,
        dates=dates,
    )
    caption = _caption(chosen, f"{chosen.key.kernel} {labels[chosen.key]}")
    main = figure_html(caption, f"{picture or _NO_VALUES}{_legend(history)}")
    return f'{main}<div class="rw-multiples">{"".join(multiples)}</div>'


_PARTS = ("runner_class", "function", "target", "tensor")
_PARAMETERS = {"runner_class": "runner"}


def asked_series(view: View, chosen: RoofRow) -> SeriesKey | None:
    """Return the series of another metric of the chosen case that the address asks for."""
    name = view.link.asked_or_chosen("metric")
    # an address may name a metric of a later version
    if name is None or name == chosen.key.metric or not is_metric(name):
        return None
    view.link.keep("metric", name)
    parts: dict[str, str] = {}
    for part in _PARTS:
        value = view.link.asked_or_chosen(_PARAMETERS.get(part, part))
        if value is not None:
            parts[part] = value
            view.link.keep(_PARAMETERS.get(part, part), value)
    # machine code and accuracy do not depend on the runner
    if metric(name).layer not in (Layer.MEASURED, Layer.IMPORTED):
        parts["runner_class"] = ""
    implementation = view.link.asked_or_chosen("implementation") or chosen.key.implementation
    view.link.keep("implementation", implementation)
    return SeriesKey(view.project, chosen.key.case_id, implementation, name, **parts)


def other_metric_html(view: View, key: SeriesKey) -> str:
    """Draw the history of any series."""
    picture = ""
    for series in view.read_series(key):
        history = History(
            series=series,
            changes=changes_of_case(view, key),
            lanes=tuple(lanes_of([series], view.list_releases())),
        )
        picture = history_html(history, view.zone, height_px=_MAIN_PX)
    caption = f"<b>{escaped(key.definition.title)}</b> {escaped(key.label)}"
    return figure_html(caption, picture or _NO_VALUES)


def other_metrics_html(view: View, chosen: RoofRow) -> str:
    """Write links to the histories of the chosen case's other metrics."""
    keys = data.ask(
        questions.list_series_keys,
        view.project,
        include_dirty=False,
        include_branches=bool(view.filters.branches),
    )
    links: list[str] = []
    for key in keys:
        # compiled code has no runner class
        is_here = key.runner_class in ("", chosen.key.runner_class)
        if key.case_id != chosen.key.case_id or not is_here:
            continue
        parts = {"function": key.function, "target": key.target, "tensor": key.tensor}
        further = {name: value for name, value in parts.items() if value}
        label = " · ".join([key.implementation, key.definition.title, *further.values()])
        choices = choices_of(chosen.key) | {
            "implementation": key.implementation,
            "metric": key.metric,
            **further,
        }
        links.append(view.anchor(escaped(label), view.name, **choices))
    return f'<p class="rw-metrics">{" ".join(links)}</p>'


def _caption(row: RoofRow, label: str) -> str:
    case = shortened(f"{label} · {row.key.implementation}", length=90)
    return f"<b>{escaped(device_text(row.key.runner_class))}</b> {escaped(case)}"


def _legend(history: History) -> str:
    title = history.metric.title
    if history.metric.unit != "share":
        title += f", {history.metric.direction}"
    parts = [f'<span style="color:{PAGE_BLUE}">●</span> {escaped(title)}']
    if history.vendor is not None:
        parts.append(
            f'<span style="color:{GREY}">●</span> {escaped(history.vendor.key.implementation)}'
        )
    points = history.series.points
    if any(point.degraded_by for point in points):
        parts.append("○ throttled or shared")
    if any(point.value is None for point in points):
        parts.append('<span class="rw-slower">✕</span> failed')
    return f'<p class="rw-soft rw-legend">{" &nbsp; ".join(parts)}</p>'


def _read(
    view: View, rows: Sequence[RoofRow], cells: Sequence[RoofCell]
) -> dict[SeriesKey, History]:
    """Read the series of rows and of the libraries beside them in one question, by key of the
    rows that have any.
    """
    vendors: dict[SeriesKey, SeriesKey] = {}
    for row in rows:
        vendor = fastest_library(row.key, cells)
        if vendor is not None:
            vendors[row.key] = vendor
    keys = dict.fromkeys(_drawn_key(row, row.key) for row in rows)
    keys |= dict.fromkeys(_drawn_key(row, vendors[row.key]) for row in rows if row.key in vendors)
    series = {line.key: line for line in view.read_series(*keys)}
    releases = view.list_releases()
    histories: dict[SeriesKey, History] = {}
    for row in rows:
        line = series.get(_drawn_key(row, row.key))
        if line is None:
            continue
        vendor_line = None
        if row.key in vendors:
            vendor_line = series.get(_drawn_key(row, vendors[row.key]))
        histories[row.key] = History(
            series=line,
            vendor=vendor_line,
            roofs=_roofs(row, line),
            changes=changes_of_case(view, row.key),
            lanes=tuple(lanes_of([line], releases)),
        )
    return histories


def _drawn_key(row: RoofRow, key: SeriesKey) -> SeriesKey:
    """Return the share of the roof if the row has any, else what was measured."""
    name = row.key.metric if row.cell.utilisation is None else "utilisation"
    return SeriesKey(
        key.project,
        key.case_id,
        key.implementation,
        name,
        runner_class=key.runner_class,
    )


def _roofs(row: RoofRow, series: Series) -> tuple[RoofLine, ...]:
    # only a share has its roof at 100 %
    if series.key.metric != "utilisation":
        return ()
    roofs = [RoofLine(_ACHIEVABLE, 1.0, is_measured=True)]
    if row.peak_share is not None:
        roofs.append(RoofLine(_PEAK, row.peak_share, is_measured=False))
    return tuple(roofs)


def changes_of_case(view: View, key: SeriesKey) -> tuple[ChangePoint, ...]:
    """Return the open change points of any metric of a case, one for each commit and verdict: that
    of its time if it has one.
    """
    here = ("", key.runner_class)
    subject = (key.case_id, key.implementation)
    changes: list[ChangePoint] = []
    for regression in data.list_regressions(view.project):
        # what recovered is no mark of today's level
        if regression.state is not RegressionState.OPEN:
            continue
        for change in regression.change_points:
            series = change.series
            is_same = (series.case_id, series.implementation) == subject
            if is_same and series.runner_class in here:
                changes.append(change)
    return tuple(once_a_commit(changes))
