"""A published site in Chromium, opened as files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import Engine

from roofwatch.model.metrics import METRICS
from roofwatch.model.series_filter import SeriesFilter
from roofwatch.publish.shards import STATIC_RUNNER
from roofwatch.publish.site import PublishedSite, publish, publish_new_runs
from roofwatch.store.database_source import DatabaseSource
from tests.builders import PROJECT
from tests.dashboard.browsing import SCREENSHOTS, grave_violations, new_context
from tests.dashboard.history import HOSTILE_PROJECT, store_history, store_hostile_project

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]


def publish_to(store: Engine, project: str, folder: Path) -> str:
    publish_new_runs(project, DatabaseSource(store), folder)
    return folder.as_uri()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that may have no error and ask no other host."""
    complaints: list[str] = []
    with new_context(browser) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            # axe reads the style sheets again, which the page does not allow
            lambda line: (
                complaints.append(line.text)
                if line.type == "error" and ".css" not in line.text
                else None
            ),
        )
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith(("file:", "data:", "blob:"))
                else complaints.append(asked.url)
            ),
        )
        yield page
    assert complaints == []


def open_page(page: Page, address: str) -> None:
    page.goto("about:blank")  # a page is loaded again, also if only the part after # differs
    page.goto(address)
    expect(page.get_by_role("status")).to_have_count(0)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_every_page_shows_its_answer(page: Page, store: Engine, tmp_path: Path) -> None:
    regressions = store_history(store)
    address = publish_to(store, PROJECT, tmp_path)

    open_page(page, f"{address}/index.html")
    expect(page.get_by_role("heading", level=1)).to_contain_text("open")
    expect(page.get_by_role("link", name="rms_norm").first).to_be_visible()
    assert grave_violations(page) == []
    page.screenshot(path=SCREENSHOTS / "published-overview.png", full_page=True)

    page.get_by_role("searchbox").fill("matm")
    expect(page.get_by_text("1 kernels")).to_be_visible()

    page.get_by_role("article").get_by_role("link").first.click()
    expect(page.locator(".rw-history polyline")).to_have_count(1)
    expect(page.get_by_role("table", name="What changed")).to_be_visible()
    assert grave_violations(page) == []

    open_page(page, f"{address}/kernel.html#kernel=matmul")
    expect(page.locator(".rw-history circle").first).to_be_visible()
    expect(page.get_by_role("table", name="The newest 50 runs")).to_be_visible()
    assert grave_violations(page) == []
    page.screenshot(path=SCREENSHOTS / "published-kernel.png", full_page=True)

    shas = {regression.commit.sha for regression in regressions}
    compiled = quote(STATIC_RUNNER)
    open_page(page, f"{address}/compare.html#head={min(shas)}&runner={compiled}")
    expect(page.get_by_text("give no verdict")).to_be_visible()
    code_size = page.get_by_label("metric").locator("option[value=code_bytes]")
    expect(code_size).to_have_text(METRICS["code_bytes"].title)
    assert grave_violations(page) == []


def test_compare_opens_on_a_runner_with_times(page: Page, store: Engine, tmp_path: Path) -> None:
    store_history(store)
    address = publish_to(store, PROJECT, tmp_path)

    open_page(page, f"{address}/compare.html")

    expect(page.get_by_label("metric")).to_have_value("median_ns")
    expect(page.get_by_label("runner")).not_to_have_value(STATIC_RUNNER)


def test_a_choice_is_in_the_address(page: Page, store: Engine, tmp_path: Path) -> None:
    store_history(store)
    address = publish_to(store, PROJECT, tmp_path)
    open_page(page, f"{address}/trends.html")

    page.get_by_label("kernel").select_option("rms_norm")

    expect(page).to_have_url(f"{address}/trends.html#kernel=rms_norm")
    expect(page.locator("main p.quiet").first).to_contain_text("rms_norm/")


def test_old_months_are_loaded_once_they_are_asked_for(
    page: Page, store: Engine, tmp_path: Path
) -> None:
    store_history(store)
    (series, *_) = DatabaseSource(store).read_series(SeriesFilter(PROJECT, kernel="matmul"))
    old, *rest = series.points
    long_ago = replace(old, run_id="old", measured_at=old.measured_at - timedelta(days=300))
    publish(PROJECT, [replace(series, points=(long_ago, *rest))], [], PublishedSite.read(tmp_path))
    address = f"{tmp_path.as_uri()}/kernel.html"
    loaded = "document.querySelectorAll('script[src*=\"data/20\"]').length"

    open_page(page, address)
    expect(page.locator(".rw-history circle")).to_have_count(len(rest))
    files_of_three_months = page.evaluate(loaded)
    page.get_by_label("time").select_option("everything")

    expect(page.locator(".rw-history circle")).to_have_count(len(series.points))
    assert page.evaluate(loaded) == files_of_three_months + 1


def test_pages_fit_a_phone(page: Page, store: Engine, tmp_path: Path) -> None:
    store_history(store)
    # names that other tools gave have no place to break at
    long_named = [
        replace(series, key=replace(series.key, case_id=f"{'matrix_product_' * 8}/n=1/float32/fwd"))
        for series in DatabaseSource(store).read_series(SeriesFilter(PROJECT, kernel="matmul"))
    ]
    publish(PROJECT, long_named, [], PublishedSite.read(tmp_path))
    address = tmp_path.as_uri()
    page.set_viewport_size({"width": 390, "height": 844})

    for name in ("index", "trends", "kernel", "compare"):
        open_page(page, f"{address}/{name}.html")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, name


def test_hostile_names_are_text(page: Page, store: Engine, tmp_path: Path) -> None:
    store_hostile_project(store)
    address = publish_to(store, HOSTILE_PROJECT, tmp_path)

    for name in ("index", "trends", "kernel", "compare"):
        open_page(page, f"{address}/{name}.html")
        assert page.evaluate("globalThis.wasRun") is None
        expect(page.locator("main img")).to_have_count(0)


VALUES = [
    (0.465, "ms", "465 µs"),
    (1_500.0, "us", "1.5 ms"),
    (2.5e9, "ns", "2.5 s"),
    (3_000.0, "GB/s", "3000 GB/s"),
    (3e12, "B/s", "3 TB/s"),
    (49_152.0, "bytes", "48 KiB"),
    (0.712, "share", "71.2%"),
    (1.25, "ratio", "1.25×"),
    (255.0, "registers", "255 registers"),
]
"""A value, its unit, and how a reader sees it."""


def test_values_are_written_in_units_that_exist(page: Page, store: Engine, tmp_path: Path) -> None:
    store_history(store)
    open_page(page, f"{publish_to(store, PROJECT, tmp_path)}/index.html")

    for value, unit, text in VALUES:
        written = page.evaluate("([value, unit]) => numberText(value, unit)", [value, unit])
        assert written == text
