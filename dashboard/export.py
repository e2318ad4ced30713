"""A table as files that people take along: CSV, Parquet and Markdown. Text from records stays text in each."""

from __future__ import annotations

from io import BytesIO

import pandas as pd

from roofwatch.ci.report.markdown import code, table

_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(frame: pd.DataFrame) -> bytes:
    """With a quote before what a spreadsheet would take for a formula.

    Source: OWASP, CSV Injection (https://owasp.org/www-community/attacks/CSV_Injection).
    """
    return frame.map(_inert).to_csv(index=False).encode()


def to_parquet(frame: pd.DataFrame) -> bytes:
    """Numbers as they are, in the units of the columns' names."""
    written = BytesIO()
    frame.to_parquet(written, index=False)
    return written.getvalue()


def to_markdown(frame: pd.DataFrame) -> bytes:
    """A table for a comment or a document."""
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    return "\n".join([*table([str(column) for column in frame.columns], rows), ""]).encode()


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINS_A_FORMULA) else value


def _cell(value: object) -> str:
    if isinstance(value, str):
        return code(value) if value else ""
    return "" if value is None or value != value else f"{value:.6g}" if isinstance(value, float) else str(value)
