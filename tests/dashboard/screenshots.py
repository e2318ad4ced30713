"""Make the README's screenshots from what `roofwatch demo` measured: `make screenshots`."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect

from roofwatch.demo.run import DATABASE
from tests.dashboard.browsing import Watched, launched, new_context, watch
from tests.dashboard.served import serving

_WIDTH_PX = 1_280
_FIGURE, _TABLE = ".js-plotly-plot .main-svg", "[data-testid=stDataFrame]"
_COLOURS = 192
"""Of a picture: as many as a page of text and lines needs, for a third of the size."""
_SAMPLES = "base, medians of its blocks"
"""In the legend of a regression that has times on both sides."""


def take(demo: Path, images: Path) -> None:
    """Write `dashboard`, `regression`, `trends`, `kernel` and `compare`, all `.png`: from what got
    slower to why.

    Args:
        demo: Where the demo measured.
        images: Folder to write to; what bears these names there is replaced.
    """
    with (
        serving(data_dir=demo.absolute() / DATABASE) as served,
        launched() as browser,
        new_context(browser) as context,
    ):
        watched = watch(context, served.address)
        watched.open("/")
        _save(watched, images / "dashboard.png", height_px=1_150, shows=_TABLE)
        _open_one_with_times(watched)
        _save(watched, images / "regression.png", height_px=1_400)
        _follow(watched, "Trend", "Trends")
        _save(watched, images / "trends.png", height_px=960)
        _open_one_with_times(watched)
        _follow(watched, "Roofline at this commit", "Kernel")
        _save(watched, images / "kernel.png", height_px=900)
        _open_one_with_times(watched)
        _follow(watched, "Compare commits", "Compare")
        _save(watched, images / "compare.png", height_px=800, shows=_TABLE)
        watched.close()


def _open_one_with_times(watched: Watched) -> None:
    """Open the first regression of a time, because only these have samples."""
    watched.open("/")
    links = watched.page.get_by_role("link", name="Details", exact=True)
    for number in range(links.count()):
        watched.open("/")
        links.nth(number).click()
        _wait_for(watched, "Regression")
        if watched.page.locator(".js-plotly-plot").get_by_text(_SAMPLES).count():
            return
    raise SystemExit(
        "no open regression of the demo has times on both sides: run it again on a quiet machine"
    )


def _follow(watched: Watched, link: str, heading: str) -> None:
    watched.page.get_by_role("link", name=link, exact=True).first.click()
    _wait_for(watched, heading)


def _wait_for(watched: Watched, heading: str) -> None:
    expect(watched.page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    watched.wait_until_shown()


def _save(watched: Watched, file: Path, *, height_px: int, shows: str = _FIGURE) -> None:
    """Save the upper part of a view."""
    watched.page.set_viewport_size({"width": _WIDTH_PX, "height": height_px})
    expect(watched.page.locator(shows).first).to_be_visible()
    # what was hovered over when the link was clicked would stand out
    watched.page.mouse.move(0, 0)
    watched.page.screenshot(path=file, animations="disabled")
    with Image.open(file) as whole:
        small = whole.convert("RGB").quantize(
            _COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    small.save(file, optimize=True)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
