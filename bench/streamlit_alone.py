"""A page of Streamlit with a heading and a line of two points, in the dashboard's own server: what no view is quicker
than (`dashboard_views.py`).
"""

from __future__ import annotations

import plotly.graph_objects as go
import streamlit as st

from roofwatch.dashboard.figure import show_figure
from roofwatch.dashboard.frame import MAIN_FIGURE
from roofwatch.dashboard.navigation import VIEWS

VIEW = "trends"
"""Whose address it has, since a page gets its head start by that."""


def _show() -> None:
    st.title(VIEWS[VIEW].title, anchor=False)
    show_figure(go.Figure(go.Scatter(y=[0.0, 1.0])), key=MAIN_FIGURE)


if __name__ == "__main__":
    st.set_page_config(layout="wide")
    pages = [st.Page(st.stop, title="nothing", default=True), st.Page(_show, title=VIEWS[VIEW].title, url_path=VIEW)]
    st.navigation(pages, position="hidden").run()
