"""Downloads of a comparison, with numbers in columns of their own."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from roofwatch.ci import messages
from roofwatch.ci.messages import on_one_line
from roofwatch.dashboard.comparison import ComparedRow
from roofwatch.model.metrics import metric

_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def frame_of_rows(rows: Sequence[ComparedRow]) -> pd.DataFrame:
    """Return one line per row, with numbers as numbers and names on one line."""
    lines = [_values_of(row) for row in rows]
    return pd.DataFrame(lines)


def _values_of(row: ComparedRow) -> dict[str, object]:
    low, high = row.interval or (None, None)
    base_share, head_share = row.utilisations
    base_outcome, head_outcome = row.outcomes
    claim = ""
    if row.claim is not None:
        claim = row.claim.text
    values: dict[str, object] = {
        "runner": row.key.runner_class,
        "case": row.key.case_id,
        "implementation": row.key.implementation,
        "metric": row.metric.title,
        "unit": row.metric.unit,
        "base": row.base,
        "head": row.head,
        "relative change": row.change,
        "interval low": low,
        "interval high": high,
        "group": row.group.value,
        "claim": claim,
        "not compared": row.refusal,
        "base share of achievable": base_share,
        "head share of achievable": head_share,
        "base outcome": str(base_outcome or ""),
        "head outcome": str(head_outcome or ""),
        "machine code": row.code_change,
        "found by the history": ", ".join(_found_of(row)),
    }
    # columns of their own only for what was measured
    for name, sides in row.further.items():
        title = metric(name).title
        base_value, head_value = sides
        values[f"base {title}"] = base_value
        values[f"head {title}"] = head_value
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = on_one_line(value)
    return values


def _found_of(row: ComparedRow) -> list[str]:
    texts: list[str] = []
    for change in row.change_points:
        text = f"{change.verdict} {change.commit.short_sha}"
        if text not in texts:
            texts.append(text)
    return texts


def offer_files(rows: Sequence[ComparedRow], name: str) -> None:
    """Show download buttons; a file is written when its button is clicked."""
    line = st.container(horizontal=True)
    writers = {
        "CSV": ("csv", to_csv),
        "Parquet": ("parquet", to_parquet),
        "Markdown": ("md", to_markdown),
    }
    for kind, (ending, write) in writers.items():
        line.download_button(
            kind,
            partial(_written, write, rows),
            file_name=f"roofwatch-{name}.{ending}",
            icon=":material/download:",
            on_click="ignore",
            key=f"export {ending}",
        )


def _written(write: Any, rows: Sequence[ComparedRow]) -> bytes:
    written: bytes = write(frame_of_rows(rows))
    return written


def to_csv(frame: pd.DataFrame) -> bytes:
    """Escape values that a spreadsheet would evaluate as a formula.

    Source: OWASP, CSV Injection (https://owasp.org/www-community/attacks/CSV_Injection).
    """

    def inert(value: object) -> object:
        # a spreadsheet shows the text behind an apostrophe as it is
        if isinstance(value, str) and value.startswith(_BEGINS_A_FORMULA):
            return f"'{value}"
        return value

    inert_frame = frame.map(inert)
    return inert_frame.to_csv(index=False).encode()


def to_parquet(frame: pd.DataFrame) -> bytes:
    return bytes(frame.to_parquet(index=False))


def to_markdown(frame: pd.DataFrame) -> bytes:
    def cell(value: Any) -> str:
        if isinstance(value, str):
            if value:
                return messages.code(value)
            return ""
        if pd.isna(value):
            return ""
        return f"{value:.6g}"

    titles = [str(column) for column in frame.columns]
    rows: list[list[str]] = []
    for row in frame.itertuples(index=False):
        cells = [cell(value) for value in row]
        rows.append(cells)
    lines = messages.table(titles, rows)
    text = "\n".join([*lines, ""])
    return text.encode()
