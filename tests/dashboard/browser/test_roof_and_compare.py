"""Roof and A ↔ B in Chromium."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import Engine

from tests.builders import sha_of
from tests.dashboard.browsing import Watched, grave_violations, new_context, watch
from tests.dashboard.gpu_history import HOT_AT, SOFTMAX, store_gpu_history
from tests.dashboard.history import HOSTILE_PROJECT, store_hostile_project
from tests.dashboard.served import serving
from tests.databases import Databases

# one worker, so that there is one server and one browser
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.slow]
ROOF = "/roof?kernel=softmax&range=all"
COMPARE = f"/compare?base={sha_of(HOT_AT - 1)}&head={sha_of(HOT_AT)}&range=all"
PHONE_PX = 390


def fill(engine: Engine) -> None:
    store_gpu_history(engine)
    store_hostile_project(engine)


@pytest.fixture(scope="module")
def address(databases: Databases) -> Iterator[str]:
    with databases.filled(fill) as (url, _), serving(database_url=url) as served:
        yield served.address


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    with new_context(browser) as context:
        watched = watch(context, address)
        yield watched
        watched.close()


def open_screen(watched: Watched, path: str) -> Page:
    watched.page.goto(watched.address + path)
    expect(watched.page.locator(".rw-markup > *").first).to_be_visible()
    expect(watched.page.get_by_test_id("stApp")).to_have_attribute(
        "data-test-script-state", "notRunning"
    )
    return watched.page


@pytest.mark.parametrize("path", [ROOF, COMPARE], ids=["roof", "compare"])
def test_neither_screen_loads_libraries_that_only_others_need(watched: Watched, path: str) -> None:
    requested: list[str] = []
    watched.page.on("request", lambda request: requested.append(request.url))
    page = open_screen(watched, path)

    assert page.locator(".js-plotly-plot").count() == 0
    assert not [url for url in requested if "Plotly" in url]
    assert not [url for url in requested if "SyntaxHighlighter" in url]
    assert grave_violations(page) == []


def test_a_row_of_the_roof_leads_to_its_history_without_loading_the_page_again(
    watched: Watched,
) -> None:
    page = open_screen(watched, ROOF)
    page.evaluate("globalThis.wasHere = true")
    row = page.locator(".rw-cells tbody tr").filter(has_text="n_rows=4096")
    # anywhere in the row
    row.click()

    expect(page).to_have_url(re.compile("case=softmax%2Fn_rows%3D4096"))
    expect(row).to_have_attribute("aria-current", "true")
    assert page.evaluate("globalThis.wasHere") is True


def test_a_point_explains_itself_as_soon_as_it_is_pointed_at(
    watched: Watched,
) -> None:
    page = open_screen(watched, f"{ROOF}&case={SOFTMAX.replace('/', '%2F')}&implementation=triton")
    hollow = page.locator(".rw-history circle[fill=none]").first
    hollow.hover(force=True)

    tip = page.locator(".rw-tip:visible")
    expect(tip).to_contain_text("80.0%, triton")
    expect(tip).to_contain_text(sha_of(HOT_AT)[:8])
    expect(tip).to_contain_text("throttled or shared")


def drag(page: Page, first: float, last: float) -> None:
    """Drag over the large history, between two shares of its width."""
    box = page.locator(".rw-history .rw-plot").first.bounding_box()
    assert box is not None
    height = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + first * box["width"], height)
    page.mouse.down()
    page.mouse.move(box["x"] + last * box["width"], height, steps=3)
    page.mouse.up()


def test_dragging_over_a_history_shows_these_dates_alone(watched: Watched) -> None:
    chosen = f"{ROOF}&case={SOFTMAX.replace('/', '%2F')}&implementation=triton"
    page = open_screen(watched, chosen)
    points = page.locator(".rw-history").first.locator("circle")
    all_points = points.count()
    assert all_points > 2

    drag(page, 0.4, 1.0)

    expect(page).to_have_url(re.compile(r"range=\d{4}-\d\d-\d\dT"))
    expect(page).to_have_url(re.compile("case=softmax"))
    expect(points).not_to_have_count(all_points)
    expect(points.first).to_be_visible()
    page.go_back()
    expect(points).to_have_count(all_points)


def test_lines_are_lighter_on_a_dark_page(browser: Browser, address: str) -> None:
    strokes: dict[str, str] = {}
    for scheme in ("light", "dark"):
        with browser.new_context(color_scheme=scheme) as context:
            watched = watch(context, address)
            page = open_screen(watched, ROOF)
            line = page.locator(".rw-spark polyline").first
            strokes[scheme] = line.evaluate("line => getComputedStyle(line).stroke")
            watched.close()

    assert strokes == {"light": "rgb(0, 114, 178)", "dark": "rgb(75, 166, 232)"}


def test_the_history_is_on_the_first_screen_beside_the_ten_first_rows(watched: Watched) -> None:
    watched.page.set_viewport_size({"width": 1440, "height": 900})
    page = open_screen(watched, ROOF)

    for part in (".rw-cells tbody tr", ".rw-history .rw-plot", ".rw-history .rw-dates"):
        box = page.locator(part).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, part
    heights = page.locator(".rw-cells tbody tr").evaluate_all(
        "rows => rows.map(row => row.getBoundingClientRect().height)"
    )
    assert max(heights) <= 30


@pytest.mark.parametrize("path", [ROOF, COMPARE], ids=["roof", "compare"])
def test_a_phone_shows_more_than_a_verdict_without_sideways_scrolling(
    watched: Watched, path: str
) -> None:
    watched.page.set_viewport_size({"width": PHONE_PX, "height": 844})
    page = open_screen(watched, path)

    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE_PX
    text = watched.text
    assert "80%" in text
    assert "triton" in text


def test_the_matrix_of_runners_is_two_lines_on_a_phone(watched: Watched) -> None:
    watched.page.set_viewport_size({"width": PHONE_PX, "height": 844})
    page = open_screen(watched, COMPARE)
    row = page.locator(".rw-matrix tbody tr").first

    # all at once: the page may still move
    boxes = row.locator("td").evaluate_all(
        "cells => cells.map(cell => cell.getBoundingClientRect())"
    )
    assert len({box["top"] for box in boxes}) == 2
    assert min(box["width"] for box in boxes) > 0
    assert max(box["right"] for box in boxes) <= PHONE_PX
    # no head names the counts
    name = (
        row.locator("[data-name]")
        .nth(1)
        .evaluate("part => getComputedStyle(part, '::before').content")
    )
    assert "slower" in name


def test_a_row_of_a_comparison_unfolds_with_its_command(watched: Watched) -> None:
    page = open_screen(watched, COMPARE)
    page.locator(".rw-case").filter(has_text="n_rows=4096").first.click()

    expect(page.locator(".rw-code")).to_contain_text("roofwatch ab")
    expect(page.locator(".rw-samples circle").first).to_be_visible()
    expect(page).to_have_url(re.compile("case=softmax"))


def download(watched: Watched, kind: str, folder: Path) -> Path:
    with watched.page.expect_download() as waiting:
        watched.page.get_by_role("button", name=kind).click()
    file = folder / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file


def test_what_is_downloaded_has_numbers_for_the_interval(watched: Watched, tmp_path: Path) -> None:
    open_screen(watched, COMPARE)
    csv, parquet, markdown = (
        download(watched, kind, tmp_path) for kind in ("CSV", "Parquet", "Markdown")
    )
    frame = pd.read_csv(csv).set_index(["case", "implementation"], drop=False)

    # raw values, without the symbols of the page
    assert not set("✓✕◆●–→") & set(csv.read_text())
    rows: dict[Hashable, dict[Hashable, Any]] = frame.to_dict("index")
    slower = rows[SOFTMAX, "triton"]
    assert slower["relative change"] == pytest.approx(0.3, abs=0.01)
    # too few of its blocks are undisturbed; those of the library's row are
    assert pd.isna(slower["interval low"])
    library = rows[SOFTMAX, "torch"]
    assert library["interval low"] <= library["relative change"] <= library["interval high"]
    assert slower["machine code"] == "changed on 2 of 2: sm_90, sm_100"
    assert list(pd.read_parquet(parquet).columns) == list(frame.columns)
    assert len(markdown.read_text().splitlines()) == len(frame) + 2


@pytest.mark.parametrize("screen_name", ["roof", "compare"])
def test_hostile_names_are_text(watched: Watched, screen_name: str) -> None:
    page = open_screen(watched, f"/{screen_name}?project={HOSTILE_PROJECT}&range=all")

    assert page.evaluate("globalThis.wasRun") is None
    expect(page.locator(".rw-markup img, .rw-markup script")).to_have_count(0)
