"""Values of other tools: of one run, and of two runs side by side."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.comparison import change_points_between
from roofwatch.dashboard.components.page import MAIN_FIGURE, View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import code_span, outcome_text, percent
from roofwatch.db.queries import questions
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import RATIO_TO, SHARE_OF_STEP, metric
from roofwatch.model.record import RunRecord
from roofwatch.model.results import ImportedValue
from roofwatch.model.stored_results import ImportedPair, RunDetail

_ROWS = 2_000
"""Most rows of a table."""


class _Row(Protocol):
    @property
    def case_id(self) -> str: ...
    @property
    def implementation(self) -> str: ...


def values_of(record: RunRecord) -> list[ImportedValue]:
    """Return the values of another tool, those divided by a library's first."""
    values = [row for row in record.imported if not row.metric.startswith(SHARE_OF_STEP)]
    return sorted(values, key=lambda row: RATIO_TO not in row.metric)


def show_imported_values(record: RunRecord, *, title: str, with_ratios: bool = True) -> None:
    """Show the values of a record that was imported from another tool."""
    values = [row for row in values_of(record) if with_ratios or RATIO_TO not in row.metric]
    if record.environment.imported_from is None or not values:
        return
    st.header(title, anchor=False)
    show_table(
        values[:_ROWS],
        *_subject_columns(),
        Column("metric", lambda row: metric(row.key).title),
        Column("value", lambda row: _text(row.key, row.value, row.outcome)),
        Column("better", lambda row: str(row.better)),
        key=MAIN_FIGURE,
    )
    tool = code_span(record.environment.imported_from or "another tool")
    st.caption(f"{_count(len(values))} of {tool}, in the units of its file.")


def show_imported_pairs(view: View, base: RunDetail, head: RunDetail, *, is_main: bool) -> bool:
    """Show the values of other tools in two runs, the largest change first; False without any."""
    sides = (UUID(side.summary.run_id) for side in (base, head))
    pairs = [
        pair
        for pair in data.ask(questions.read_imported_values, *sides)
        if view.filters.admits_case(pair.case_id) and not pair.metric.startswith(SHARE_OF_STEP)
    ]
    if not pairs:
        return False
    verdicts: dict[tuple[str, str, str], str] = {}
    regressions = data.list_regressions(view.project)
    for change in change_points_between(base.summary.commit, head.summary.commit, regressions):
        series = change.series
        if series.runner_class == head.summary.runner_class:
            key = (series.case_id, series.implementation, series.metric)
            verdicts[key] = f"{change.verdict} {change.commit.short_sha}"
    st.header("Further values", anchor=False)
    is_same_class = base.summary.runner_class == head.summary.runner_class
    pairs.sort(key=lambda pair: -abs(pair.relative_change or 0.0))
    show_table(
        pairs[:_ROWS],
        Column("verdict", lambda row: verdicts.get(_key_of(row), "")),
        *_subject_columns(),
        Column("metric", lambda row: metric(row.metric).title),
        Column("base", lambda row: _text(row.metric, row.base, row.base_outcome)),
        Column("head", lambda row: _text(row.metric, row.head, row.head_outcome)),
        Column("change", lambda row: row.relative_change if is_same_class else None, percent),
        Column("better", lambda row: str(metric(row.metric).better)),
        key=MAIN_FIGURE if is_main else "imported values",
    )
    notes: list[str] = []
    if any(side.environment is None or side.environment.imported_from for side in (base, head)):
        notes.append("Whether machine, driver and toolchain were the same is unknown.")
    if not is_same_class:
        notes.append("The devices or tools differ, so no change is shown.")
    st.caption(
        f"{_count(len(pairs))}, each from one run of each side. *Verdict* comes from stored change "
        f"points between the two commits. {' '.join(notes)}"
    )
    return True


def _subject_columns() -> Sequence[Column[_Row]]:
    return (
        Column("case", lambda row: row.case_id),
        Column("implementation", lambda row: row.implementation),
    )


def _key_of(pair: ImportedPair) -> tuple[str, str, str]:
    return pair.case_id, pair.implementation, pair.metric


def _text(name: str, value: float | None, outcome: Outcome | None) -> str:
    if value is not None:
        return metric(name).format(value)
    return "" if outcome is None else outcome_text(outcome)


def _count(count: int) -> str:
    text = f"The first {_ROWS:,} of {count:,} values" if count > _ROWS else f"{count:,} values"
    return "1 value" if count == 1 else text
