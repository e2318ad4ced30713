"""One row of a comparison unfolded: what decides it, its trend, and the samples of both sides."""

from dataclasses import replace
from uuid import UUID

from roofwatch.dashboard import data
from roofwatch.dashboard.charts.history import History, history_html
from roofwatch.dashboard.charts.lanes import Lane, LaneMark, lanes_of
from roofwatch.dashboard.charts.samples import samples_html
from roofwatch.dashboard.commands import command_html, pair_command
from roofwatch.dashboard.comparison import ComparedRow
from roofwatch.dashboard.components.compare_tables import said_of
from roofwatch.dashboard.components.markup import show_markup
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.roof_history import changes_of_case
from roofwatch.dashboard.components.roof_table import choices_of
from roofwatch.dashboard.components.workloads import show_step_change
from roofwatch.dashboard.wording import escaped
from roofwatch.db.queries import questions
from roofwatch.model.measurement import Measurement
from roofwatch.model.metrics import metric
from roofwatch.model.stored_results import RunDetail

_FIGURE_PX = 200


def show_detail(
    view: View,
    row: ComparedRow,
    base: RunDetail,
    head: RunDetail,
) -> None:
    """Show the command that decides a row, its trend and its samples."""
    decision = _decision_html(view, row, base, head)
    trend = _trend_html(view, row, base, head)
    show_markup(f"{decision}{trend}", key="compared")
    # another tool's values have neither samples nor a profile
    if row.claim is None:
        return
    base_id = UUID(base.summary.run_id)
    head_id = UUID(head.summary.run_id)
    records = data.ask(
        questions.read_case_of_runs,
        base_id,
        head_id,
        row.key.case_id,
    )
    sides: list[Measurement] = []
    for record in records:
        for measurement in record.measurements:
            is_compared = measurement.implementation == row.key.implementation
            if is_compared and measurement.blocks:
                sides.append(measurement)
    # a run whose samples were aged has none
    if len(sides) == 2:
        base_side, head_side = sides
        samples = samples_html({"A": base_side, "B": head_side})
        show_markup(samples, key="samples")
    show_step_change(row, base_id, head_id)


def _decision_html(
    view: View,
    row: ComparedRow,
    base: RunDetail,
    head: RunDetail,
) -> str:
    title = f"{row.key.case_id} · {row.key.implementation}"
    roof = view.anchor("Its roof", "roof", **choices_of(row.key))
    claim = escaped(said_of(row))
    parts = [
        f"<h2>{escaped(title)}</h2>",
        f"<p>{claim}. {roof}</p>",
    ]
    if row.claim is not None:
        command = pair_command(
            base.summary.commit,
            head.summary.commit,
            kernel=row.key.kernel,
            implementation=row.key.implementation,
        )
        parts.append(
            '<p class="rw-soft">Separate runs give no verdict on time; this one measures a pair:'
            f"</p>{command_html(command)}"
        )
    for name, sides in row.further.items():
        unit = metric(name)
        texts: list[str] = []
        for value in sides:
            if value is None:
                texts.append("none")
            else:
                texts.append(unit.format(value))
        change = " → ".join(texts)
        text = escaped(f"{unit.title}: {change}")
        parts.append(f'<p class="rw-soft">{text}</p>')
    return "".join(parts)


def _trend_html(
    view: View,
    row: ComparedRow,
    base: RunDetail,
    head: RunDetail,
) -> str:
    key = row.key
    # the share of the roof tells more than the time, where there is one
    if row.utilisations[1] is not None:
        key = replace(key, metric="utilisation")
    lines = view.read_series(key)
    if not lines:
        return ""
    (series,) = lines
    marks = (
        LaneMark(base.summary.commit.committed_at, "A"),
        LaneMark(head.summary.commit.committed_at, "B"),
    )
    compared = Lane("compared", marks)
    releases = view.list_releases()
    history = History(
        series=series,
        changes=changes_of_case(view, row.key),
        lanes=(compared, *lanes_of([series], releases)),
    )
    return history_html(
        history,
        view.zone,
        height_px=_FIGURE_PX,
    )
