"""All views in Chromium, with a real server and database. Screenshots go to `test-output/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, expect
from sqlalchemy import Engine

from tests.builders import make_commit
from tests.dashboard.browsing import Watched, grave_violations, new_context, watch
from tests.dashboard.history import (
    BROKEN_AT,
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
VIEWS = {
    "ledger": "/",
    "ledger-commit": f"/?commit={make_commit(SLOWER_AT).sha}",
    "roof": f"/roof?kernel=rms_norm&case={quote(RMS_NORM, safe='')}",
    "compare": f"/compare?base={make_commit(SLOWER_AT - 1).sha}&head={make_commit(SLOWER_AT).sha}",
    "machines": "/machines",
}
UNFOLDED = {
    "ledger-commit": f"{VIEWS['ledger-commit']}&settled=open&every=open&evidence=open&trail=open",
    "machines": "/machines?costs=open&gaps=open",
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

    identity = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.email"}
    identity["GIT_CONFIG_VALUE_0"] = "me@example.com"
    with (
        databases.filled(fill) as (url, _),
        serving(database_url=url, environment=identity) as served,
    ):
        yield served.address


def in_project(path: str, project: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}project={quote(project, safe='')}"


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_views_with_data_fit_the_screen_in_each_colour_scheme_without_errors(
    light: BrowserContext, dashboard: str, view: str
) -> None:
    watched = watch(light, dashboard)
    path = in_project(VIEWS[view], "example/project")
    watched.open(path)
    expect_no_flaw(watched)
    watched.save_screenshot(f"{view}-light")
    watched.page.emulate_media(color_scheme="dark")
    watched.open(path)
    expect_no_flaw(watched)
    if view in UNFOLDED:
        watched.open(in_project(UNFOLDED[view], "example/project"))
        expect_no_flaw(watched)
    watched.save_screenshot(f"{view}-dark")
    watched.close()


def expect_no_flaw(watched: Watched) -> None:
    expect(watched.page.get_by_test_id("stAlertContentError")).to_have_count(0)
    expect(watched.page.get_by_test_id("stAlertContentWarning")).to_have_count(0)
    needed, there = watched.main.evaluate("main => [main.scrollWidth, main.clientWidth]")
    assert needed <= there
    assert grave_violations(watched.page) == []


def test_keys_choose_commits_on_the_first_screen_of_the_ledger(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.page.set_viewport_size({"width": 1_440, "height": 900})
    watched.open(in_project("/overview", "example/project"))
    rows = watched.page.locator("[data-row]")
    heights = rows.evaluate_all("rows => rows.map(row => row.getBoundingClientRect().height)")
    assert max(heights) <= 29
    for number, sha in ((0, BROKEN_AT), (1, SPILLS_AT), (2, SLOWER_AT)):
        expect(rows.nth(number)).to_contain_text(make_commit(sha).sha[:8])

    watched.page.keyboard.press("j")
    expect(watched.page).to_have_url(re.compile(f"commit={make_commit(SPILLS_AT).sha}"))
    watched.page.keyboard.press("j")
    expect(watched.page).to_have_url(re.compile(f"commit={make_commit(SLOWER_AT).sha}"))
    expect(watched.page).to_have_title(re.compile(r"rms_norm \+42.0% on Example CPU since"))
    watched.wait_until_shown()
    for part in ("rms_norm became 42 % slower", "code 90%", "Why believe it", "Confirm now"):
        assert bottom_of(watched.main.get_by_text(part).first) < 900
    assert bottom_of(watched.page.locator(".rw-history").first) < 900
    watched.page.keyboard.press("k")
    expect(watched.page).to_have_url(re.compile(f"commit={make_commit(SPILLS_AT).sha}"))
    watched.page.go_back()
    expect(watched.page).to_have_url(re.compile(f"commit={make_commit(SLOWER_AT).sha}"))
    watched.close()


def test_on_a_phone_a_row_of_two_lines_leads_to_the_page_of_its_commit(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.page.set_viewport_size({"width": 390, "height": 844})
    watched.open(in_project("/", "example/project"))
    expect(watched.page.locator(".st-key-detail")).to_be_hidden()
    row = watched.page.locator("[data-row]").nth(2)
    assert row.evaluate("row => row.getBoundingClientRect().height") < 60
    row.click()
    expect(watched.page.locator(".st-key-detail")).to_be_visible()
    expect(row).to_be_hidden()
    watched.page.get_by_role("link", name="← Ledger").click()
    expect(watched.page.locator("[data-row]").nth(2)).to_be_visible()
    watched.close()


def bottom_of(place: Locator) -> float:
    box = place.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


def test_a_link_unfurls_as_what_it_names(light: BrowserContext, dashboard: str) -> None:
    path = in_project(VIEWS["ledger-commit"], "example/project")
    html = light.request.get(dashboard + path).text()
    assert re.search(r"<title>rms_norm \+42.0% on Example CPU since [0-9a-f]{8}</title>", html)
    assert '<meta property="og:description" content="rms_norm became 42 % slower' in html
    other = light.request.get(dashboard + in_project("/roof", "example/project")).text()
    assert "<title>Roof · example/project</title>" in other


def test_a_link_to_something_gone_keeps_its_address(light: BrowserContext, dashboard: str) -> None:
    gone = in_project("/?regression=gone", "example/project")
    watched = watch(light, dashboard)
    watched.open(gone)
    expect(watched.main.get_by_text("The address is kept")).to_be_visible()
    expect(watched.page).to_have_url(re.compile("regression=gone"))
    watched.close()


def test_slash_starts_a_search_whose_results_are_links(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/machines?filter_kernel=matmul", "example/project"))
    field = watched.page.get_by_role("searchbox", name="Search")
    watched.page.keyboard.press("/")
    expect(field).to_be_focused()
    watched.page.keyboard.type("rms fwd")
    watched.page.get_by_role("link", name=f"case {RMS_NORM}").click()
    expect(watched.page).to_have_url(re.compile(f"case={quote(RMS_NORM, safe='')}"))
    watched.wait_until_shown()
    expect(watched.page.get_by_role("link", name="Roof", exact=True)).to_have_attribute(
        "aria-current", "page"
    )
    watched.page.keyboard.press("Control+k")
    expect(field).to_be_focused()
    watched.page.keyboard.type("Test Author")
    watched.page.locator(".rw-results a").filter(has_text="commit").first.click()
    expect(watched.page).to_have_url(re.compile("commit="))
    watched.close()


def test_a_key_pressed_before_the_page_listens_decides_until_it_is_undone(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    path = in_project(VIEWS["ledger-commit"], "example/project")
    # nothing of the page but its HTML is there
    watched.page.goto(dashboard + path, wait_until="commit")
    watched.page.wait_for_function("document.takeKeys !== undefined")
    watched.page.keyboard.press("a")
    value = watched.page.get_by_role("textbox", name="Value")
    expect(value).to_be_focused()
    value.fill("wen@example.com")
    value.press("Enter")
    expect(watched.main.get_by_text("rms_norm: assigned to wen@example.com")).to_be_visible()
    watched.page.get_by_role("button", name="Undo").click()
    expect(watched.main.get_by_text("rms_norm: undone: assign wen@example.com")).to_be_visible()
    watched.close()


def test_a_letter_decides_about_the_row_that_was_chosen_before_it(
    light: BrowserContext, dashboard: str
) -> None:
    """The form of the row before is still on the page when the letter is pressed."""
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    first_form = watched.page.locator(".rw-decide input[name=row]")
    expect(first_form).to_have_value(f"{make_commit(BROKEN_AT).sha} regressed")
    watched.page.keyboard.press("j")
    watched.page.keyboard.press("o")
    expect(watched.page.get_by_role("textbox", name="Reason")).to_be_focused()
    expect(first_form).to_have_value(f"{make_commit(SPILLS_AT).sha} regressed")
    watched.close()


class _OldList:
    """The rows as they were, which React may draw once more after the form of a newer choice."""

    def __init__(self, watched: Watched) -> None:
        self.table = watched.page.locator(".rw-ledger").first
        self.html = self.table.inner_html()

    def draw_again(self) -> None:
        self.table.evaluate("(table, html) => { table.innerHTML = html }", self.html)


def expect_form_of(watched: Watched, number: int) -> None:
    form = watched.page.locator(".rw-decide input[name=row]")
    expect(form).to_have_value(f"{make_commit(number).sha} regressed")
    watched.wait_until_shown()


def test_a_key_moves_from_the_chosen_row_although_the_old_list_was_drawn_again(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    old_list = _OldList(watched)
    watched.page.keyboard.press("j")
    expect_form_of(watched, SPILLS_AT)
    old_list.draw_again()
    watched.page.keyboard.press("j")
    expect_form_of(watched, SLOWER_AT)
    watched.close()


def test_a_letter_decides_about_the_chosen_row_although_the_old_list_was_drawn_again(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    old_list = _OldList(watched)
    watched.page.keyboard.press("j")
    expect_form_of(watched, SPILLS_AT)
    old_list.draw_again()
    watched.page.keyboard.press("o")
    expect(watched.page.get_by_role("textbox", name="Reason")).to_be_focused()
    watched.close()


def test_letters_work_after_a_decision_folds_the_chosen_row_away(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    watched.page.keyboard.press("j")
    watched.page.keyboard.press("e")
    reason = watched.page.get_by_role("textbox", name="Reason")
    expect(reason).to_be_focused()
    reason.fill("slower on purpose")
    reason.press("Enter")
    row = watched.page.locator(f"[data-row='{make_commit(SPILLS_AT).sha} regressed']")
    expect(row).to_have_count(0)
    expect_form_of(watched, SPILLS_AT)
    watched.page.keyboard.press("u")
    expect(row).to_be_visible()
    watched.page.keyboard.press("j")
    expect_form_of(watched, SLOWER_AT)
    watched.close()


def test_a_letter_after_the_back_button_is_for_the_row_gone_back_to(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    watched.page.keyboard.press("j")
    expect_form_of(watched, SPILLS_AT)
    watched.page.keyboard.press("j")
    expect_form_of(watched, SLOWER_AT)
    watched.page.evaluate(
        """() => new Promise(done => {
            addEventListener("popstate", done, { once: true })
            history.back()
        })"""
    )
    # the page of the row left behind may still be drawn
    watched.page.keyboard.press("o")
    expect(watched.page.get_by_role("textbox", name="Reason")).to_be_focused()
    expect_form_of(watched, SPILLS_AT)
    expect(watched.page.get_by_role("textbox", name="Reason")).to_be_focused()
    watched.close()


def test_one_step_back_shows_the_row_before(light: BrowserContext, dashboard: str) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    for number in (SPILLS_AT, SLOWER_AT):
        watched.page.keyboard.press("j")
        expect_form_of(watched, number)
    watched.page.go_back()
    expect_form_of(watched, SPILLS_AT)
    watched.page.go_back()
    expect_form_of(watched, BROKEN_AT)
    watched.close()


def test_a_letter_is_for_the_drawn_row_after_a_filter_removes_the_chosen_one(
    light: BrowserContext, dashboard: str
) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    watched.page.keyboard.press("j")
    expect_form_of(watched, SPILLS_AT)
    watched.page.get_by_text("Filter", exact=True).click()
    watched.page.locator("select[name=filter_kernel]").select_option("rms_norm")
    watched.page.get_by_role("button", name="Apply").click()
    expect_form_of(watched, BROKEN_AT)
    watched.page.keyboard.press("o")
    expect(watched.page.get_by_role("textbox", name="Reason")).to_be_focused()
    watched.close()


def test_a_decision_about_marked_rows_is_undone_at_once(
    light: BrowserContext, dashboard: str
) -> None:
    """The keys follow one another faster than the pages are drawn."""
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    keys, boxes = watched.page.keyboard, watched.page.get_by_role("checkbox")
    for key in "xjjxo":
        keys.press(key)
    reason = watched.page.get_by_role("textbox", name="Reason")
    expect(reason).to_be_focused()
    marked = [f"{make_commit(number).sha} regressed" for number in (BROKEN_AT, SLOWER_AT)]
    # the address follows what is drawn
    watched.page.wait_for_url(
        lambda url: parse_qs(urlsplit(url).query).get("marked") == marked, wait_until="commit"
    )
    reason.fill("looks at both")
    reason.press("Enter")
    states = [watched.page.locator(f"[data-row='{name}'] .state") for name in marked]
    for state in states:
        expect(state).to_have_text("acknowledged")
    keys.press("u")
    for state in states:
        expect(state).to_have_text("new")

    boxes.first.click()
    expect(watched.main.get_by_text("1 marked: a decision is about all of them.")).to_be_visible()
    watched.main.get_by_role("link", name="Unmark all").click()
    expect(boxes.and_(watched.page.locator(":checked"))).to_have_count(0)
    watched.close()


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
    attacked.save_screenshot(f"{view}-hostile")
    assert "\u202e" not in attacked.text
    foreign = attacked.main.locator("img[src='x'], script, a[href^='javascript'], [onerror]")
    expect(foreign).to_have_count(0)
    assert attacked.page.evaluate("globalThis.wasRun") is None
    assert attacked.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("title", ["Roof", "A ↔ B", "Machines"])
def test_each_screen_is_one_step_back(light: BrowserContext, dashboard: str, title: str) -> None:
    watched = watch(light, dashboard)
    watched.open(in_project("/", "example/project"))
    ledger = watched.page.url
    links = watched.page.get_by_role("link")
    links.filter(has_text=re.compile(f"^{title}$")).click()
    expect(watched.page.locator('a[aria-current="page"]')).to_have_text(title)
    watched.wait_until_shown()
    # choices that are written into the address of the page
    if title == "A ↔ B":
        expect(watched.page).to_have_url(re.compile("base=.*&head="))

    watched.page.go_back()

    expect(watched.page).to_have_url(ledger)
    watched.close()
