"""Make the README's screenshots from what `roofwatch demo` measured: `make screenshots`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page, expect

from roofwatch.demo.folder import DemoFolder
from tests.dashboard.browsing import Watched, launched, new_context, watch
from tests.dashboard.served import serving

_WIDTH_PX, _HEIGHT_PX = 1280, 900
_TALL_PX = 1_700
"""Down to where the samples of a regression are drawn."""
_FIGURE = ".js-plotly-plot .main-svg"


def take(demo: Path, images: Path) -> None:
    """Write `dashboard.png`, `regression.png` and `trends.png`: what the first screen of each view shows.

    Args:
        demo: Where the demo measured.
        images: Folder to write to; what bears these names there is replaced.
    """
    with (
        serving(data_dir=DemoFolder(demo.absolute()).database) as served,
        launched() as browser,
        new_context(browser) as context,
    ):
        watched = watch(context, served.address)
        watched.page.set_viewport_size({"width": _WIDTH_PX, "height": _HEIGHT_PX})
        watched.open("/")
        _save(watched, images / "dashboard.png")
        _open_one_with_times(watched)
        watched.page.set_viewport_size({"width": _WIDTH_PX, "height": _TALL_PX})
        _save(watched, images / "regression.png")
        watched.page.set_viewport_size({"width": _WIDTH_PX, "height": _HEIGHT_PX})
        watched.page.get_by_role("link", name="Trend", exact=True).first.click()
        _wait_for(watched, "Trends")
        _save(watched, images / "trends.png")
        watched.close()


def _open_one_with_times(watched: Watched) -> None:
    """The first regression that moved a time: machine code and wrong results have no samples to show."""
    links = watched.page.get_by_role("link", name="Why", exact=True)
    for number in range(links.count()):
        watched.open("/")
        links.nth(number).click()
        _wait_for(watched, "Regression")
        drawn = watched.page.locator(".js-plotly-plot")
        if all(drawn.get_by_text(f"{side}, medians of its blocks").count() for side in ("base", "head")):
            return
    raise SystemExit("no open regression of the demo has times on both sides: run it again on a quiet machine")


def _wait_for(watched: Watched, heading: str) -> None:
    expect(watched.page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
    watched.wait_until_shown()


def _save(watched: Watched, file: Path) -> None:
    page: Page = watched.page
    expect(page.locator(_FIGURE).first).to_be_visible()
    page.screenshot(path=file)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
