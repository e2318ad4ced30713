"""Every series of a commit of the ledger, as a table."""

from roofwatch.ci.history.commit_rows import CommitEntry
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import HtmlColumn, html_table, scrolled
from roofwatch.dashboard.linked_row import row_choices
from roofwatch.dashboard.wording import (
    current_attribute,
    device_text,
    escaped,
    headline_text,
    transition_text,
)
from roofwatch.model.history import ChangePoint


def key_of(change: ChangePoint) -> str:
    series = change.series
    parts = (
        series.metric,
        series.case_id,
        series.implementation,
        series.runner_class,
        series.function,
        series.target,
        series.tensor,
        change.commit.short_sha,
    )
    return "|".join(parts)


def changes_html(view: View, row: CommitEntry, chosen: ChangePoint) -> str:
    """Write every series of the commit as a table; a row shows its evidence."""

    def series_html(point: ChangePoint) -> str:
        return view.anchor(
            escaped(point.series.label),
            "ledger",
            change=key_of(point),
            every="open",
            **row_choices(row),
        )

    table = html_table(
        row.change_points,
        [
            HtmlColumn("series", series_html),
            HtmlColumn("metric", lambda point: escaped(point.series.definition.title)),
            HtmlColumn("on", _measured_on),
            HtmlColumn(
                "change",
                lambda point: escaped(headline_text(point)),
                "number",
            ),
            HtmlColumn(
                "base → head",
                lambda point: escaped(transition_text(point)),
                "number",
            ),
        ],
        attributes=lambda point: current_attribute(is_current=point == chosen),
    )
    return scrolled(table)


def _measured_on(point: ChangePoint) -> str:
    series = point.series
    # compiled code has a target, and no device
    if series.target:
        return escaped(series.target)
    return escaped(device_text(series.runner_class))
