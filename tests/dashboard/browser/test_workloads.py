"""A workload from Overview to its trend and to the reason of its change, in Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.builders import sha_of
from tests.dashboard.axe import grave_violations
from tests.dashboard.browsing import Watched, new_context, watch
from tests.dashboard.gpu_history import gpu
from tests.dashboard.served import serving
from tests.dashboard.workload_history import COMMIT_COUNT, store_workloads
from tests.databases import Databases

# one worker, so that there is one server and one browser
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.slow]


@pytest.fixture(scope="module")
def watched(browser: Browser, databases: Databases) -> Iterator[Watched]:
    with (
        databases.filled(store_workloads) as (url, _),
        serving(database_url=url) as served,
        new_context(browser) as context,
    ):
        watched = watch(context, served.address)
        yield watched
        watched.close()


def test_a_workload_has_a_row_for_each_runner_that_leads_to_its_token_rate(watched: Watched) -> None:
    watched.open("/")
    rows = watched.page.get_by_role("row").filter(has_text="llama_decode")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(gpu().runner_class)
    expect(rows.first.get_by_role("img")).to_be_visible()
    expect(rows.last).to_contain_text("CPU")
    # one run of five does not judge it yet
    expect(watched.page.get_by_text(re.compile("possibly slower.*1 of 5 runs needed"))).to_be_visible()
    watched.save_screenshot("overview-workloads")
    assert grave_violations(watched.page) == []

    rows.first.get_by_role("link", name="Trend").click()
    expect(watched.page.get_by_role("heading", level=1)).to_have_text("Trends")
    watched.wait_until_shown()
    expect(watched.page.get_by_text("token rate (tokens/s), higher is better")).to_be_visible()
    expect(watched.page).to_have_url(re.compile("metric=tokens_per_s"))
    watched.save_screenshot("trends-workload")


def test_comparing_shows_why_a_step_changed(watched: Watched) -> None:
    watched.open(
        f"/compare?base={sha_of(COMMIT_COUNT - 2)}&head={sha_of(COMMIT_COUNT - 1)}&runner={gpu().runner_class}"
    )
    expect(watched.page.get_by_role("heading", name="Why a step changed")).to_be_visible()
    expect(watched.page.get_by_role("combobox", name="Step of")).to_be_visible()
    expect(watched.page.get_by_test_id("stDataFrame")).to_have_count(3)
    watched.save_screenshot("compare-workload")
    assert grave_violations(watched.page) == []
