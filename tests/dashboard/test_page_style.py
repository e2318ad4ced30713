"""How figures look on a page: what the style says, and what a figure says of itself."""

import plotly.graph_objects as go

from roofwatch.dashboard.charts.page_style import for_page


def lines(y: list[float], **layout: object) -> go.Figure:
    return go.Figure(go.Scatter(y=y, name="a line")).update_layout(height=400, showlegend=True, **layout)


def test_a_figure_brings_no_template_which_a_browser_would_take_for_another_each_time() -> None:
    assert "template" not in for_page(lines([1.0])).to_plotly_json()["layout"]


def test_what_a_figure_says_of_its_axes_stays() -> None:
    figure = for_page(lines([1.0], xaxis={"showgrid": True}, yaxis={"title": "time", "gridcolor": "red"}))
    assert (figure.layout.xaxis.showgrid, figure.layout.yaxis.gridcolor) == (True, "red")
    assert (figure.layout.yaxis.title.text, figure.layout.yaxis.title.font.size) == ("time", 14)
    assert figure.layout.xaxis.gridcolor == "rgba(128, 128, 128, 0.25)"


def test_the_same_figure_has_the_same_revision_and_another_has_another() -> None:
    first, again, other = (for_page(lines(y)).layout.datarevision for y in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]))
    assert first == again
    assert first != other


def test_a_longer_legend_has_more_room() -> None:
    few, many = (
        for_page(go.Figure([go.Scatter(y=[1.0], name="a long name " * 4)] * count, {"height": 400, "showlegend": True}))
        for count in (2, 12)
    )
    assert many.layout.margin.t > few.layout.margin.t + 50


def test_a_figure_without_a_legend_has_no_room_for_one() -> None:
    assert for_page(lines([1.0]).update_layout(showlegend=False)).layout.margin.t is None
