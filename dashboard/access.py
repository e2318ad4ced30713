"""Signing in, and who may decide about regressions: by verified e-mail address, for all projects or for one."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.dashboard.wording import code_span, shortened
from roofwatch.settings import Settings, load_settings

_LEAST_SECRET_LENGTH = 32
LOGIN, CALLBACK = "/auth/login", "/oauth2callback"
"""Streamlit's own paths."""
_COOKIE = "roofwatch_return"
_KEPT_FOR_S = 600
_LONGEST = 3_000
"""Of what a cookie holds: browsers keep four kilobytes of one."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]


class DashboardError(Exception):
    """The dashboard cannot be served; the message names the thing and the way out."""


class NotAllowedError(Exception):
    """Somebody may not do what they asked for."""


@dataclass(frozen=True)
class Person:
    """Somebody who signed in."""

    subject: str
    """What the provider calls them for ever."""
    email: str
    """In lower case; empty where the provider does not vouch for it."""

    @property
    def shown_as(self) -> str:
        return self.email or "somebody without a verified address"

    @property
    def actor(self) -> str:
        """As the audit trail names who was let in."""
        return f"sign-in:{self.subject}"


def person_of(claims: Mapping[str, object]) -> Person:
    """Who an identity token speaks of. Only a verified address counts: anybody can write any into a profile."""
    said = claims.get("email_verified")
    # some providers write the word
    is_verified = said is True or said == "true"
    email = str(claims.get("email") or "").strip().lower() if is_verified else ""
    return Person(subject=str(claims.get("sub") or ""), email=email)


def may_triage(person: Person, project: str, triagers: Iterable[str]) -> bool:
    """Whether a person is on the list.

    Args:
        person: Who signed in.
        project: Whose regression it is.
        triagers: Addresses or `@domain`; `project=address` holds for that project alone.
    """
    _, at, domain = person.email.rpartition("@")
    if not at:
        return False
    for entry in triagers:
        of_project, separator, who = entry.strip().rpartition("=")
        if (not separator or of_project == project) and who.lower() in {person.email, f"@{domain}"}:
            return True
    return False


def person_here() -> Person | None:
    """Who signed in; None without."""
    return person_of(st.user.to_dict()) if st.user.get("is_logged_in", False) else None


def show_sign_in(place: DeltaGenerator) -> None:
    """A button to sign in or out, where signing in is set up."""
    if load_settings().sign_in_issuer is None:
        return
    person = person_here()
    if person is None:
        place.button("Sign in", icon=":material/login:", on_click=st.login)
        return
    place.caption(f"Signed in as {code_span(shortened(person.shown_as, length=60))}")
    place.button("Sign out", icon=":material/logout:", on_click=st.logout)


def sign_in_secrets(settings: Settings) -> dict[str, Any]:
    """What Streamlit wants to find among its secrets, kept in memory alone; nothing where nobody can sign in.

    Raises:
        DashboardError: only a part of what it takes is set.
    """
    if settings.sign_in_issuer is None:
        return {}
    required = ("sign_in_client_id", "sign_in_client_secret", "dashboard_url")
    missing = [name for name in required if getattr(settings, name) is None]
    if settings.sign_in_client_secret is None or settings.dashboard_url is None or missing:
        raise DashboardError(f"signing in by {settings.sign_in_issuer} takes the settings {', '.join(missing)} too")
    return {
        "auth": {
            "redirect_uri": f"{settings.dashboard_url.rstrip('/')}{CALLBACK}",
            "cookie_secret": _cookie_secret(settings),
            "client_id": settings.sign_in_client_id,
            "client_secret": settings.sign_in_client_secret.get_secret_value(),
            "server_metadata_url": f"{settings.sign_in_issuer.rstrip('/')}/.well-known/openid-configuration",
        }
    }


def _cookie_secret(settings: Settings) -> str:
    if settings.sign_in_cookie_secret is None:
        return secrets.token_urlsafe(_LEAST_SECRET_LENGTH)
    secret = settings.sign_in_cookie_secret.get_secret_value()
    if len(secret) < _LEAST_SECRET_LENGTH:
        raise DashboardError(
            f"sign_in_cookie_secret has {len(secret)} characters, which can be guessed; {_LEAST_SECRET_LENGTH} are "
            "the least"
        )
    return secret


class ReturnAfterSignIn:
    """An ASGI application around the dashboard's, which returns people who signed in to the page they came from.

    Streamlit sends everybody who signed in to its front page. The page that somebody leaves is kept in a cookie of
    their browser meanwhile: only path and query, and only of one of our views, so that nobody is ever sent elsewhere,
    whatever a link or a cookie says.

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
        parts = urlsplit(_header(headers, b"referer"))
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
        sent = [
            (name, address.encode() if name.lower() == b"location" and value in {b"/", b""} else value)
            for name, value in headers
        ]
        return [*sent, self._set_cookie("", 0)]

    def _set_cookie(self, value: str, max_age_s: int) -> tuple[bytes, bytes]:
        secure = "; Secure" if self._origin.scheme == "https" else ""
        cookie = f"{_COOKIE}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}"
        return b"set-cookie", cookie.encode()


def _header(headers: Headers, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == wanted), "")
