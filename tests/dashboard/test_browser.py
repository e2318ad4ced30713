"""What people see, in a real Chromium on a real server on a real database. Screenshots go to `test-output/`."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request, expect, sync_playwright
from sqlalchemy import create_engine

from db import migrate
from db.ingest import ingest_record
from db.judgements import replace_regressions
from tests.builders import (
    make_change_point,
    make_commit,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
)
from tests.dashboard.history import RMS_NORM, SLOWER_AT, SPILLS_AT, store_history
from tests.dashboard.served import ROOT, serving
from tests.databases import Databases

# one worker, so that there is one server and one browser
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCREENSHOTS = ROOT / "test-output"
HOSTILE_PROJECT = "hostile/project"
HOSTILE = (
    "<img src=x onerror=globalThis.wasRun=1><script>globalThis.wasRun=1</script>[a](javascript:globalThis.wasRun=1)"
)
POINTS = ".js-plotly-plot .scatterlayer .point"
VIEWS = {
    "overview": "/",
    "trends": f"/trends?kernel=rms_norm&case={quote(RMS_NORM, safe='')}",
    "compare": f"/compare?base={make_commit(SLOWER_AT - 1).sha}&head={make_commit(SLOWER_AT).sha}",
    "kernel": f"/kernel?kernel=matmul&commit={make_commit(SPILLS_AT).sha}",
}
TIMEOUT_MS = 30_000
Scheme = Literal["light", "dark"]


@dataclass
class Watched:
    """A page, and what went wrong on it."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.address + path)
        self.wait_until_shown()

    def wait_until_shown(self) -> None:
        expect(self.page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
        expect(self.page.get_by_role("heading", level=1)).to_be_visible()
        # the last element of a view is drawn last
        expect(self.page.get_by_test_id("stSkeleton")).to_have_count(0)

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


def watch(context: BrowserContext, address: str) -> Watched:
    """A new page, whose complaints are collected."""
    page = context.new_page()
    watched = Watched(page, address)

    def on_console(message: ConsoleMessage) -> None:
        # Streamlit looks for its server below the view's own path first, and then at the root
        is_probe = "/_stcore/" in message.location["url"] and "404" in message.text
        if message.type == "error" and not is_probe:
            watched.complaints.append(f"console: {message.text}")

    def on_request(request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme in {"http", "https", "ws", "wss"} and url.netloc != urlsplit(address).netloc:
            watched.complaints.append(f"request to another host: {request.url}")

    page.on("pageerror", lambda error: watched.complaints.append(f"exception: {error}"))
    page.on("dialog", lambda dialog: watched.complaints.append(f"dialog: {dialog.message}"))
    page.on("console", on_console)
    page.on("request", on_request)
    return watched


@contextmanager
def new_context(browser: Browser, scheme: Scheme = "light") -> Iterator[BrowserContext]:
    """A browser that remembers nothing."""
    with browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme) as context:
        context.set_default_timeout(TIMEOUT_MS)
        yield context


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on this machine")
    expect.set_options(timeout=TIMEOUT_MS)
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=[*quiet, "--no-first-run", *as_root])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def contexts(browser: Browser) -> Iterator[Mapping[Scheme, BrowserContext]]:
    """One context per colour scheme, shared by the tests: Streamlit's scripts are large, and cached."""
    with new_context(browser, "light") as light, new_context(browser, "dark") as dark:
        yield {"light": light, "dark": dark}


@pytest.fixture
def light(contexts: Mapping[Scheme, BrowserContext]) -> BrowserContext:
    return contexts["light"]


@pytest.fixture(scope="module")
def empty_dashboard(browser: Browser, databases: Databases) -> Iterator[str]:
    """Address of a dashboard without any run."""
    url = databases.make("template1")
    engine = create_engine(url)
    migrate.upgrade(engine)
    engine.dispose()
    with serving(database_url=url.render_as_string(hide_password=False)) as served:
        yield served.address
    databases.finish(url)


@pytest.fixture(scope="module")
def dashboard(browser: Browser, databases: Databases) -> Iterator[str]:
    """Address of a dashboard with the history of one project, and one project whose every text is an attack."""
    url = databases.make("template1")
    engine = create_engine(url)
    migrate.upgrade(engine)
    store_history(engine)
    kernel = HOSTILE.replace("/", "")
    case_id = f"{kernel}/n=1/float32/fwd"
    for number in range(2):
        record = make_record(
            number,
            project=HOSTILE_PROJECT,
            commit=make_commit(number, author=HOSTILE, subject=HOSTILE),
            measurements=[make_measurement(case_id, implementation=HOSTILE)],
        )
        ingest_record(engine, record)
    series = make_series_key(project=HOSTILE_PROJECT, case_id=case_id, implementation=HOSTILE)
    change = make_change_point(1, series=series, evidence=HOSTILE)
    regression = make_regression(1, project=HOSTILE_PROJECT, kernel=kernel, summary=HOSTILE, change_points=(change,))
    replace_regressions(engine, HOSTILE_PROJECT, [regression])
    engine.dispose()
    with serving(database_url=url.render_as_string(hide_password=False)) as served:
        yield served.address
    databases.finish(url)


def in_project(path: str, project: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}project={quote(project, safe='')}"


@pytest.mark.parametrize("view", VIEWS)
def test_an_empty_view_says_what_to_do(light: BrowserContext, empty_dashboard: str, view: str) -> None:
    watched = watch(light, empty_dashboard)
    watched.open(urlsplit(VIEWS[view]).path)
    assert "roofwatch run" in watched.text
    watched.save_screenshot(f"{view}-empty")
    watched.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_with_data_fits_the_screen_and_complains_of_nothing(
    contexts: Mapping[Scheme, BrowserContext], dashboard: str, view: str, scheme: Scheme
) -> None:
    watched = watch(contexts[scheme], dashboard)
    watched.open(in_project(VIEWS[view], "example/project"))
    expect(watched.page.get_by_test_id("stAlertContentError")).to_have_count(0)
    expect(watched.page.get_by_test_id("stAlertContentWarning")).to_have_count(0)
    if view in {"trends", "kernel"}:
        expect(watched.page.locator(POINTS).first).to_be_visible()
    watched.save_screenshot(f"{view}-{scheme}")
    needed, there = watched.main.evaluate("main => [main.scrollWidth, main.clientWidth]")
    assert needed <= there
    watched.close()


def test_a_regression_on_the_overview_leads_to_its_trend(light: BrowserContext, dashboard: str) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    # the oldest comes last: rms_norm became slower
    watched.page.get_by_role("link", name="Trend", exact=True).nth(2).click()
    expect(watched.page.get_by_role("heading", name="Trends")).to_be_visible()
    expect(watched.page.locator(".js-plotly-plot").get_by_text("+42.0%")).to_be_visible()
    assert quote(RMS_NORM, safe="") in watched.page.url
    watched.close()


def test_hovering_over_a_change_point_names_the_commit(light: BrowserContext, dashboard: str) -> None:
    commit = make_commit(SLOWER_AT)
    watched = watch(light, dashboard)
    watched.open(in_project(VIEWS["trends"], "example/project"))
    expect(watched.page.locator(".js-plotly-plot").get_by_text("+42.0%")).to_be_visible()
    watched.page.locator(".js-plotly-plot .xy3 .point").first.hover(force=True)
    hover = watched.page.locator(".hoverlayer")
    for part in (commit.sha[:8], commit.author, commit.subject, "confirmed"):
        expect(hover).to_contain_text(part)
    watched.close()


def test_a_permalink_shows_another_reader_the_same(browser: Browser, light: BrowserContext, dashboard: str) -> None:
    mine = watch(light, dashboard)
    mine.open(in_project(VIEWS["trends"], "example/project"))
    mine.page.get_by_role("combobox", name="Metric").click()
    mine.page.get_by_role("option", name="compute rate").click()
    expect(mine.page).to_have_url(re.compile("metric=flop_per_s"))
    mine.page.get_by_text("Logarithmic scale").click()
    expect(mine.page).to_have_url(re.compile("log=yes"))
    mine.wait_until_shown()
    with new_context(browser) as another:
        theirs = watch(another, dashboard)
        theirs.open(mine.page.url.removeprefix(dashboard))
        expect(theirs.page.locator(POINTS).first).to_be_visible()
        assert theirs.page.url == mine.page.url
        assert "compute rate (FLOP/s), higher is better" in theirs.text
        assert theirs.text == mine.text
        theirs.close()
    mine.close()


def test_an_address_that_asks_for_what_is_not_there_gets_a_notice(light: BrowserContext, dashboard: str) -> None:
    watched = watch(light, dashboard)
    watched.open(f"/trends?project=no/such&kernel={quote(HOSTILE)}&log=perhaps")
    expect(watched.page.get_by_test_id("stAlertContentWarning")).to_have_count(3)
    assert watched.page.evaluate("globalThis.wasRun") is None
    watched.close()


@pytest.mark.parametrize("view", VIEWS)
def test_text_from_records_is_never_run(light: BrowserContext, dashboard: str, view: str) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project(urlsplit(VIEWS[view]).path, HOSTILE_PROJECT))
    if view in {"trends", "kernel"}:
        expect(watched.page.locator(POINTS).first).to_be_visible()
        watched.page.locator(POINTS).first.hover(force=True)
        expect(watched.page.locator(".hoverlayer")).to_contain_text("onerror")
    watched.save_screenshot(f"{view}-hostile")
    expect(watched.main.locator("img[src='x'], script, a[href^='javascript']")).to_have_count(0)
    assert watched.page.evaluate("globalThis.wasRun") is None
    watched.close()
