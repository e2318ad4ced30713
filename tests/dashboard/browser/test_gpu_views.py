"""Machines, runs and costs with GPU data, and workloads, in Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import Engine

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.record import RunRecord
from tests.builders import (
    NOON,
    PROJECT,
    make_change_point,
    make_environment,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    sha_of,
)
from tests.dashboard.browsing import Watched, grave_violations, new_context, watch
from tests.dashboard.gpu_history import (
    HOT_AT,
    SOFTMAX,
    gpu,
    gpu_ceilings,
    gpu_record,
    store_gpu_history,
)
from tests.dashboard.served import serving
from tests.dashboard.workload_history import COMMIT_COUNT, DECODE, store_workloads
from tests.databases import Databases

# one worker, so that there is one server and one browser
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.slow]
PLOT = ".js-plotly-plot"
DRIFT_AT = 2
KERNELS, KERNEL_COUNT, WORKLOADS = "many/kernels", 300, "workloads"


@pytest.fixture(scope="module")
def dashboard(browser: Browser, databases: Databases) -> Iterator[tuple[str, str]]:
    """Address of a dashboard with runs of a GPU and a drift, and the ID of the run in which it
    overheated.
    """

    def fill(engine: Engine) -> list[RunRecord]:
        series = make_series_key(
            case_id=SOFTMAX, implementation="triton", runner_class=gpu().runner_class
        )
        drift = make_change_point(DRIFT_AT, series=series, is_gradual=True, weekly_change=0.014)
        records = store_gpu_history(engine)
        # a newer run of the same commit without compiled code, and a runner that is first by name
        # but has no change
        ingest_record(
            engine, gpu_record(HOT_AT, static_facts=[], started_at=NOON + timedelta(days=9))
        )
        ingest_record(engine, gpu_record(0, environment=make_environment()))
        replace_regressions(
            engine, PROJECT, [make_regression(DRIFT_AT, kernel="softmax", change_points=(drift,))]
        )
        many = [
            make_measurement(f"kernel_{number}/n=1/float32/fwd") for number in range(KERNEL_COUNT)
        ]
        for number in range(2):
            ingest_record(engine, make_record(number, project=KERNELS, measurements=many))
        store_workloads(engine, project=WORKLOADS)
        return records

    with databases.filled(fill) as (url, records), serving(database_url=url) as served:
        yield served.address, str(records[HOT_AT].run_id)


@pytest.fixture(scope="module")
def watched(browser: Browser, dashboard: tuple[str, str]) -> Iterator[Watched]:
    """A page in another time zone, shared by the tests."""
    with new_context(browser, zone="Asia/Tokyo") as context:
        watched = watch(context, dashboard[0])
        watched.open("/")
        yield watched
        watched.close()


def test_a_throttled_run_shows_the_reason_in_local_time_beside_its_comparison(
    watched: Watched, dashboard: tuple[str, str]
) -> None:
    watched.open(f"/run?run={dashboard[1]}")
    timeline = watched.page.locator(PLOT).first
    for words in ("clock (MHz)", "power (W)", "temperature (°C)", "throttled by", "time of day"):
        expect(timeline.get_by_text(words, exact=True)).to_be_visible()
    expect(timeline.locator(".barlayer .point").first).to_be_visible()
    watched.save_screenshot("run-hot")
    watched.page.get_by_role("link", name="Compare with the previous run").click()
    expect(watched.page).to_have_url(re.compile("/compare"))
    watched.wait_until_shown()
    assert watched.complaints == []


def heights_px(watched: Watched) -> list[float]:
    """Return the heights of the parts of a page."""
    parts = watched.main.locator("[data-testid=stElementContainer]")
    heights: list[float] = parts.evaluate_all(
        "parts => parts.map(part => part.getBoundingClientRect().height)"
    )
    return heights


def test_a_zoom_into_a_timeline_leaves_no_part_of_the_page_blank(
    watched: Watched, dashboard: tuple[str, str]
) -> None:
    watched.open(f"/run?run={dashboard[1]}")
    plot = watched.page.locator(PLOT).first
    expect(plot.locator(".barlayer .point").first).to_be_visible()
    heights_before_px = heights_px(watched)
    range_of_dates = "plot => String(plot.layout.xaxis.range)"
    range_before = plot.evaluate(range_of_dates)
    area = plot.locator(".nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    mouse = watched.page.mouse
    mouse.move(box["x"] + 0.1 * box["width"], box["y"] + box["height"] / 2)
    mouse.down()
    mouse.move(box["x"] + 0.6 * box["width"], box["y"] + box["height"] / 2, steps=5)
    mouse.up()
    watched.page.wait_for_function(
        "([plot, before]) => String(plot.layout.xaxis.range) !== before",
        arg=[plot.element_handle(), range_before],
    )
    watched.wait_until_shown()

    expect(plot.locator(".barlayer .point").first).to_be_visible()
    assert heights_px(watched) == heights_before_px
    assert watched.complaints == []


def test_a_browser_zoom_of_200_percent_shows_the_chosen_commit_at_once(watched: Watched) -> None:
    """A zoomed page has half the pixels, as a phone has."""
    size = watched.page.viewport_size
    assert size is not None
    watched.open("/?range=all")
    watched.page.locator("[data-row] a").first.click()
    expect(watched.page).to_have_url(re.compile("commit="))
    watched.wait_until_shown()
    watched.page.set_viewport_size({"width": 720, "height": 450})

    title = watched.page.locator(".rw-title")
    expect(title).to_be_in_viewport()
    watched.page.set_viewport_size(size)
    assert watched.complaints == []


@pytest.mark.parametrize(
    ("path", "figure", "count", "name"),
    [
        # time, clock and temperature
        (
            f"/machines?runner={quote(gpu().runner_class)}&history=open"
            f"&case={quote(SOFTMAX, safe='')}&implementation=triton",
            ".rw-history",
            3,
            "machines-history",
        ),
        (
            f"/machines?runner={quote(gpu().runner_class)}&ceilings=open",
            ".rw-history",
            len(gpu_ceilings()),
            "machines-ceilings",
        ),
        ("/fleet?costs=open&bars=activity", PLOT, 1, "machines-costs"),
    ],
    ids=["history", "ceilings", "fleet"],
)
def test_views_of_gpu_runs_have_no_console_errors(
    watched: Watched, path: str, figure: str, count: int, name: str
) -> None:
    watched.open(path)
    expect(watched.page.locator(f"{figure} svg").first).to_be_visible()
    expect(watched.page.locator(figure)).to_have_count(count)
    expect(watched.page.get_by_test_id("stAlertContentWarning")).to_have_count(0)
    watched.save_screenshot(name)
    assert grave_violations(watched.page) == []
    assert watched.complaints == []


def test_what_is_no_step_is_marked_too(watched: Watched) -> None:
    watched.open("/?range=all")
    expect(watched.page.locator("[data-row]").first).to_contain_text("+1.4% a week")
    expect(watched.main.get_by_text("↗ drift")).to_be_visible()
    watched.open("/machines?range=all")
    expect(watched.page.locator(".rw-strip .throttled").first).to_be_visible()
    watched.save_screenshot("machines-throttled")
    assert watched.complaints == []


def test_hundreds_of_kernels_have_a_short_timeline(watched: Watched) -> None:
    watched.open(
        f"/machines?project={quote(KERNELS)}&runner={quote(make_environment().runner_class)}"
    )
    watched.page.locator("[data-row] a").first.click()
    expect(watched.page).to_have_url(re.compile("run="))
    watched.wait_until_shown()
    timeline = watched.page.locator(PLOT).first.bounding_box()
    assert timeline is not None
    assert timeline["height"] < 1_200
    assert watched.complaints == []


def test_a_workload_has_a_row_for_each_runner_with_its_token_rate(watched: Watched) -> None:
    watched.open(f"/roof?project={WORKLOADS}&range=all")
    rows = watched.page.get_by_role("row").filter(has_text="llama_decode")
    expect(rows.filter(has_text="CPU")).to_have_count(1)
    on_gpu = rows.filter(has_text="H200")
    expect(on_gpu.first).to_be_visible()
    on_gpu.first.get_by_role("link").first.click()
    watched.wait_until_shown()
    expect(watched.page.get_by_text("tokens/s").first).to_be_visible()
    watched.save_screenshot("roof-workload")
    assert grave_violations(watched.page) == []


def test_comparing_shows_why_a_step_changed(watched: Watched) -> None:
    base, head = sha_of(COMMIT_COUNT - 2), sha_of(COMMIT_COUNT - 1)
    watched.open(
        f"/compare?project={WORKLOADS}&base={base}&head={head}&runner={gpu().runner_class}"
        f"&case={quote(DECODE, safe='')}&implementation=triton&metric=median_ns"
    )
    expect(watched.page.get_by_role("heading", name="Why the step changed")).to_be_visible()
    expect(watched.page.get_by_test_id("stDataFrame").first).to_be_visible()
    watched.save_screenshot("compare-workload")
    assert grave_violations(watched.page) == []
