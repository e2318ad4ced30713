"""Show a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

NO_VALUE = "–"
_ROWS_SHOWN = 25
_SCROLLED_PX = 900
"""Height of a table with more rows."""


def show_table(
    frame: pd.DataFrame,
    *,
    formats: Mapping[str, Callable[[Any], str]] | None = None,
    help_texts: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    if_empty: str | None = None,
    key: str | None = None,
) -> None:
    """Show a table; text from records is never interpreted.

    Args:
        frame: Values.
        formats: Number formats by column.
        help_texts: Help by column, as Markdown.
        links: Link text by column of addresses.
        if_empty: Shown instead of a table without rows.
        key: Key of the table.
    """
    if frame.empty and if_empty is not None:
        st.text(if_empty)
        return
    config = {
        **{name: st.column_config.Column(help=text) for name, text in (help_texts or {}).items()},
        **{name: st.column_config.LinkColumn(display_text=word) for name, word in (links or {}).items()},
    }
    written: dict[Any, str | Callable[[object], str] | None] = {
        name: write for name, write in (formats or {}).items() if name in frame
    }
    st.dataframe(
        frame.style.format(written, na_rep=NO_VALUE),
        hide_index=True,
        column_config=config,
        placeholder=NO_VALUE,
        height="content" if len(frame) <= _ROWS_SHOWN else _SCROLLED_PX,
        key=key,
    )
