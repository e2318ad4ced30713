"""Sign-in and triage, in Chromium with a real server and provider."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, expect
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from roofwatch.db.access import list_entries
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import Regression
from roofwatch.model.triage import TriageState
from tests.builders import PROJECT
from tests.dashboard.browsing import Watched, new_context, watch
from tests.dashboard.history import store_history
from tests.dashboard.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, providing
from tests.dashboard.served import serving
from tests.databases import Databases

# one worker, so that there is one server and one browser
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.slow]
TRIAGER = {"sub": "1", "email": "engineer@example.com", "email_verified": True}
IMPOSTOR = {"sub": "2", "email": "engineer@example.com", "email_verified": False}


@dataclass
class Setting:
    address: str
    provider: Provider
    engine: Engine
    regression: Regression

    @property
    def path(self) -> str:
        return f"/regression?{urlencode({'project': PROJECT, 'regression': str(regression_id(self.regression))})}"

    @property
    def state(self) -> TriageState:
        with Session(self.engine) as session:
            found = list_triaged(session, PROJECT)
            return next(one.triage.state for one in found if one.regression == self.regression)


@pytest.fixture(scope="module")
def setting(browser: Browser, databases: Databases) -> Iterator[Setting]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with databases.filled(store_history) as (url, judged), providing() as provider:
        environment = {
            "ROOFWATCH_DASHBOARD_URL": f"http://127.0.0.1:{port}",
            "ROOFWATCH_SIGN_IN_ISSUER": provider.issuer,
            "ROOFWATCH_SIGN_IN_CLIENT_ID": CLIENT_ID,
            "ROOFWATCH_SIGN_IN_CLIENT_SECRET": CLIENT_SECRET,
            "ROOFWATCH_TRIAGERS": "@example.com",
        }
        with serving(database_url=url, port=port, environment=environment) as served:
            engine = create_engine(url)
            yield Setting(served.address, provider, engine, judged[0])
            engine.dispose()


@pytest.fixture(scope="module")
def used(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that has cached Streamlit's scripts."""
    with new_context(browser) as context:
        yield context


@pytest.fixture
def context(used: BrowserContext) -> BrowserContext:
    """A browser without a signed-in person."""
    used.clear_cookies()
    return used


def sign_in(watched: Watched, setting: Setting, claims: dict[str, object]) -> None:
    """Sign in on the page of the regression, and open it again."""
    setting.provider.claims = claims
    watched.open(setting.path)
    watched.page.get_by_role("button", name="Sign in").click()
    expect(watched.page.get_by_role("button", name="Account")).to_be_visible()
    watched.open(setting.path)


def test_a_decision_is_shown_to_other_readers_with_its_reason(
    context: BrowserContext, setting: Setting
) -> None:
    mine = watch(context, setting.address, also=[setting.provider.issuer])
    sign_in(mine, setting, TRIAGER)
    mine.page.get_by_role("button", name="On it").click()
    mine.page.get_by_role("textbox", name="Reason").fill("The new epilogue; I am at it")
    mine.page.get_by_role("textbox", name="Reason").press("Enter")
    expect(mine.main.get_by_text(re.compile("engineer@example.com, 20"))).to_be_visible()
    mine.wait_until_shown()
    link = mine.page.url.removeprefix(setting.address)
    mine.save_screenshot("regression-signed-in")
    mine.close()
    # another reader, who is known by no cookie
    context.clear_cookies()
    theirs = watch(context, setting.address)
    theirs.open(link)
    expect(theirs.main.get_by_text(re.compile("engineer@example.com, 20"))).to_be_visible()
    # in the state, and in the trail of decisions
    expect(theirs.main.get_by_text("The new epilogue; I am at it").first).to_be_visible()
    expect(theirs.main.get_by_text("Sign in to decide.")).to_be_visible()
    expect(theirs.page.get_by_role("button", name="On it")).to_have_count(0)
    theirs.close()
    assert setting.state is TriageState.ACKNOWLEDGED
    with Session(setting.engine) as session:
        newest = list_entries(session, PROJECT)[0]
    assert (newest.actor, newest.person, newest.before, newest.after) == (
        "sign-in:1",
        "engineer@example.com",
        "new",
        "acknowledged",
    )


def test_a_person_without_triage_rights_has_no_form(
    context: BrowserContext, setting: Setting
) -> None:
    watched = watch(context, setting.address, also=[setting.provider.issuer])
    sign_in(watched, setting, IMPOSTOR)
    expect(watched.main.get_by_text("may not decide")).to_be_visible()
    expect(watched.page.get_by_role("button", name="On it")).to_have_count(0)
    watched.close()
