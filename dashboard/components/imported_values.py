"""Values of other tools, of one run."""

import streamlit as st

from roofwatch.dashboard.components.page import MAIN_FIGURE
from roofwatch.dashboard.components.table import SUBJECT, Column, show_table
from roofwatch.dashboard.wording import code_span, outcome_text
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import RATIO_TO, SHARE_OF_STEP, metric
from roofwatch.model.record import RunRecord
from roofwatch.model.results import ImportedValue

_ROWS = 2_000
"""Most rows of a table."""


def values_of(record: RunRecord) -> list[ImportedValue]:
    """Return the values of another tool, those divided by a library's first."""
    # shares of a step are shown with the step
    values = [row for row in record.imported if not row.metric.startswith(SHARE_OF_STEP)]
    return sorted(values, key=lambda row: RATIO_TO not in row.metric)


def show_imported_values(record: RunRecord) -> None:
    """Show the values of a record that was imported from another tool."""
    values = values_of(record)
    if record.environment.imported_from is None or not values:
        return
    st.header("Values", anchor=False)
    show_table(
        values[:_ROWS],
        *SUBJECT,
        Column("metric", lambda row: metric(row.key).title),
        Column("value", lambda row: _text(row.key, row.value, row.outcome)),
        Column("better", lambda row: str(row.better)),
        key=MAIN_FIGURE,
    )
    tool = code_span(record.environment.imported_from or "another tool")
    count = _count(len(values))
    st.caption(f"{count} of {tool}, in the units of its file.")


def _text(name: str, value: float | None, outcome: Outcome | None) -> str:
    if value is not None:
        return metric(name).format(value)
    if outcome is None:
        return ""
    return outcome_text(outcome)


def _count(count: int) -> str:
    if count == 1:
        return "1 value"
    if count > _ROWS:
        return f"The first {_ROWS:,} of {count:,} values"
    return f"{count:,} values"
