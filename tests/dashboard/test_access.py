"""Who may decide about regressions, and where signing in leads back to."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr
from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from roofwatch.dashboard import data
from roofwatch.dashboard.access import (
    CALLBACK,
    LOGIN,
    DashboardError,
    NotAllowedError,
    Person,
    ReturnAfterSignIn,
    may_triage,
    person_of,
    sign_in_secrets,
)
from roofwatch.db.auth.audit import list_entries
from roofwatch.db.auth.values import TriageState
from roofwatch.db.regressions.triage import StaleTriageError, regression_id
from roofwatch.settings import Settings, load_settings
from tests.builders import PROJECT
from tests.dashboard.conftest import forget_everything
from tests.dashboard.history import store_history

ENGINEER = Person("1", "engineer@example.com")


SIGN_IN = Settings(
    dashboard_url="https://roofwatch.example.com/",
    sign_in_issuer="https://provider.example.com",
    sign_in_client_id="roofwatch",
    sign_in_client_secret=SecretStr("known to the provider"),
)


@pytest.mark.parametrize(
    "entry", ["engineer@example.com", "Engineer@Example.com", "@example.com", f"{PROJECT}=engineer@example.com"]
)
def test_an_address_a_domain_or_either_for_the_project_gives_the_right(entry: str) -> None:
    assert may_triage(ENGINEER, PROJECT, [entry])


@pytest.mark.parametrize(
    "entry", ["", "@", "example.com", "@ample.com", "somebody@example.com", "another/project=engineer@example.com"]
)
def test_nothing_else_does(entry: str) -> None:
    assert not may_triage(ENGINEER, PROJECT, [entry])


@pytest.mark.parametrize("verified", [False, "false", None, 1, "yes"])
def test_an_address_that_the_provider_does_not_vouch_for_is_none(verified: object) -> None:
    person = person_of({"sub": "1", "email": "engineer@example.com", "email_verified": verified})
    assert person.email == ""
    assert not may_triage(person, PROJECT, ["@example.com", "engineer@example.com", "", "@"])


def test_whoever_may_not_is_refused_by_what_writes(
    store: Engine, database_url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    regression = store_history(store)[0]
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", database_url.render_as_string(hide_password=False))
    monkeypatch.setenv("ROOFWATCH_TRIAGERS", "@example.com, somebody@example.org")
    forget_everything()
    about = (PROJECT, regression_id(regression), TriageState.INVALID)
    with pytest.raises(NotAllowedError, match=r"reader@example\.org may not"):
        data.decide(*about, seen=TriageState.NEW, person=Person("2", "reader@example.org"), reason="mine")
    with pytest.raises(StaleTriageError):
        data.decide(*about, seen=TriageState.FIXED, person=ENGINEER, reason="seen too late")
    data.decide(*about, seen=TriageState.NEW, person=ENGINEER, reason="noise")
    forget_everything()
    with Session(store) as session:
        (entry,) = list_entries(session, PROJECT)
    assert (entry.person, entry.after, entry.reason) == ("engineer@example.com", "invalid", "noise")


def test_streamlit_is_told_where_to_sign_in_and_where_to_come_back() -> None:
    auth = sign_in_secrets(SIGN_IN)["auth"]
    assert auth["redirect_uri"] == "https://roofwatch.example.com/oauth2callback"
    assert auth["server_metadata_url"] == "https://provider.example.com/.well-known/openid-configuration"
    assert auth["client_secret"] == "known to the provider"


def test_without_a_provider_nobody_signs_in() -> None:
    assert sign_in_secrets(Settings()) == {}


def test_a_part_of_the_settings_is_refused_with_what_is_missing_and_no_secret_in_the_words() -> None:
    partial = SIGN_IN.model_copy(update={"sign_in_client_id": None})
    with pytest.raises(DashboardError, match="sign_in_client_id") as refusal:
        sign_in_secrets(partial)
    assert "known to the provider" not in str(refusal.value)
    short = SIGN_IN.model_copy(update={"sign_in_cookie_secret": SecretStr("guess me")})
    with pytest.raises(DashboardError, match="32") as refusal:
        sign_in_secrets(short)
    assert "guess me" not in str(refusal.value)


def test_triagers_are_a_list_in_the_file_and_separated_by_commas_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROOFWATCH_TRIAGERS", "a@example.com, @example.org")
    assert load_settings().triagers == ("a@example.com", "@example.org")


ORIGIN = "https://roofwatch.example.com"


REGRESSION = "/regression?project=a%2Fb&regression=1"


FRONT_PAGE = (b"location", b"/")


PROVIDER = (b"location", b"https://accounts.example.com/authorize")


def answered(path: str, own: tuple[bytes, bytes], **headers: str) -> list[tuple[str, str]]:
    """The headers that a browser is sent, where the dashboard itself sends `own`."""
    sent: list[tuple[str, str]] = []

    async def dashboard(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 302, "headers": [own]})

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.extend((name.decode(), value.decode()) for name, value in message["headers"])

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("nothing is read")

    asked = [(name.encode(), value.encode()) for name, value in headers.items()]
    app = ReturnAfterSignIn(dashboard, views=["overview", "regression"], origin=ORIGIN)
    asyncio.run(app({"type": "http", "path": path, "headers": asked}, receive, send))
    return sent


def kept_when_leaving(referrer: str) -> str | None:
    """The cookie that a browser is given on its way to the provider."""
    return dict(answered(LOGIN, PROVIDER, referer=referrer)).get("set-cookie")


def sent_to(cookie: str) -> str:
    """Where somebody who signed in is sent."""
    return dict(answered(CALLBACK, FRONT_PAGE, cookie=cookie))["location"]


def test_somebody_who_signed_in_is_sent_back_with_the_whole_state() -> None:
    cookie = kept_when_leaving(f"{ORIGIN}{REGRESSION}")
    assert cookie is not None
    assert sent_to(cookie.split(";")[0]) == REGRESSION


def test_the_page_is_kept_out_of_reach_of_scripts_and_for_minutes_only() -> None:
    cookie = kept_when_leaving(f"{ORIGIN}{REGRESSION}")
    assert cookie is not None
    for part in ("HttpOnly", "SameSite=Lax", "Secure", "Max-Age=600"):
        assert part in cookie


@pytest.mark.parametrize(
    "referrer",
    [
        "",
        "https://elsewhere.example.com/regression?project=a",
        "http://roofwatch.example.com/regression",
        "https://roofwatch.example.com.elsewhere.example/regression",
        f"{ORIGIN}/oauth2callback?code=secret",
        f"{ORIGIN}/admin",
        f"{ORIGIN}/regression?{'x' * 5_000}",
    ],
)
def test_only_a_view_of_ours_is_kept(referrer: str) -> None:
    assert kept_when_leaving(referrer) is None


@pytest.mark.parametrize(
    "forged",
    [
        "https://elsewhere.example.com/",
        "//elsewhere.example.com/regression",
        "/\\elsewhere.example.com",
        "/regression\r\nset-cookie: x=1",
        "javascript:alert(1)",
        "/admin",
        "regression",
    ],
)
def test_a_forged_cookie_leads_nowhere_else(forged: str) -> None:
    assert sent_to(f"roofwatch_return={quote(forged, safe='')}") == "/"


def test_other_requests_pass_untouched() -> None:
    assert answered("/regression", FRONT_PAGE, referer=f"{ORIGIN}{REGRESSION}") == [("location", "/")]
