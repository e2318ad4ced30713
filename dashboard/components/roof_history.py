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
_MAIN_PX = 230
_MULTIPLE_PX = 90
_NO_VALUES = '<p class="rw-soft">No run of these dates has a value of it.</p>'
_ACHIEVABLE = "achievable (measured)"
_PEAK = "peak (datasheet)"


def siblings_of(chosen: RoofRow, rows: Sequence[RoofRow]) -> list[RoofRow]:
    """Return the same case elsewhere, then other cases of its kernel on its runner."""

    def distance(row: RoofRow) -> tuple[object, ...]:
        return (
            row.key.metric != chosen.key.metric,
            row.key.case_id != chosen.key.case_id,
            row.key.runner_class != chosen.key.runner_class,
            row.rank,
        )

    of_kernel = [row for row in rows if row.key.kernel == chosen.key.kernel]
    others = [row for row in of_kernel if row is not chosen]
    nearest_first = sorted(others, key=distance)
    return nearest_first[:_MULTIPLES]


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
        caption = _caption(chosen, chosen.key.kernel)
        return f"<p>{caption}</p>{_NO_VALUES}"
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
    label = labels[chosen.key]
    caption = _caption(chosen, f"{chosen.key.kernel} {label}")
    legend = _legend(history)
    main = figure_html(caption, f"{picture or _NO_VALUES}{legend}")
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
        parameter = _PARAMETERS.get(part, part)
        value = view.link.asked_or_chosen(parameter)
        if value is not None:
            parts[part] = value
            view.link.keep(parameter, value)
    # machine code and accuracy do not depend on the runner
    if metric(name).layer not in (Layer.MEASURED, Layer.IMPORTED):
        parts["runner_class"] = ""
    implementation = view.link.asked_or_chosen("implementation") or chosen.key.implementation
    view.link.keep("implementation", implementation)
    return SeriesKey(
        view.project,
        chosen.key.case_id,
        implementation,
        name,
        **parts,
    )


def other_metric_html(view: View, key: SeriesKey) -> str:
    """Draw the history of any series."""
    picture = ""
    for series in view.read_series(key):
        releases = view.list_releases()
        history = History(
            series=series,
            changes=changes_of_case(view, key),
            lanes=tuple(lanes_of([series], releases)),
        )
        picture = history_html(
            history,
            view.zone,
            height_px=_MAIN_PX,
        )
    title = escaped(key.definition.title)
    label = escaped(key.label)
    caption = f"<b>{title}</b> {label}"
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
        is_same_case = key.case_id == chosen.key.case_id
        if not is_here or not is_same_case:
            continue
        parts = {
            "function": key.function,
            "target": key.target,
            "tensor": key.tensor,
        }
        further = {name: value for name, value in parts.items() if value}
        names = [key.implementation, key.definition.title, *further.values()]
        label = escaped(" · ".join(names))
        choices = choices_of(chosen.key)
        choices["implementation"] = key.implementation
        choices["metric"] = key.metric
        choices.update(further)
        links.append(view.anchor(label, view.name, **choices))
    return f'<p class="rw-metrics">{" ".join(links)}</p>'


def _caption(row: RoofRow, label: str) -> str:
    device = escaped(device_text(row.key.runner_class))
    case = escaped(shortened(f"{label} · {row.key.implementation}", length=90))
    return f"<b>{device}</b> {case}"


def _legend(history: History) -> str:
    title = history.metric.title
    if history.metric.unit != "share":
        title += f", {history.metric.direction}"
    parts = [f'<span style="color:{PAGE_BLUE}">●</span> {escaped(title)}']
    if history.vendor is not None:
        library = escaped(history.vendor.key.implementation)
        parts.append(f'<span style="color:{GREY}">●</span> {library}')
    points = history.series.points
    if any(point.degraded_by for point in points):
        parts.append("○ throttled or shared")
    if any(point.value is None for point in points):
        parts.append('<span class="rw-slower">✕</span> failed')
    return f'<p class="rw-soft rw-legend">{" &nbsp; ".join(parts)}</p>'


def _read(
    view: View,
    rows: Sequence[RoofRow],
    cells: Sequence[RoofCell],
) -> dict[SeriesKey, History]:
    """Read the series of rows and of the libraries beside them in one question, by key of the
    rows that have any.
    """
    # drawn series of each row, and of the library with the same case
    own_keys: dict[SeriesKey, SeriesKey] = {}
    vendor_keys: dict[SeriesKey, SeriesKey] = {}
    for row in rows:
        own_keys[row.key] = _drawn_key(row, row.key)
        vendor = fastest_library(row.key, cells)
        if vendor is not None:
            vendor_keys[row.key] = _drawn_key(row, vendor)
    # rows may share a library, which is read once
    keys = dict.fromkeys([*own_keys.values(), *vendor_keys.values()])
    series = {line.key: line for line in view.read_series(*keys)}
    releases = view.list_releases()
    histories: dict[SeriesKey, History] = {}
    for row in rows:
        line = series.get(own_keys[row.key])
        if line is None:
            continue
        vendor_line = None
        if row.key in vendor_keys:
            vendor_line = series.get(vendor_keys[row.key])
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
    name = "utilisation"
    if row.cell.utilisation is None:
        name = row.key.metric
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
        peak = RoofLine(_PEAK, row.peak_share, is_measured=False)
        roofs.append(peak)
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
