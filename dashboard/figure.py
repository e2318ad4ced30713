"""One way to show a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from streamlit.elements.plotly_chart import PlotlyState

from roofwatch.dashboard.charts.page_style import for_page


def show_figure(figure: go.Figure, *, key: str) -> None:
    """Show a figure in the style of the page."""
    st.plotly_chart(for_page(figure), key=key, theme=None)


def show_selectable_figure(
    figure: go.Figure, *, key: str, on_select: Callable[[], None], config: Mapping[str, Any]
) -> PlotlyState:
    """Show a figure whose points can be clicked on, and on which a box can be drawn.

    Args:
        figure: As it begins.
        key: Of what is selected, in the session.
        on_select: Called when a reader selected something, before the view is drawn again.
        config: Plotly's, of its buttons.

    Returns:
        What is selected.
    """
    # Streamlit would set it once the figure is drawn, and Plotly draw all of it again
    figure.update_layout(clickmode="event+select")
    return st.plotly_chart(
        for_page(figure),
        key=key,
        theme=None,
        on_select=on_select,
        selection_mode=("points", "box"),
        config=dict(config),
    )
