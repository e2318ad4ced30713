"""A comparison of two runs as a table and as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from roofwatch.ci.report import markdown
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import metric
from roofwatch.dashboard.comparison import ComparedCase
from roofwatch.dashboard.components.table import NO_VALUE, Column
from roofwatch.dashboard.wording import VERDICT_MARKS, outcome_text, percent
from roofwatch.db.queries.results import MeasuredCase

_METRICS = {
    "utilisation": "Achieved share of the roofline: base → head. Comparable across devices.",
    "host_ns": "Host time to issue a launch: base → head; lower is better.",
    "peak_allocated_bytes": "Peak tensor memory during a launch: base → head; lower is better.",
}
"""Further metrics with their help text; columns without any value are left out."""
NOT_COMPARED = "not compared"
_TIME_HELP = "Median of the samples; lower is better."
_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def comparison_columns(rows: Sequence[ComparedCase]) -> list[Column[ComparedCase]]:
    """Return the columns of a comparison; why rows are not compared and further metrics only if any row has them."""
    write_ns = metric("median_ns").format

    def metric_column(name: str) -> Column[ComparedCase]:
        return Column(metric(name).title, lambda row: _metric_text(name, row), help=_METRICS[name])

    further: list[Column[ComparedCase]] = [
        Column(NOT_COMPARED, lambda row: row.refusal, help="How base and head were timed differently."),
        *map(metric_column, _METRICS),
    ]
    return [
        Column("stored verdict", _verdict_text, help="Stored change points of this case between the two commits."),
        Column("case", lambda row: row.case_id),
        Column("implementation", lambda row: row.implementation),
        Column("base time", lambda row: row.base and row.base.median_ns, write_ns, _TIME_HELP),
        Column("head time", lambda row: row.head and row.head.median_ns, write_ns, _TIME_HELP),
        Column(
            "change",
            lambda row: row.relative_change,
            percent,
            "(head − base) / base of the two medians. A difference alone is no verdict: it may be noise.",
        ),
        *(column for column in further if any(map(column.value, rows))),
        Column("outcome", _outcomes_text, help="How the measurement ended: base → head."),
        Column(
            "accuracy",
            lambda row: _both(row, _error_text),
            help=f"Check against the float64 reference, with its {metric('rmse_ratio').title}.",
        ),
        Column(
            "machine code",
            lambda row: row.code_change,
            help="If machine code is equal, kernel code is not the cause of a change.",
        ),
    ]


def offer_files(table: pd.DataFrame, name: str) -> None:
    """Show download buttons; a file is written when its button is clicked."""
    place = st.container(horizontal=True)
    titles = {"base time": "base time (ns)", "head time": "head time (ns)", "change": "relative change"}
    writers = {"CSV": ("csv", to_csv), "Parquet": ("parquet", to_parquet), "Markdown": ("md", to_markdown)}
    for kind, (ending, write) in writers.items():
        place.download_button(
            kind,
            partial(write, table.rename(columns=titles)),
            file_name=f"roofwatch-{name}.{ending}",
            icon=":material/download:",
            on_click="ignore",
            key=f"export {ending}",
        )


def to_csv(frame: pd.DataFrame) -> bytes:
    """Escape values that a spreadsheet would evaluate as a formula.

    Source: OWASP, CSV Injection (https://owasp.org/www-community/attacks/CSV_Injection).
    """

    def inert(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINS_A_FORMULA) else value

    return frame.map(inert).to_csv(index=False).encode()


def to_parquet(frame: pd.DataFrame) -> bytes:
    return bytes(frame.to_parquet(index=False))


def to_markdown(frame: pd.DataFrame) -> bytes:
    def cell(value: Any) -> str:
        if isinstance(value, str):
            return markdown.code(value) if value else ""
        return "" if pd.isna(value) else f"{value:.6g}"

    rows = [[cell(value) for value in row] for row in frame.itertuples(index=False)]
    return "\n".join([*markdown.table([str(column) for column in frame.columns], rows), ""]).encode()


def _both(row: ComparedCase, write: Callable[[MeasuredCase], str | None]) -> str:
    """Write `base → head`, or one value if both are equal."""
    base, head = (None if case is None else write(case) for case in (row.base, row.head))
    return head or base or "" if base is None or head is None or base == head else f"{base} → {head}"


def _metric_text(name: str, row: ComparedCase) -> str:
    def write(case: MeasuredCase) -> str | None:
        value = getattr(case, name)
        return None if value is None else metric(name).format(value)

    return _both(row, write)


def _verdict_text(row: ComparedCase) -> str:
    """Write `◆ regressed 1a2b3c4d` for each commit and metric."""
    texts = [
        f"{VERDICT_MARKS[change.verdict].text} {change.commit.short_sha}"
        + ("" if change.series.metric == "median_ns" else f" ({change.series.definition.title})")
        for change in row.change_points
    ]
    return ", ".join(dict.fromkeys(texts)) or NO_VALUE


def _outcomes_text(row: ComparedCase) -> str:
    text = _both(row, lambda case: outcome_text(case.outcome))
    if row.is_one_sided:
        return f"only on the {'head' if row.base is None else 'base'}: {text}"
    return text


def _error_text(case: MeasuredCase) -> str | None:
    """Write the result of the accuracy check, if there was one."""
    if case.accuracy_outcome is None:
        return None
    if case.rmse_ratio is None:
        return outcome_text(case.accuracy_outcome)
    mark, _, word = outcome_text(case.accuracy_outcome).partition(" ")
    error = metric("rmse_ratio").format(case.rmse_ratio)
    return f"{mark} {error}" if case.accuracy_outcome is Outcome.OK else f"{mark} {error} {word}"
