"""Chromium pages with their errors and accessibility violations."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from tests.dashboard.served import ROOT

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SCREENSHOTS = ROOT / "test-output"
TIMEOUT_MS = 30_000
_GRAVE, _HEADINGS = {"serious", "critical"}, "heading-order"
_SCREEN: ViewportSize = {"width": 1280, "height": 900}


@dataclass
class Watched:
    """A page with its errors."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.address + path)
        self.wait_until_shown()

    def wait_until_shown(self) -> None:
        expect(self.page.get_by_test_id("stApp")).to_have_attribute(
            "data-test-script-state", "notRunning"
        )
        expect(self.page.get_by_role("heading", level=1)).to_be_attached()
        # the last element of a view is drawn last
        expect(self.page.get_by_test_id("stSkeleton")).to_have_count(0)

    def choose(self, label: str, option: str) -> None:
        """One of a list."""
        box = self.page.get_by_role("combobox", name=label)
        box.scroll_into_view_if_needed()
        # a list closes when the page is scrolled, which a browser tells with its next picture
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        box.click()
        self.page.get_by_role("option", name=option, exact=True).click()

    @property
    def main(self) -> Locator:
        return self.page.get_by_test_id("stMain")

    @property
    def text(self) -> str:
        return self.main.inner_text()

    def save_screenshot(self, name: str) -> None:
        """The whole view, at the width of a small laptop."""
        SCREENSHOTS.mkdir(exist_ok=True)
        height = self.main.evaluate("main => main.scrollHeight")
        self.page.set_viewport_size({"width": 1280, "height": max(height, 600)})
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def close(self) -> None:
        """Close the page; whatever went wrong on it fails the test."""
        self.page.close()
        assert self.complaints == []


def watch(context: BrowserContext, address: str, *, also: Collection[str] = ()) -> Watched:
    """Open a page that collects errors; it may request only the dashboard and the given
    addresses.
    """
    hosts = {urlsplit(one).netloc for one in (address, *also)}
    page = context.new_page()
    watched = Watched(page, address)

    def on_console(message: ConsoleMessage) -> None:
        # Streamlit looks for its server below the path of the view first
        is_looking_for_server = "/_stcore/" in message.location.get("url", "")
        if message.type == "error" and not is_looking_for_server:
            watched.complaints.append(f"console: {message.text}")

    def on_request(request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme in {"http", "https", "ws", "wss"} and url.netloc not in hosts:
            watched.complaints.append(f"request to another host: {request.url}")

    page.on("pageerror", lambda error: watched.complaints.append(f"exception: {error}"))
    page.on("dialog", lambda dialog: watched.complaints.append(f"dialog: {dialog.message}"))
    page.on("console", on_console)
    page.on("request", on_request)
    return watched


@contextmanager
def new_context(browser: Browser, *, zone: str | None = None) -> Iterator[BrowserContext]:
    """A fresh light browser, in the time zone of this machine unless one is given."""
    with browser.new_context(viewport=_SCREEN, color_scheme="light", timezone_id=zone) as context:
        context.set_default_timeout(TIMEOUT_MS)
        yield context


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser until the block ends; skips the test if Chromium is not installed."""
    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on this machine")
    expect.set_options(timeout=TIMEOUT_MS)
    quiet = [
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*quiet, "--no-first-run", *as_root]
        )
        yield browser
        browser.close()


def grave_violations(page: Page) -> list[str]:
    """Return serious and critical violations, and headings that skip a level,
    one line per element.
    """
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {_selector(node)}: {node['html'][:200]} {_why(node)}"
        for rule in found
        if rule["impact"] in _GRAVE or rule["id"] == _HEADINGS
        for node in rule["nodes"]
    ]


def _selector(node: Mapping[str, Any]) -> str:
    return " ".join(map(str, node["target"]))


def _why(node: Mapping[str, Any]) -> str:
    return " ".join(check["message"] for check in node["any"])
