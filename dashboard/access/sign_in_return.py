"""Signing in returns a person to the page that they came from, with its whole state.

Streamlit sends everybody who signed in to its front page. The page somebody leaves to sign in is kept in a cookie of
their own browser meanwhile: only its path and query, and only if it is one of our views, so that nobody is ever sent
elsewhere, whatever a link or a cookie says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote, unquote, urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

LOGIN, CALLBACK = "/auth/login", "/oauth2callback"
"""Streamlit's own paths."""
_COOKIE = "roofwatch_return"
_KEPT_FOR_S = 600
_LONGEST = 3_000
"""Of what a cookie holds: browsers keep four kilobytes of one."""


class ReturnAfterSignIn:
    """An ASGI application around the dashboard's.

    Args:
        app: The dashboard.
        views: Paths of its views, without the slash.
        origin: Where people open it, such as `https://roofwatch.example.com`.
    """

    def __init__(self, app: App, *, views: Iterable[str], origin: str) -> None:
        self._app = app
        self._paths = {f"/{view}" for view in views} | {"/"}
        self._origin = urlsplit(origin)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in {LOGIN, CALLBACK}:
            await self._app(scope, receive, send)
            return
        headers: Headers = scope["headers"]
        wanted = self._left(headers) if path == LOGIN else self._kept(headers)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and wanted is not None:
                change = self._keep if path == LOGIN else self._return
                message["headers"] = change(list(message["headers"]), wanted)
            await send(message)

        await self._app(scope, receive, answer)

    def own_address(self, address: str) -> str | None:
        """The path and query of one of our views; None of anything else, or what is too long to keep."""
        parts = urlsplit(address)
        if parts.path not in self._paths or len(address) > _LONGEST or not address.isprintable():
            return None
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def _left(self, headers: Headers) -> str | None:
        """The page that the browser says it comes from, if that is ours."""
        referrer = _header(headers, b"referer")
        parts = urlsplit(referrer)
        if (parts.scheme, parts.netloc) != (self._origin.scheme, self._origin.netloc):
            return None
        return self.own_address(parts._replace(scheme="", netloc="", fragment="").geturl())

    def _kept(self, headers: Headers) -> str | None:
        try:
            cookie = SimpleCookie(_header(headers, b"cookie")).get(_COOKIE)
        except CookieError:
            return None
        kept = "" if cookie is None else unquote(cookie.value)
        # one slash: two begin an address on another host
        return self.own_address(kept) if kept.startswith("/") and not kept.startswith("//") else None

    def _keep(self, headers: list[tuple[bytes, bytes]], address: str) -> list[tuple[bytes, bytes]]:
        return [*headers, self._set_cookie(quote(address, safe=""), _KEPT_FOR_S)]

    def _return(self, headers: list[tuple[bytes, bytes]], address: str) -> list[tuple[bytes, bytes]]:
        """Only where Streamlit sends the browser to the front page; whatever else it answers stays."""
        sent = [(name, address.encode() if _is_front_page(name, value) else value) for name, value in headers]
        return [*sent, self._set_cookie("", 0)]

    def _set_cookie(self, value: str, max_age_s: int) -> tuple[bytes, bytes]:
        secure = "; Secure" if self._origin.scheme == "https" else ""
        cookie = f"{_COOKIE}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}"
        return b"set-cookie", cookie.encode()


def _header(headers: Headers, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == wanted), "")


def _is_front_page(name: bytes, value: bytes) -> bool:
    return name.lower() == b"location" and value in {b"/", b""}
