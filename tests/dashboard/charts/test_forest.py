"""Relative changes with their intervals."""

from __future__ import annotations

import re

import pytest

from roofwatch.dashboard.charts.forest import ForestAxis, ForestRow
from roofwatch.model.verdict import Verdict

SLOWER = ForestRow(0.25, (0.2, 0.3), Verdict.REGRESSED)


def place(html: str, name: str) -> float:
    found = re.search(rf'class="{name}[^"]*" style="left:([\d.]+)%', html)
    assert found is not None
    return float(found[1])


def test_a_change_is_as_far_from_the_middle_as_its_inverse() -> None:
    axis = ForestAxis([SLOWER])
    assert axis.percent(0.25) - 50 == pytest.approx(50 - axis.percent(1 / 1.25 - 1))
    assert axis.percent(0.0) == 50


def test_all_parts_of_a_row_are_on_one_axis() -> None:
    axis = ForestAxis([SLOWER])
    html = axis.row_html(SLOWER)

    assert place(html, "dot") == pytest.approx(axis.percent(0.25), abs=0.05)
    assert place(html, "interval") == pytest.approx(axis.percent(0.2), abs=0.05)
    # 3 % to both sides
    assert place(html, "band") == pytest.approx(axis.percent(1 / 1.03 - 1), abs=0.05)
    assert "+25.0%, 95 % interval +20.0% to +30.0%" in html


def test_what_cannot_be_said_is_a_grey_ring_without_a_colour() -> None:
    undecided = ForestRow(0.25, None, Verdict.INCONCLUSIVE)
    html = ForestAxis([undecided]).row_html(undecided)
    assert "dot undecided" in html
    assert "#D55E00" not in html
    assert "interval" not in html


def test_verdicts_differ_in_form_as_well_as_in_colour() -> None:
    axis = ForestAxis([SLOWER])
    assert "dot regressed" in axis.row_html(SLOWER)
    assert "dot improved" in axis.row_html(ForestRow(-0.2, None, Verdict.IMPROVED))


def test_a_far_change_is_at_the_edge() -> None:
    far = ForestAxis([ForestRow(99.0, None, Verdict.REGRESSED)])
    assert far.percent(99.0) == 100


def test_a_small_change_keeps_its_size() -> None:
    near = ForestAxis([ForestRow(0.001, None, Verdict.UNCHANGED)])
    assert near.percent(0.001) == pytest.approx(50, abs=1)
    assert ">0%<" in near.axis_html()
