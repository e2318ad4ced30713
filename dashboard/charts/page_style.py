"""How every figure looks on a page, light or dark, without a theme that is merged into it in the browser. Pure.

Streamlit's theme is a Plotly template, and to Plotly a template that was read anew is another one: it draws all of a
figure a second time. What stands here is written into the figure instead. The text of axes and legends takes the ink of
the page (`STYLE`), so that it follows when a reader changes from light to dark; everything else is neutral on both.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import plotly.graph_objects as go

_FAMILY = '"Source Sans", sans-serif'
"""That of the page."""
_TEXT_PX, _TITLE_PX, _PAD_PX = 12, 14, 8
_LEGEND_PX, _LEGEND_SHARE, _LEGEND_LINE_PX = 40.0, 0.02, 19.0
"""Above a figure: the first line of its legend, the share of the height below that, and a further line."""
_ENTRY_PX, _CHARACTER_PX, _LINE_WIDTH_PX = 45.0, 6.2, 1_050.0
_MID_GREY = "#767676"
"""Has a contrast of 4.5 on white and of 4.2 on the dark page: for pictures that are saved without it."""
_GRID = "rgba(128, 128, 128, 0.25)"
_NOTHING = "rgba(0, 0, 0, 0)"
_AXIS: Mapping[str, Any] = {"automargin": True, "gridcolor": _GRID, "zerolinecolor": _GRID}
_AXIS_OF: Mapping[str, Mapping[str, Any]] = {
    "xaxis": {**_AXIS, "showgrid": False, "zeroline": False},
    "yaxis": _AXIS,
}
_TITLE_OF: Mapping[str, Mapping[str, Any]] = {
    "xaxis": {"font": {"size": _TITLE_PX}, "standoff": 20},
    "yaxis": {"font": {"size": _TITLE_PX}, "standoff": 24},
}
_LAYOUT: Mapping[str, Any] = {
    "paper_bgcolor": _NOTHING,
    "plot_bgcolor": _NOTHING,
    "font": {"family": _FAMILY, "size": _TEXT_PX, "color": _MID_GREY},
    "margin": {"pad": _PAD_PX},
    "modebar": {"bgcolor": _NOTHING, "color": _MID_GREY, "activecolor": "#3A96DD"},
    "hoverlabel": {
        "bgcolor": "#262730",
        "bordercolor": _MID_GREY,
        "font": {"family": _FAMILY, "size": _TEXT_PX, "color": "#FAFAFA"},
    },
}


def for_page(figure: go.Figure) -> go.Figure:
    """The same figure as a page shows it; what it says of its own look stays.

    Its revision is that of its contents: a browser that gets it twice draws it once.
    """
    figure.layout.template = None
    # as plain values: reading and setting one attribute of a figure at a time takes the server longer than drawing up
    layout = figure.layout.to_plotly_json()
    style = dict(_LAYOUT)
    for name, axis in layout.items():
        kind = name[: len("xaxis")]
        if kind in _AXIS_OF:
            style[name] = {key: value for key, value in _AXIS_OF[kind].items() if key not in axis}
            if "title" in axis:
                style[name]["title"] = _TITLE_OF[kind]
    if layout.get("showlegend"):
        style["margin"] = {**_LAYOUT["margin"], "t": _room_above(figure, layout["height"])}
    figure.update_layout(style)
    figure.layout.datarevision = sha256(figure.to_json(validate=False).encode()).hexdigest()[:16]
    return figure


def _room_above(figure: go.Figure, height_px: float) -> float:
    """For the legend on a usual screen: only on a narrow one Plotly has to widen it and draw all again."""
    lengths = [len(trace.name or "") for trace in figure.data if trace.showlegend is not False]
    entry_px = _ENTRY_PX + _CHARACTER_PX * max(lengths, default=0)
    is_one_line = sum(_ENTRY_PX + _CHARACTER_PX * length for length in lengths) <= _LINE_WIDTH_PX
    on_a_line = len(lengths) if is_one_line else max(int(_LINE_WIDTH_PX // entry_px), 1)
    line_count = max(-(-len(lengths) // (on_a_line or 1)), 1)
    return _LEGEND_PX + _LEGEND_SHARE * height_px + _LEGEND_LINE_PX * (line_count - 1)
