"""What people see, in a real Chromium on a real server on a real database. Screenshots go to `test-output/`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from sqlalchemy import create_engine

from db.access.values import TriageState
from db.judged.judgements import replace_regressions
from db.judged.triage import regression_id, set_triage
from db.server import migrate
from db.storing.ingest import ingest_record
from db.values import Cause, Suspect
from tests.builders import (
    make_change_point,
    make_commit,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
)
from tests.dashboard.axe import grave_violations
from tests.dashboard.browsing import Scheme, Watched, launched, new_context, watch
from tests.dashboard.history import RMS_NORM, SLOWER_AT, SPILLS_AT, store_history
from tests.dashboard.served import serving
from tests.databases import Databases

# one worker, so that there is one server and one browser
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.long]

HOSTILE_PROJECT = "hostile/project"
HOSTILE = (
    "<img src=x onerror=globalThis.wasRun=1><script>globalThis.wasRun=1</script>[a](javascript:globalThis.wasRun=1)"
)
_MOST_STOPS = 40
"""Of the Tab key: the menu, the project and the filters come before the first regression."""
POINTS = ".js-plotly-plot .scatterlayer .point"
_MARGINS = """() => {
    const {layout, _fullLayout} = document.querySelector(".js-plotly-plot");
    return ["l", "r", "t", "b"].map(side => [_fullLayout._size[side], layout.margin[side]]);
}"""
"""Of the first figure: those that it has, and those that it began with."""
_INKS = "texts => texts.map(text => getComputedStyle(text).fill)"
VIEWS = {
    "overview": "/",
    "regression": "/regression",
    "trends": f"/trends?kernel=rms_norm&case={quote(RMS_NORM, safe='')}",
    "compare": f"/compare?base={make_commit(SLOWER_AT - 1).sha}&head={make_commit(SLOWER_AT).sha}",
    "kernel": f"/kernel?kernel=matmul&commit={make_commit(SPILLS_AT).sha}",
    "run": "/run",
    "runners": "/runners",
    "fleet": "/fleet",
}
UNFOLDED = {
    "overview": "/?table=open&improvements=open&settled=open",
    "trends": f"{VIEWS['trends']}&values=open&commit={make_commit(SLOWER_AT).sha}",
    "compare": f"{VIEWS['compare']}&samples=yes",
    "kernel": f"{VIEWS['kernel']}&diagnoses=open",
    "run": "/run?environment=open",
}
"""With all open that a reader can open."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


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
    regression = make_regression(
        1,
        project=HOSTILE_PROJECT,
        kernel=kernel,
        summary=HOSTILE,
        change_points=(change,),
        suspects=(Suspect(Cause.CODE, 1.0, HOSTILE),),
        family=HOSTILE,
    )
    replace_regressions(engine, HOSTILE_PROJECT, [regression])
    set_triage(
        engine,
        HOSTILE_PROJECT,
        regression_id(regression),
        TriageState.ACKNOWLEDGED,
        person=HOSTILE,
        reason=HOSTILE,
        actor=HOSTILE,
    )
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
    # a reader of the light page finds it as it opens, one of the dark page has opened all of it
    path = VIEWS[view] if scheme == "light" else UNFOLDED.get(view, VIEWS[view])
    watched.open(in_project(path, "example/project"))
    expect(watched.page.get_by_test_id("stAlertContentError")).to_have_count(0)
    expect(watched.page.get_by_test_id("stAlertContentWarning")).to_have_count(0)
    if view in {"trends", "kernel"}:
        expect(watched.page.locator(POINTS).first).to_be_visible()
    if view in {"regression", "trends", "kernel", "run"}:
        # else Plotly would have drawn it twice
        assert [side for side in watched.page.evaluate(_MARGINS) if side[0] > side[1] + 1] == []
    # nothing stands above the heading: Streamlit would write the strings there that are alone in a view's file
    assert watched.text.startswith(watched.page.get_by_role("heading", level=1).inner_text())
    watched.save_screenshot(f"{view}-{scheme}")
    needed, there = watched.main.evaluate("main => [main.scrollWidth, main.clientWidth]")
    assert needed <= there
    assert grave_violations(watched.page) == []
    watched.close()


def test_one_click_from_the_overview_says_which_commit_slowed_which_kernel_and_why(
    light: BrowserContext, dashboard: str
) -> None:
    commit = make_commit(SLOWER_AT)
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    # the oldest comes last: rms_norm became slower
    watched.page.get_by_role("link", name="Why", exact=True).nth(2).click()
    expect(watched.page.get_by_role("heading", name="Regression", exact=True)).to_be_visible()
    expect(watched.page.locator(".js-plotly-plot").get_by_text("head, 6 samples")).to_be_visible()
    watched.wait_until_shown()
    for part in (
        "rms_norm became 42 % slower",
        *(commit.sha, commit.author, commit.subject),
        "the machine code differs on 1 of 1 targets",
        "90%",
        "Base: median 10 µs of 6 samples. Head: median 14.2 µs of 6 samples.",
    ):
        assert part in watched.text
    watched.close()


def test_links_in_tables_stay_in_the_session_and_open_in_a_new_tab_where_a_reader_wants_one(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/?window=all", "example/project"))
    watched.page.evaluate("globalThis.isTheSamePage = true")
    cell = watched.main.locator(".rw-heat").get_by_role("link").first
    why = watched.page.get_by_role("link", name="Why", exact=True).first
    for link, title in ((cell, "Trends"), (why, "Regression")):
        with light.expect_page() as opened:
            link.click(modifiers=["Control"])
        expect(opened.value.get_by_role("heading", level=1)).to_have_text(title)
        opened.value.close()
    cell.click()
    expect(watched.page.get_by_role("heading", level=1)).to_have_text("Trends")
    expect(watched.page.locator(POINTS).first).to_be_visible()
    expect(watched.page).to_have_url(re.compile(r"/trends\?.*kernel="))
    watched.wait_until_shown()
    watched.page.go_back()
    expect(watched.page.get_by_role("heading", level=1)).to_have_text("Overview")
    watched.wait_until_shown()
    assert "window=all" in watched.page.url
    why.click()
    expect(watched.page.get_by_role("heading", level=1)).to_have_text("Regression")
    watched.wait_until_shown()
    watched.main.locator(".rw-table").get_by_role("link", name="trend", exact=True).first.click()
    expect(watched.page.get_by_role("heading", level=1)).to_have_text("Trends")
    watched.wait_until_shown()
    assert watched.page.evaluate("globalThis.isTheSamePage")
    watched.close()


def test_the_way_from_the_overview_to_the_cause_takes_a_keyboard_alone(light: BrowserContext, dashboard: str) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    why = watched.page.get_by_role("link", name="Why", exact=True).first
    for _ in range(_MOST_STOPS):
        watched.page.keyboard.press("Tab")
        if why.evaluate("link => link === document.activeElement"):
            break
    watched.page.keyboard.press("Enter")
    expect(watched.page.get_by_role("heading", name="Regression", exact=True)).to_be_visible()
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


def test_the_text_of_a_figure_follows_a_reader_who_turns_the_page_dark(light: BrowserContext, dashboard: str) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project(VIEWS["trends"], "example/project"))
    inked = watched.page.locator(".js-plotly-plot").locator(".xtick text, .ytitle, .legendtext")
    expect(inked.first).to_be_visible()
    (light_ink,) = set(inked.evaluate_all(_INKS))
    watched.page.emulate_media(color_scheme="dark")
    expect(watched.page.get_by_test_id("stApp")).not_to_have_css("color", light_ink)
    (dark_ink,) = set(inked.evaluate_all(_INKS))
    expect(watched.page.get_by_test_id("stApp")).to_have_css("color", dark_ink)
    assert dark_ink != light_ink
    watched.close()


def test_a_click_on_a_point_tells_of_its_commit_and_stays_in_the_address(
    browser: Browser, light: BrowserContext, dashboard: str
) -> None:
    commit = make_commit(SLOWER_AT)
    mine = watch(light, dashboard)
    mine.open(in_project(VIEWS["trends"], "example/project"))
    mine.page.locator(".js-plotly-plot .xy3 .point").first.click(force=True)
    expect(mine.page.get_by_role("link", name="Why", exact=True)).to_be_visible()
    expect(mine.page).to_have_url(re.compile(f"commit={commit.sha}"))
    mine.wait_until_shown()
    with new_context(browser) as another:
        theirs = watch(another, dashboard)
        theirs.open(mine.page.url.removeprefix(dashboard))
        expect(
            theirs.page.get_by_role("link", name=f"Compare with {make_commit(SLOWER_AT - 1).sha[:8]}")
        ).to_be_visible()
        theirs.page.get_by_role("link", name="Why", exact=True).click()
        expect(theirs.page.get_by_role("heading", name="Regression", exact=True)).to_be_visible()
        expect(theirs.main.get_by_text("rms_norm became 42 % slower").first).to_be_visible()
        theirs.close()
    mine.close()


def test_a_permalink_shows_another_reader_the_same(browser: Browser, light: BrowserContext, dashboard: str) -> None:
    mine = watch(light, dashboard)
    mine.open(in_project(VIEWS["trends"], "example/project"))
    mine.page.get_by_role("combobox", name="Metric", exact=True).click()
    mine.page.get_by_role("option", name="compute rate").click()
    expect(mine.page).to_have_url(re.compile("metric=flop_per_s"))
    mine.page.get_by_role("combobox", name="Scale").click()
    mine.page.get_by_role("option", name="logarithmic").click()
    expect(mine.page).to_have_url(re.compile("scale=logarithmic"))
    mine.wait_until_shown()
    whole = mine.page.locator(POINTS).count()
    draw_a_box(mine)
    expect(mine.page).to_have_url(re.compile(r"window=\d+&end=[0-9a-f]{40}"))
    mine.wait_until_shown()
    expect(mine.page.locator(POINTS)).not_to_have_count(whole)
    zoomed = mine.page.locator(POINTS).count()
    assert 0 < zoomed < whole
    with new_context(browser) as another:
        theirs = watch(another, dashboard)
        theirs.open(mine.page.url.removeprefix(dashboard))
        expect(theirs.page.locator(POINTS)).to_have_count(zoomed)
        assert theirs.page.url == mine.page.url
        assert "compute rate (FLOP/s), higher is better" in theirs.text
        assert theirs.text == mine.text
        theirs.close()
    mine.page.get_by_role("combobox", name="Commits").click()
    mine.page.get_by_role("option", name="all").click()
    expect(mine.page.locator(POINTS)).to_have_count(whole)
    assert "end=" not in mine.page.url
    mine.close()


def draw_a_box(watched: Watched) -> None:
    """Over the middle half of the figure's commits."""
    plot = watched.page.locator(".js-plotly-plot .draglayer .xy .nsewdrag").bounding_box()
    assert plot is not None
    middle = plot["y"] + plot["height"] / 2
    watched.page.mouse.move(plot["x"] + plot["width"] / 4, middle)
    watched.page.get_by_role("button", name="Box Select").click()
    watched.page.mouse.move(plot["x"] + plot["width"] / 4, middle)
    watched.page.mouse.down()
    watched.page.mouse.move(plot["x"] + plot["width"] * 3 / 4, middle, steps=5)
    watched.page.mouse.up()


def test_the_order_of_the_regressions_is_in_the_address(
    browser: Browser, light: BrowserContext, dashboard: str
) -> None:
    mine = watch(light, dashboard)
    mine.open(in_project("/", "example/project"))
    kernels = mine.main.locator(".rw-row strong")
    assert kernels.all_inner_texts() == ["rms_norm", "matmul", "rms_norm"]
    mine.page.get_by_role("combobox", name="Order by").click()
    mine.page.get_by_role("option", name="kernel").click()
    expect(kernels.first).to_have_text("matmul")
    expect(mine.page).to_have_url(re.compile("order=kernel"))
    with new_context(browser) as another:
        theirs = watch(another, dashboard)
        theirs.open(mine.page.url.removeprefix(dashboard))
        assert theirs.main.locator(".rw-row strong").all_inner_texts() == ["matmul", "rms_norm", "rms_norm"]
        theirs.close()
    mine.close()


def test_an_address_that_asks_for_what_is_not_there_gets_a_notice(light: BrowserContext, dashboard: str) -> None:
    watched = watch(light, dashboard)
    watched.open(f"/trends?project=no/such&kernel={quote(HOSTILE)}&dirty=perhaps")
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
    foreign = watched.main.locator("img[src='x'], script, a[href^='javascript'], [onerror]")
    expect(foreign).to_have_count(0)
    assert watched.page.evaluate("globalThis.wasRun") is None
    watched.close()
