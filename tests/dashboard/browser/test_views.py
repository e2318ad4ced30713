"""All views in Chromium, with a real server and database. Screenshots go to `test-output/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, expect
from sqlalchemy import Engine

from tests.builders import make_commit
from tests.dashboard.browsing import Watched, grave_violations, new_context, watch
from tests.dashboard.history import (
    HOSTILE_PROJECT,
    RMS_NORM,
    SLOWER_AT,
    SPILLS_AT,
    store_history,
    store_hostile_project,
)
from tests.dashboard.served import serving
from tests.databases import Databases

# one worker, so that there is one server and one browser
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
_MOST_STOPS = 40
"""Maximum presses of Tab until the first regression."""
POINTS = ".js-plotly-plot .scatterlayer .point"
PLOT = ".js-plotly-plot .draglayer .xy .nsewdrag"
_INK = "text => getComputedStyle(text).fill"
VIEWS = {
    "ledger": "/",
    "regression": "/regression",
    "roof": f"/roof?kernel=rms_norm&case={quote(RMS_NORM, safe='')}",
    "compare": f"/compare?base={make_commit(SLOWER_AT - 1).sha}&head={make_commit(SLOWER_AT).sha}",
    "kernel": f"/kernel?kernel=matmul&commit={make_commit(SPILLS_AT).sha}",
    "run": "/run",
    "machines": "/machines",
    "fleet": "/fleet",
}
UNFOLDED = {
    "ledger": "/?improvements=open&settled=open",
    "roof": f"{VIEWS['roof']}&values=open&commit={make_commit(SLOWER_AT).sha}",
    "compare": f"{VIEWS['compare']}&samples=yes",
    "kernel": f"{VIEWS['kernel']}&diagnoses=open",
    "run": "/run?environment=open",
}
"""With all expanders open."""


@pytest.fixture(scope="module")
def light(browser: Browser) -> Iterator[BrowserContext]:
    """A browser shared by the tests, because Streamlit's scripts are large."""
    with new_context(browser) as context:
        yield context


@pytest.fixture(scope="module")
def another(browser: Browser) -> Iterator[BrowserContext]:
    """A second browser that shares nothing with the first."""
    with new_context(browser) as context:
        yield context


@pytest.fixture(scope="module")
def dashboard(browser: Browser, databases: Databases) -> Iterator[str]:
    """Address of a dashboard with the history of one project, and one whose every text is an
    attack.
    """

    def fill(engine: Engine) -> None:
        store_history(engine)
        store_hostile_project(engine)

    with databases.filled(fill) as (url, _), serving(database_url=url) as served:
        yield served.address


def in_project(path: str, project: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}project={quote(project, safe='')}"


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_views_with_data_fit_the_screen_light_and_dark_without_errors(
    light: BrowserContext, dashboard: str, view: str
) -> None:
    watched = watch(light, dashboard)
    path = in_project(VIEWS[view], "example/project")
    watched.open(path)
    expect_no_flaw(watched, view)
    watched.save_screenshot(f"{view}-light")
    turn_dark(watched, has_figure=view == "roof")
    # what the server draws by the colour of the page is drawn anew
    watched.open(path)
    expect_no_flaw(watched, view)
    if view in UNFOLDED:
        watched.open(in_project(UNFOLDED[view], "example/project"))
        expect_no_flaw(watched, view)
    watched.save_screenshot(f"{view}-dark")
    watched.close()


def expect_no_flaw(watched: Watched, view: str) -> None:
    expect(watched.page.get_by_test_id("stAlertContentError")).to_have_count(0)
    expect(watched.page.get_by_test_id("stAlertContentWarning")).to_have_count(0)
    if view in {"roof", "kernel"}:
        expect(watched.page.locator(POINTS).first).to_be_visible()
    # nothing stands above the heading: Streamlit would write the strings there that are alone in a
    # view's file
    assert watched.text.startswith(watched.page.get_by_role("heading", level=1).inner_text())
    needed, there = watched.main.evaluate("main => [main.scrollWidth, main.clientWidth]")
    assert needed <= there
    assert grave_violations(watched.page) == []


def turn_dark(watched: Watched, *, has_figure: bool) -> None:
    """Switch the system from light to dark; the text of figures follows."""
    inked = watched.page.locator(".js-plotly-plot").locator(".xtick text, .ytitle, .legendtext")
    shown = watched.page.get_by_test_id("stApp")
    light_ink = shown.evaluate("app => getComputedStyle(app).color")
    figure_ink = inked.first.evaluate(_INK) if has_figure else ""
    watched.page.emulate_media(color_scheme="dark")
    expect(shown).not_to_have_css("color", light_ink)
    if has_figure:
        expect(inked.first).not_to_have_css("fill", figure_ink)


def test_overview_links_to_cause_and_trend_by_keyboard_and_click(
    light: BrowserContext, dashboard: str
) -> None:
    commit = make_commit(SLOWER_AT)
    watched = watch(light, dashboard)
    watched.open(in_project("/overview", "example/project"))
    expect(watched.page.get_by_role("dialog")).to_have_count(0)
    expect(watched.page).to_have_title("Overview · roofwatch")
    heading = watched.page.get_by_role("heading", level=1)
    why = watched.page.get_by_role("link", name="Details", exact=True)
    for _ in range(_MOST_STOPS):
        watched.page.keyboard.press("Tab")
        if why.first.evaluate("link => link === document.activeElement"):
            break
    expect(why.first).to_have_css("outline-style", "solid")
    expect_rows_in_columns(watched)
    watched.page.keyboard.press("Enter")
    expect(heading).to_have_text("Regression")
    go_back(watched, "Overview")

    # the oldest comes last: rms_norm became slower
    why.nth(2).click()
    expect(heading).to_have_text("Regression")
    expect(watched.page.locator(".js-plotly-plot").get_by_text("head, 6 samples")).to_be_visible()
    watched.wait_until_shown()
    for part in (
        "rms_norm became 42 % slower",
        commit.sha,
        commit.author,
        commit.subject,
        "the machine code differs on 1 of 1 targets",
        "90%",
        "Best evidence: Example CPU",
        "Not bisected",
        "Base: median 10 µs of 2 blocks, 6 samples. Head: median 14.2 µs of 2 blocks, 6 samples.",
    ):
        assert part in watched.text
    # the first screen says which kernel and commit, why, and from which series
    first_screen = (
        "rms_norm became 42 % slower",
        commit.subject,
        "the machine code differs on 1 of 1 targets",
    )
    assert max(bottom_of(watched.main.get_by_text(part).first) for part in first_screen) < 900
    assert bottom_of(watched.page.locator(".js-plotly-plot").first) < 900
    go_back(watched, "Overview")

    watched.page.get_by_role("link", name="Trend", exact=True).nth(2).click()
    expect(heading).to_have_text("Trends")
    expect(watched.page.locator(".js-plotly-plot").get_by_text("+42.0%")).to_be_visible()
    assert quote(RMS_NORM, safe="") in watched.page.url
    watched.close()


def expect_rows_in_columns(watched: Watched) -> None:
    """The cells of all regressions are below each other at any width, and one below the other on a
    phone.
    """
    for width, columns in ((1_600, 5), (1_280, 5), (390, 1)):
        watched.page.set_viewport_size({"width": width, "height": 900})
        lefts = watched.page.locator(".rw-row > div").evaluate_all(
            "cells => cells.map(cell => Math.round(cell.getBoundingClientRect().left))"
        )
        assert len(set(lefts)) == columns
        rows = watched.page.locator(".rw-map").last
        assert rows.evaluate("map => map.scrollHeight <= map.clientHeight + 1")
    watched.page.set_viewport_size({"width": 1_280, "height": 900})


def bottom_of(place: Locator) -> float:
    box = place.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


def test_slash_starts_a_search_whose_results_link_to_the_views(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/fleet?filter_kernel=matmul", "example/project"))
    field = watched.page.get_by_role("searchbox", name="Search")
    for _ in range(100):  # until the script that listens is loaded
        watched.page.keyboard.press("/")
        if field.evaluate("field => field === document.activeElement"):
            break
        watched.page.wait_for_timeout(100)
    watched.page.keyboard.type("rms fwd")
    watched.page.keyboard.press("Enter")
    watched.main.get_by_role("row", name=f"case {RMS_NORM}").get_by_role(
        "link", name="Trend"
    ).click()
    expect(watched.page.get_by_role("heading", level=1)).to_have_text("Trends")
    watched.wait_until_shown()
    assert f"case={quote(RMS_NORM, safe='')}" in watched.page.url

    expect(field).to_have_value("")
    field.fill(make_commit(SLOWER_AT).sha[:7])
    field.press("Enter")
    watched.main.get_by_role("link", name="Regression").click()
    expect(watched.page).to_have_title("rms_norm +42.0% · Regression · roofwatch")

    # a view without enough to show ends with advice
    watched.open(in_project("/compare?by=branches", "example/project"))
    expect(watched.main.get_by_text("roofwatch ingest roofwatch-records")).to_be_visible()
    watched.close()


def go_back(watched: Watched, title: str) -> None:
    watched.wait_until_shown()
    watched.page.go_back()
    expect(watched.page.get_by_role("heading", level=1)).to_have_text(title)
    watched.wait_until_shown()


@pytest.mark.slow
def test_hover_names_the_commit_and_a_click_adds_it_to_the_address(
    light: BrowserContext, another: BrowserContext, dashboard: str
) -> None:
    commit = make_commit(SLOWER_AT)
    mine = watch(light, dashboard)
    mine.open(in_project(VIEWS["roof"], "example/project"))
    expect(mine.page.locator(".js-plotly-plot").get_by_text("+42.0%")).to_be_visible()
    change = mine.page.locator(".js-plotly-plot .xy3 .point").first
    change.hover(force=True)
    for part in (commit.sha[:8], commit.author, commit.subject, "confirmed"):
        expect(mine.page.locator(".hoverlayer")).to_contain_text(part)
    change.click(force=True)
    details = mine.page.get_by_role("link", name="Details", exact=True)
    expect(details).to_be_visible()
    assert bottom_of(details) < 900
    expect(mine.page.locator(POINTS).first).to_have_css("opacity", "1")
    expect(mine.page).to_have_url(re.compile(f"commit={commit.sha}"))
    mine.wait_until_shown()
    theirs = watch(another, dashboard)
    theirs.open(mine.page.url.removeprefix(dashboard))
    expect(
        theirs.page.get_by_role("link", name=f"Compare with {make_commit(SLOWER_AT - 1).sha[:8]}")
    ).to_be_visible()
    theirs.page.get_by_role("link", name="Details", exact=True).click()
    expect(theirs.page.get_by_role("heading", name="Regression", exact=True)).to_be_visible()
    expect(theirs.page).to_have_title("rms_norm +42.0% · Regression · roofwatch")
    expect(theirs.main.get_by_text("rms_norm became 42 % slower").first).to_be_visible()
    theirs.close()
    mine.close()


@pytest.mark.slow
def test_a_permalink_shows_another_reader_the_same(
    light: BrowserContext, another: BrowserContext, dashboard: str
) -> None:
    mine = watch(light, dashboard)
    mine.open(in_project(VIEWS["roof"], "example/project"))
    mine.page.get_by_role("combobox", name="Metric", exact=True).click()
    mine.page.get_by_role("option", name="compute rate").click()
    expect(mine.page).to_have_url(re.compile("metric=flop_per_s"))
    mine.page.get_by_role("combobox", name="Scale").click()
    mine.page.get_by_role("option", name="logarithmic").click()
    expect(mine.page).to_have_url(re.compile("scale=logarithmic"))
    mine.wait_until_shown()
    whole = mine.page.locator(POINTS).count()
    drag_over_the_middle(mine)
    expect(mine.page).to_have_url(re.compile(r"window=\d+&end=[0-9a-f]{40}"))
    mine.wait_until_shown()
    expect(mine.page.locator(POINTS)).not_to_have_count(whole)
    zoomed = mine.page.locator(POINTS).count()
    assert 0 < zoomed < whole
    theirs = watch(another, dashboard)
    theirs.open(mine.page.url.removeprefix(dashboard))
    expect(theirs.page.locator(POINTS)).to_have_count(zoomed)
    assert theirs.page.url == mine.page.url
    assert "compute rate (FLOP/s), higher is better" in theirs.text
    assert theirs.text == mine.text
    theirs.close()
    mine.page.locator(PLOT).dblclick()
    expect(mine.page.locator(POINTS)).to_have_count(whole)
    expect(mine.page).not_to_have_url(re.compile("end="))
    drag_over_the_middle(mine)
    expect(mine.page).to_have_url(re.compile("end="))
    mine.page.go_back()
    expect(mine.page.locator(POINTS)).to_have_count(whole)
    mine.close()


def drag_over_the_middle(watched: Watched) -> None:
    """Zoom to the middle half of the commits."""
    plot = watched.page.locator(PLOT).bounding_box()
    assert plot is not None
    middle = plot["y"] + plot["height"] / 2
    watched.page.mouse.move(plot["x"] + plot["width"] / 4, middle)
    watched.page.mouse.down()
    watched.page.mouse.move(plot["x"] + plot["width"] * 3 / 4, middle, steps=5)
    watched.page.mouse.up()


@pytest.fixture(scope="module")
def attacked(light: BrowserContext, dashboard: str) -> Iterator[Watched]:
    """A page of the hostile project, shared by the tests."""
    watched = watch(light, dashboard)
    watched.open(in_project("/", HOSTILE_PROJECT))
    yield watched
    watched.close()


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_text_from_records_is_never_run(attacked: Watched, view: str) -> None:
    attacked.open(in_project(urlsplit(VIEWS[view]).path, HOSTILE_PROJECT))
    if view in {"roof", "kernel"}:
        expect(attacked.page.locator(POINTS).first).to_be_visible()
        attacked.page.locator(POINTS).first.hover(force=True)
        expect(attacked.page.locator(".hoverlayer")).to_contain_text("onerror")
    attacked.save_screenshot(f"{view}-hostile")
    assert "\u202e" not in attacked.text
    foreign = attacked.main.locator("img[src='x'], script, a[href^='javascript'], [onerror]")
    expect(foreign).to_have_count(0)
    assert attacked.page.evaluate("globalThis.wasRun") is None
    assert attacked.complaints == []
