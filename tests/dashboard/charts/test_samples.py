"""The samples of two sides."""

from __future__ import annotations

import re

from roofwatch.dashboard.charts.samples import samples_html
from tests.builders import make_blocks, make_measurement
from tests.dashboard.values import HOSTILE


def places(html: str, mark: str) -> list[float]:
    return [float(text) for text in re.findall(rf'<{mark} c?x1?="([\d.]+)%', html)]


def test_every_launch_is_a_line_on_the_axis_of_the_dots_of_blocks() -> None:
    base = make_measurement(blocks=make_blocks([1_000.0, 1_010.0]))
    head = make_measurement(blocks=make_blocks([2_000.0, 2_020.0]))
    html = samples_html({"A": base, "B": head})

    assert len(places(html, "line")) == 12
    dots = places(html, "circle")
    assert len(dots) == 4
    # the faster side is on the left
    assert max(dots[:2]) < min(dots[2:])
    assert "A: 6 samples in 2 blocks, median 1 µs" in html
    assert ">2 µs</span>" in html


def test_a_single_far_sample_does_not_squeeze_the_others() -> None:
    steady = [1_000.0 + step for step in range(200)]
    base = make_measurement(blocks=make_blocks([*steady, 90_000.0]))
    html = samples_html({"A": base})

    assert max(places(html, "circle")[:200]) - min(places(html, "circle")[:200]) > 50


def test_names_are_escaped() -> None:
    html = samples_html({HOSTILE: make_measurement()})
    assert "<img" not in html
