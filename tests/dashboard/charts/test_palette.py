"""One palette for the dashboard, the published pages and their badges."""

import re
from pathlib import Path

import roofwatch.dashboard
import roofwatch.publish
from roofwatch.dashboard.charts.palette import BLUE, GREY, VERMILLION
from roofwatch.dashboard.logo import LOGO
from roofwatch.publish.badges import badge

DASHBOARD = Path(roofwatch.dashboard.__path__[0])
PUBLISHED = Path(roofwatch.publish.__path__[0]) / "static"


def test_figures_of_published_pages_have_the_colours_of_the_dashboard() -> None:
    script = (PUBLISHED / "app.js").read_text(encoding="utf-8")
    assert f'[BLUE, VERMILLION, GREY] = ["var(--rw-blue)", "{VERMILLION}", "{GREY}"]' in script
    style = (DASHBOARD / "assets" / "style.css").read_text(encoding="utf-8")
    assert f"--rw-slower-fill: {VERMILLION}; --rw-faster-fill: var(--rw-blue)" in style
    published_style = (PUBLISHED / "style.css").read_text(encoding="utf-8")
    light_then_dark = re.findall(r"--rw-blue: ([^;]+);", style)
    assert light_then_dark == re.findall(r"--rw-blue: ([^;]+);", published_style)
    assert light_then_dark[0] == BLUE
    assert VERMILLION in LOGO
    assert BLUE in LOGO


def test_no_badge_tells_good_from_bad_by_red_against_green() -> None:
    style = (PUBLISHED / "style.css").read_text(encoding="utf-8")
    for is_bad, variable in ((True, "--bad"), (False, "--good")):
        colour = style.partition(f"{variable}: ")[2].partition(";")[0]
        assert f'fill="{colour}"' in badge("rms_norm", "80 %", is_bad=is_bad)
