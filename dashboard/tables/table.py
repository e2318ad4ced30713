"""One way to show a table: numbers stay numbers for sorting and are written in their unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.tables.markup import NO_VALUE, Column, table_html

_MOST_ROWS_AS_HTML = 200
_SCROLLED_PX = 1_000


def show_table(
    frame: pd.DataFrame,
    *,
    formats: Mapping[str, Callable[[float], str]] | None = None,
    columns: Mapping[str, Column] | None = None,
) -> None:
    """Show a frame as it is, in its order; text from records is never interpreted.

    Args:
        frame: A table of up to 200 rows is shown as text; a longer one is drawn on a canvas. Both scroll.
        formats: How the numbers of a column are written; they become floats.
        columns: What is said of some of them.
    """
    formats, columns = formats or {}, columns or {}
    if len(frame) <= _MOST_ROWS_AS_HTML:
        st.html(table_html(frame, formats=formats, columns=columns))
        return
    frame = frame.astype(dict.fromkeys(formats, float))
    # pandas-stubs wants callables that take any object, which a column of floats never holds
    written: dict[Any, Any] = dict(formats)
    st.dataframe(
        frame.style.format(written, na_rep=NO_VALUE),
        hide_index=True,
        height=_SCROLLED_PX,
        placeholder=NO_VALUE,
        column_config={name: _configured(name, column) for name, column in columns.items()},
    )


def _configured(name: str, column: Column) -> Any:
    if column.link_text is not None:
        return st.column_config.LinkColumn(name, display_text=column.link_text, width=column.width)
    return st.column_config.Column(help=column.help, width=column.width)
