"""Make the pictures of the documentation, on the made-up history of three GPUs: `make screenshots`."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.dashboard.browsing import launched
from tests.dashboard.served import serving

_SCREENS = {
    "ledger": "/?range=30d",
    "roof": "/roof?kernel=rms_norm&range=90d",
    "compare": "/compare?range=90d",
    "machines": "/machines?range=30d",
}
_DESK: ViewportSize = {"width": 1_440, "height": 900}
_PHONE: ViewportSize = {"width": 390, "height": 844}
_LOOKS: tuple[tuple[str, str, ViewportSize], ...] = (
    ("", "light", _DESK),
    ("-dark", "dark", _DESK),
    ("-phone", "light", _PHONE),
)
"""End of the name, colour scheme and size."""
_COLOURS = 192
"""Of a picture: as many as a page of text and lines needs, for a third of the size."""


def take(store: Path, images: Path) -> None:
    """Write each screen light, dark and on a phone, as `roof.png`, `roof-dark.png` and
    `roof-phone.png`.

    Args:
        store: Data folder of a dashboard.
        images: Folder to write to; what bears these names there is replaced.
    """
    with serving(data_dir=store.absolute()) as served, launched() as browser:
        for suffix, scheme, size in _LOOKS:
            for name, path in _SCREENS.items():
                _save(browser, served.address + path, images / f"{name}{suffix}.png", scheme, size)


def _save(browser: Browser, address: str, file: Path, scheme: str, size: ViewportSize) -> None:
    dark = scheme == "dark"
    with browser.new_context(viewport=size, color_scheme="dark" if dark else "light") as context:
        page = context.new_page()
        page.goto(address)
        _wait(page)
        page.screenshot(path=file, animations="disabled")
    with Image.open(file) as whole:
        small = whole.convert("RGB").quantize(
            _COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    small.save(file, optimize=True)


def _wait(page: Page) -> None:
    expect(page.locator(".rw-markup > *, .rw-table, .rw-card, .rw-machines").first).to_be_visible()
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
