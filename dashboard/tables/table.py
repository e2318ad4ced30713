"""One way to show a table: text that a browser can search and copy, and of a long one a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
import streamlit as st

from roofwatch.dashboard.tables.markup import Column, table_html
from roofwatch.dashboard.tables.part import in_order_of, part_title, rows_with

_MOST_ROWS = 200
"""At once: a browser draws more of them slowly, and nobody reads them."""
_AS_LISTED = "as listed"


def show_table(
    frame: pd.DataFrame,
    *,
    formats: Mapping[str, Callable[[float], str]] | None = None,
    columns: Mapping[str, Column] | None = None,
    name: str = "",
) -> None:
    """Show a frame as it is, in its order; text from records is never interpreted.

    Args:
        frame: Of more than 200 rows so many are shown at a time; a reader can look for words and change the order.
        formats: How the numbers of a column are written; they become floats.
        columns: What is said of some of them.
        name: Tells the table apart from another one of the view that has the same columns.
    """
    formats, columns = formats or {}, columns or {}
    if len(frame) > _MOST_ROWS:
        frame = _chosen_part(frame, formats, columns, name)
    _write(frame, formats, columns)


def _write(frame: pd.DataFrame, formats: Mapping[str, Callable[[float], str]], columns: Mapping[str, Column]) -> None:
    st.html(table_html(frame, formats=formats, columns=columns))


def _chosen_part(
    frame: pd.DataFrame,
    formats: Mapping[str, Callable[[float], str]],
    columns: Mapping[str, Column],
    name: str,
) -> pd.DataFrame:
    told = [str(column) for column in frame if columns.get(str(column), Column()).link_text is None]
    key = "|".join(["part", name, *map(str, frame)])
    line = st.container(horizontal=True, vertical_alignment="bottom")
    words = line.text_input("Find in the table", key=f"{key}:find")
    order = line.selectbox("Sort the table by", [_AS_LISTED, *told], key=f"{key}:order")
    is_descending = line.toggle("Descending", key=f"{key}:descending", disabled=order == _AS_LISTED)
    frame = rows_with(frame, words, formats=formats, columns=told)
    if order != _AS_LISTED:
        frame = in_order_of(frame, order, is_descending=is_descending)
    if frame.empty:
        st.text("These words stand in no row of the table.")
        return frame
    firsts = list(range(0, len(frame), _MOST_ROWS))
    # of what was looked for there may be fewer parts
    if st.session_state.get(f"{key}:first") not in firsts:
        st.session_state[f"{key}:first"] = 0
    first = line.selectbox("From row", firsts, key=f"{key}:first", format_func=_from_one)
    st.text(part_title(first, len(frame), _MOST_ROWS))
    return frame.iloc[first : first + _MOST_ROWS]


def _from_one(first: int) -> str:
    return f"{first + 1:,}"
