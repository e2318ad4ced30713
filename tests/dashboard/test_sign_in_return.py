"""Back to the page that somebody left to sign in, and never to anywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

import pytest

from roofwatch.dashboard.access.sign_in_return import CALLBACK, LOGIN, ReturnAfterSignIn

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


def test_it_is_forgotten_once_it_was_used() -> None:
    cookie = f"other=1; roofwatch_return={quote(REGRESSION, safe='')}"
    assert "Max-Age=0" in dict(answered(CALLBACK, FRONT_PAGE, cookie=cookie))["set-cookie"]


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


def test_whoever_the_provider_sends_on_with_an_error_is_sent_where_streamlit_says() -> None:
    cookie = f"roofwatch_return={quote(REGRESSION, safe='')}"
    assert dict(answered(CALLBACK, PROVIDER, cookie=cookie))["location"] == PROVIDER[1].decode()


def test_other_requests_pass_untouched() -> None:
    assert answered("/regression", FRONT_PAGE, referer=f"{ORIGIN}{REGRESSION}") == [("location", "/")]
