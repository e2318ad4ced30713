"""One way to show a table: numbers stay numbers for sorting and are written in their unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

NO_VALUE = "–"
_MAX_ROWS_UNFOLDED = 30


def show_table(
    frame: pd.DataFrame,
    *,
    formats: Mapping[str, Callable[[float], str]] | None = None,
    columns: Mapping[str, Any] | None = None,
) -> None:
    """Show a frame as it is: cells are drawn on a canvas, so text from records is never interpreted.

    Args:
        frame: A table of up to 30 rows is shown whole; a longer one scrolls.
        formats: How the numbers of a column are written; they become floats.
        columns: Streamlit's column configuration.
    """
    formats = formats or {}
    frame = frame.astype(dict.fromkeys(formats, float))
    # pandas-stubs wants callables that take any object, which a column of floats never holds
    written: dict[Any, Any] = dict(formats)
    st.dataframe(
        frame.style.format(written, na_rep=NO_VALUE),
        hide_index=True,
        height="content" if len(frame) <= _MAX_ROWS_UNFOLDED else 1_000,
        placeholder=NO_VALUE,
        column_config=dict(columns or {}),
    )
