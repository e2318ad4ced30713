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
from roofwatch.dashboard.components.table import NO_VALUE, show_table
from roofwatch.dashboard.wording import VERDICT_MARKS, outcome_text, percent
from roofwatch.db.queries.results import MeasuredCase

_METRICS = {
    "utilisation": "Achieved share of the roofline: base → head. Comparable across devices.",
    "host_ns": "Host time to issue a launch: base → head; lower is better.",
    "peak_allocated_bytes": "Peak tensor memory during a launch: base → head; lower is better.",
}
"""Further metrics with their help text; columns without any value are left out."""
_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def comparison_table(rows: Sequence[ComparedCase]) -> pd.DataFrame:
    """Return one row per case and implementation, with times in ns."""
    refusals = [row.refusal for row in rows]
    metrics = {metric(name).title: [_metric_text(name, row) for row in rows] for name in _METRICS}
    return pd.DataFrame(
        {
            "stored verdict": [_verdict_text(row) for row in rows],
            "case": [row.case_id for row in rows],
            "implementation": [row.implementation for row in rows],
            "base time": [None if row.base is None else row.base.median_ns for row in rows],
            "head time": [None if row.head is None else row.head.median_ns for row in rows],
            "change": pd.Series([row.relative_change for row in rows], dtype="float64"),
            **({"not compared": refusals} if any(refusals) else {}),
            **{title: texts for title, texts in metrics.items() if any(texts)},
            "outcome": [_outcomes_text(row) for row in rows],
            "accuracy": [_both(row, _error_text) for row in rows],
            "machine code": [row.code_change for row in rows],
        }
    )


def show_comparison(table: pd.DataFrame, *, key: str) -> None:
    write_ns = metric("median_ns").format
    show_table(
        table,
        formats={"base time": write_ns, "head time": write_ns, "change": percent},
        help_texts={
            "stored verdict": "Stored change points of this case between the two commits.",
            "base time": "Median of the samples; lower is better.",
            "head time": "Median of the samples; lower is better.",
            "change": "(head − base) / base of the two medians. A difference alone is no verdict: it may be noise.",
            "not compared": "How base and head were timed differently.",
            **{metric(name).title: words for name, words in _METRICS.items()},
            "outcome": "How the measurement ended: base → head.",
            "accuracy": f"Check against the float64 reference, with its {metric('rmse_ratio').title}.",
            "machine code": "If machine code is equal, kernel code is not the cause of a change.",
        },
        key=key,
    )
    st.caption(
        "Times are medians; lower is better. *change* is their plain difference and may be noise. "
        "*stored verdict* comes from stored change points between the two commits, not from this table."
    )


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
