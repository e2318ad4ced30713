"""Permission to triage, and the return to a page after sign-in."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr
from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session
from starlette.responses import Response

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
from roofwatch.db.auth.access import list_entries
from roofwatch.db.auth.values import TriageState
from roofwatch.db.regressions.triage import StaleTriageError, regression_id
from roofwatch.settings import Settings
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
def test_an_address_or_domain_may_triage(entry: str) -> None:
    assert may_triage(ENGINEER, PROJECT, [entry])


@pytest.mark.parametrize(
    "entry", ["", "@", "example.com", "@ample.com", "somebody@example.com", "another/project=engineer@example.com"]
)
def test_nothing_else_does(entry: str) -> None:
    assert not may_triage(ENGINEER, PROJECT, [entry])


@pytest.mark.parametrize("verified", [False, "false", None, 1, "yes"])
def test_an_unverified_address_is_ignored(verified: object) -> None:
    person = person_of({"sub": "1", "email": "engineer@example.com", "email_verified": verified})
    assert person.email == ""
    assert not may_triage(person, PROJECT, ["@example.com", "engineer@example.com", "", "@"])


def test_a_decision_without_triage_rights_is_refused(
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


def test_without_a_provider_there_are_no_secrets() -> None:
    assert sign_in_secrets(Settings()) == {}


def test_incomplete_sign_in_settings_are_refused_without_printing_secrets() -> None:
    partial = SIGN_IN.model_copy(update={"sign_in_client_id": None})
    with pytest.raises(DashboardError, match="sign_in_client_id") as refusal:
        sign_in_secrets(partial)
    assert "known to the provider" not in str(refusal.value)
    short = SIGN_IN.model_copy(update={"sign_in_cookie_secret": SecretStr("guess me")})
    with pytest.raises(DashboardError, match="32") as refusal:
        sign_in_secrets(short)
    assert "guess me" not in str(refusal.value)


ORIGIN = "https://roofwatch.example.com"
REGRESSION = "/regression?project=a%2Fb&regression=1"
PROVIDER = "https://accounts.example.com/authorize"


def location_of(path: str, location: str, **headers: str) -> tuple[str, str | None]:
    """Return the location and the cookie that a browser gets if the dashboard redirects to a location."""
    sent: list[tuple[bytes, bytes]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.extend(message.get("headers", ()))

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "https",
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    dashboard = Response(status_code=302, headers={"location": location})
    app = ReturnAfterSignIn(dashboard, views=["overview", "regression"], origin=ORIGIN)
    asyncio.run(app(scope, receive, send))
    known = {name.decode(): value.decode() for name, value in sent}
    return known["location"], known.get("set-cookie")


def kept_when_leaving(referrer: str) -> str | None:
    """Return the cookie that a browser gets on its way to the provider."""
    return location_of(LOGIN, PROVIDER, referer=referrer)[1]


def sent_to(cookie: str) -> str:
    """Return where somebody who signed in is sent."""
    return location_of(CALLBACK, "/", cookie=cookie)[0]


def test_sign_in_returns_to_the_page_with_its_choices() -> None:
    cookie = kept_when_leaving(f"{ORIGIN}{REGRESSION}")
    assert cookie is not None
    assert {"HttpOnly", "SameSite=lax", "Secure", "Max-Age=600"} <= set(cookie.split("; "))
    assert sent_to(cookie.split(";")[0]) == REGRESSION


@pytest.mark.parametrize(
    "referrer",
    [
        "",
        "https://elsewhere.example.com/regression?project=a",
        "http://roofwatch.example.com/regression",
        "https://roofwatch.example.com.elsewhere.example/regression",
        f"{ORIGIN}/oauth2callback?code=secret",
        f"{ORIGIN}/regression?{'x' * 5_000}",
    ],
)
def test_only_our_own_views_are_kept(referrer: str) -> None:
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
        "//",
    ],
)
def test_a_forged_cookie_leads_to_the_front_page(forged: str) -> None:
    assert sent_to(f"roofwatch_return={quote(forged, safe='')}") == "/"
