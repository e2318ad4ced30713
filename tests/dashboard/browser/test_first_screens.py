"""What the first screen at 1440 x 900 answers, on the made-up history of three GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from sqlalchemy import Engine

from tests.dashboard import made_up_history
from tests.dashboard.browsing import Watched, new_context, watch
from tests.dashboard.imported_history import store_amdgpu
from tests.dashboard.served import serving
from tests.databases import Databases

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.slow]
HEIGHT_PX, WIDTH_PX = 900, 1_440
MOST_BYTES = 1_500_000


def fill(engine: Engine) -> None:
    made_up_history.store(engine, datetime.now(UTC).replace(minute=0, second=0, microsecond=0))


@pytest.fixture(scope="module")
def address(databases: Databases) -> Iterator[str]:
    with databases.filled(fill) as (url, _), serving(database_url=url) as served:
        yield served.address


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    with new_context(browser) as context:
        watched = watch(context, address)
        watched.page.set_viewport_size({"width": WIDTH_PX, "height": HEIGHT_PX})
        yield watched
        watched.close()


@pytest.fixture(scope="module")
def imported_address(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("amdgpu")
    with (
        databases.filled(partial(store_amdgpu, folder=folder)) as (url, _),
        serving(database_url=url) as served,
    ):
        yield served.address


def is_on_first_screen(part: Locator) -> bool:
    expect(part).to_be_visible()
    box = part.bounding_box()
    assert box is not None
    return box["y"] >= 0 and box["y"] + box["height"] <= HEIGHT_PX


def expect_answers(page: Page, *selectors_and_texts: tuple[str, str]) -> None:
    for selector, text in selectors_and_texts:
        part = page.locator(selector).filter(has_text=re.compile(text)).first
        assert is_on_first_screen(part), f"{selector} with {text!r}"


def test_the_first_screen_of_the_ledger_answers_its_questions(
    watched: Watched,
) -> None:
    watched.open("/?range=30d")

    # one row for each commit, although two kernels of it became slower
    expect(watched.page.locator(".rw-ledger [data-row]").filter(has_text="e8286cca")).to_have_count(
        1
    )
    expect_answers(
        watched.page,
        (".rw-summary", r"slower.*faster.*geomean of time.*B200.*of its roof"),
        (".rw-ledger [data-row]", r"e8286cca.*Mara.*\+30\.\d%.*gemm_fp8.*yes.*new"),
        (".rw-ledger [data-row]", r"fused_moe.*\d\d%.*new"),
        (".rw-sentence", r"no longer fits into the registers of 4 warps"),
        (".rw-decide", r"Confirm now.*Assign.*Issue.*Expected.*Not real.*Snooze.*Undo"),
        (".rw-decide", r"all 3 of this commit"),
        # is it worth it end to end
        (
            ".st-key-detail b",
            r"a step of llama_prefill.*B200: \+16\.\d%.*_gemm_fp8_kernel: \+\d+\.\d ms of",
        ),
        ("#stMain .rw-lane", r"v0\.6\.0"),
        (".rw-two li", r"code 9\d%"),
        (".rw-two b", r"Confirmed"),
        (".rw-suspicions tr", r"layer_norm.*job confirm"),
    )


def test_a_row_that_was_not_asked_for_can_be_sent_as_a_link(watched: Watched) -> None:
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    watched.open("/?range=30d")

    link = watched.main.get_by_role("link", name="Copy link")
    assert is_on_first_screen(link)
    link.click()
    expect(watched.main.get_by_role("link", name="Link copied")).to_be_visible()
    copied = watched.page.evaluate("navigator.clipboard.readText()")
    watched.page.goto(copied)
    expect(watched.page.locator(".rw-ledger [aria-current]")).to_contain_text("e8286cca")
    expect(watched.page).to_have_title(re.compile(r"gemm_fp8 \+30\.\d% on B200 since #1317"))


def test_an_imported_history_answers_on_the_first_screen_too(
    browser: Browser, imported_address: str
) -> None:
    with new_context(browser) as context:
        watched = watch(context, imported_address)
        watched.page.set_viewport_size({"width": WIDTH_PX, "height": HEIGHT_PX})
        watched.open("/?range=all")
        expect_answers(
            watched.page,
            (".rw-summary", r"slower.*faster.*geomean of time"),
            (".rw-ledger [data-row]", r"[0-9a-f]{8}\.\.[0-9a-f]{8}.*(%|×).*\d\d%.*new"),
            (".rw-two b", r"Probability \d\d%"),
            (".rw-decide", r"Assign.*Issue.*Expected.*Not real.*Snooze.*Undo"),
        )
        heights = watched.page.locator(".rw-suspicions tbody tr").evaluate_all(
            "rows => rows.map(row => row.getBoundingClientRect().height)"
        )
        assert heights
        assert max(heights) <= 30, "a row is one line"
        watched.open("/roof?range=all")
        expect_answers(
            watched.page,
            (".rw-cells tr[aria-current] .change", r"◆ [×+]"),
            (".rw-cells tr[aria-current] .newest", r"\d (ns|µs|ms|s)$"),
            (".rw-changes span", r"[×%]"),
            (".rw-dates span", r"^\w{3} \d{4}$"),
        )
        watched.close()


def test_a_regression_that_was_repaired_under_another_driver_is_settled(watched: Watched) -> None:
    watched.open("/?range=all&settled=open")

    settled = watched.page.locator(".rw-ledger [data-row]").filter(has_text="flash_attention")
    expect(settled.filter(has_text="Split the softmax")).to_contain_text("fixed")
    # three GPUs, although each had two drivers
    expect(watched.page.locator(".rw-chips .rw-chip")).to_have_count(3)


def test_the_roof_shows_three_months_of_a_case_with_what_explains_its_drop(
    watched: Watched,
) -> None:
    watched.open("/roof?kernel=rms_norm&range=90d")

    expect_answers(
        watched.page,
        (".rw-cells tr[aria-current]", r"rms_norm"),
        (".rw-changes span", r"\+\d\.\d% time"),
        (".rw-roof", r"achievable \(measured\)"),
        (".rw-values span", r"^100%$"),
        (".rw-dates span", r"^\w{3} \d{4}$"),
        (".rw-lane", r"570\.86\.15 → 580\.65\.06"),
    )
    # which shape is worst: all of them stand in the list, the worst of all first
    first = watched.page.locator(".rw-cells tbody tr").first
    expect(first).to_contain_text("fused_moe")
    # throttled runs are hollow
    assert watched.page.locator(".rw-plot circle[fill=none]").count() > 0
    # one large history and at most four small ones, however many series there are
    assert watched.page.locator(".rw-history").count() <= 5


def test_releases_are_compared_on_every_gpu_in_one_table(watched: Watched) -> None:
    watched.open("/compare?base=v0.4.0&head=v0.5.0&range=90d")

    rows = watched.page.locator(".rw-matrix tbody tr")
    expect(rows).to_have_count(3)
    for device in ("H100", "B200", "MI300X"):
        row = rows.filter(has_text=device)
        assert is_on_first_screen(row)
        expect(row).to_contain_text(re.compile(r"%.*\[.*%, .*%\]"))
        expect(row).to_contain_text(re.compile(r"\d+\.\d% → \d+\.\d%"))
    assert is_on_first_screen(watched.page.locator(".rw-compared.rw-case").first)


def test_the_first_screen_of_machines_answers_its_questions(
    watched: Watched,
) -> None:
    watched.open("/machines?range=30d")

    assert watched.page.locator(".rw-card").count() == 6
    expect_answers(
        watched.page,
        (".rw-card .rw-mark", r"ok, last result"),
        (".rw-card dd", r"dram .* TB/s"),
        (".rw-card dd", r"controls ±.*siblings ±"),
        (".rw-card dd", r"now on 1 of 2 (confirm|calibrate)"),
        (".rw-card dd", r"580\.65\.06 from .* what changed"),
    )
    watched.page.locator(".rw-card").filter(has_text="580.65.06").get_by_text(
        "what changed"
    ).first.click()
    expect(watched.page.get_by_text("No verdict between the two")).to_be_visible()
    expect(watched.page.get_by_text("driver 570.86.15 → 580.65.06")).to_be_visible()


def test_the_search_finds_whatever_a_project_names(watched: Watched) -> None:
    watched.open("/")
    field = watched.page.get_by_role("searchbox", name="Search")
    assert is_on_first_screen(field)
    expect(field).to_have_attribute("placeholder", re.compile("commit, author, runner"))
    for words, expected in (
        ("Lindqvist", "Mara Lindqvist"),
        ("#1317", "gemm_fp8"),
        ("v0.5.0", "v0.5.0"),
        ("MI300X", "MI300X"),
    ):
        watched.page.keyboard.press("/")
        watched.page.keyboard.press("ControlOrMeta+a")
        watched.page.keyboard.type(words)
        watched.page.keyboard.press("Enter")
        expect(watched.page.locator(".rw-results a").first).to_contain_text(expected)


def test_a_phone_shows_what_decides_each_suspicion_without_sideways_scrolling(
    watched: Watched,
) -> None:
    watched.page.set_viewport_size({"width": 390, "height": 844})
    watched.open("/?range=30d")

    row = watched.page.locator(".rw-ledger [data-row]").filter(has_text="e8286cca")
    for part in (".kernels", ".size", ".real", ".when"):
        expect(row.locator(part)).to_be_visible()
    box = row.bounding_box()
    assert box is not None
    assert box["height"] < 64, "two lines"
    decides = watched.page.locator(".rw-suspicions td.decides").first
    expect(decides).to_be_visible()
    right = decides.evaluate("cell => cell.getBoundingClientRect().right")
    assert right <= 390
    # a phone has no key for it
    expect(watched.page.locator(".rw-find kbd")).to_be_hidden()

    watched.open("/roof?range=90d")
    cell = watched.page.locator(".rw-cells tbody tr").first
    share, bar = (cell.locator(part).bounding_box() for part in (".share", ".bullet"))
    assert share is not None
    assert bar is not None
    assert share["x"] + share["width"] <= bar["x"] + 1, "the number is not below the bar"


def test_the_first_visit_is_light(watched: Watched) -> None:
    session = watched.page.context.new_cdp_session(watched.page)
    session.send("Network.enable")
    sizes_bytes: list[float] = []
    session.on(
        "Network.loadingFinished", lambda event: sizes_bytes.append(event["encodedDataLength"])
    )
    addresses: list[str] = []
    watched.page.on("request", lambda request: addresses.append(request.url))
    watched.open("/?range=30d")

    assert sum(sizes_bytes) < MOST_BYTES
    # libraries that only other screens need; the number of requests varies with Streamlit's retries
    for library in ("plotly", "syntaxhighlighter", "vega", "deckgl"):
        assert not [address for address in addresses if library in address.lower()]
