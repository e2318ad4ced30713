"""HTML and SVG of ours on a page, whose figures show the title of the point under the pointer.

`st.html` removes SVG. Every text of a record must be escaped before it gets here.
"""

from pathlib import Path

import streamlit as st

from roofwatch.dashboard.charts import cells, forest, history, roofline, samples

_ASSETS = Path(__file__).parents[1] / "assets"
_STYLES = (
    cells.STYLE,
    forest.STYLE,
    history.STYLE,
    roofline.STYLE,
    samples.STYLE,
)
_markup = st.components.v2.component(
    "markup",
    html="<div class=rw-markup></div>",
    css="".join(_STYLES),
    js=(_ASSETS / "markup.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def show_markup(html: str, *, key: str) -> None:
    """Show HTML in which every text of a record is escaped."""
    _markup(data={"html": html}, key=key)
