"""Sign-in, and who may triage regressions."""

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
"""Paths of Streamlit."""
_COOKIE = "roofwatch_return"
_KEPT_FOR_S = 600
_LONGEST = 3_000
"""Maximum length in the cookie; browsers keep four kilobytes."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]


class DashboardError(Exception):
    """The dashboard cannot start."""


class NotAllowedError(Exception):
    """A person may not do what they asked for."""


@dataclass(frozen=True)
class Person:
    """A person who signed in."""

    subject: str
    """The provider's permanent id."""
    email: str
    """In lower case; empty if the provider has not verified it."""

    @property
    def shown_as(self) -> str:
        return self.email or "a person without a verified address"

    @property
    def actor(self) -> str:
        """Return the name in the audit trail."""
        return f"sign-in:{self.subject}"


def person_of(claims: Mapping[str, object]) -> Person:
    """Read an identity token. Only a verified address counts, because anybody can write any address into a profile."""
    said = claims.get("email_verified")
    # some providers send a string
    is_verified = said is True or said == "true"
    email = str(claims.get("email") or "").strip().lower() if is_verified else ""
    return Person(subject=str(claims.get("sub") or ""), email=email)


def may_triage(person: Person, project: str, triagers: Iterable[str]) -> bool:
    """Check whether a person is on the list.

    Args:
        person: Who signed in.
        project: Project of the regression.
        triagers: Addresses or `@domain`; `project=address` is valid for that project only.
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
    """Return the person who signed in, if any."""
    return person_of(st.user.to_dict()) if st.user.get("is_logged_in", False) else None


def show_sign_in(place: DeltaGenerator) -> None:
    """Show a button to sign in or out, if sign-in is configured."""
    if load_settings().sign_in_issuer is None:
        return
    person = person_here()
    if person is None:
        place.button("Sign in", icon=":material/login:", on_click=st.login)
        return
    place.caption(f"Signed in as {code_span(shortened(person.shown_as, length=60))}")
    place.button("Sign out", icon=":material/logout:", on_click=st.logout)


def sign_in_secrets(settings: Settings) -> dict[str, Any]:
    """Return Streamlit's sign-in secrets, kept in memory only; empty if sign-in is not configured.

    Raises:
        DashboardError: a required setting is missing.
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
            f"sign_in_cookie_secret has {len(secret)} characters; at least {_LEAST_SECRET_LENGTH} are the least"
        )
    return secret


class ReturnAfterSignIn:
    """ASGI middleware that returns people to their page after sign-in, because Streamlit sends them to the front page.

    A cookie keeps path and query of the page, only for our own views, so no link or cookie can redirect elsewhere.

    Args:
        app: The dashboard.
        views: Paths of its views, without the slash.
        origin: Public address, such as `https://roofwatch.example.com`.
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
        """Return path and query of one of our views; None for other addresses."""
        parts = urlsplit(address)
        if parts.path not in self._paths or len(address) > _LONGEST or not address.isprintable():
            return None
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def _left(self, headers: Headers) -> str | None:
        """Return the page in the browser's referer, if it is ours."""
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
        # two slashes would begin an address on another host
        return self.own_address(kept) if kept.startswith("/") and not kept.startswith("//") else None

    def _keep(self, headers: list[tuple[bytes, bytes]], address: str) -> list[tuple[bytes, bytes]]:
        return [*headers, self._set_cookie(quote(address, safe=""), _KEPT_FOR_S)]

    def _return(self, headers: list[tuple[bytes, bytes]], address: str) -> list[tuple[bytes, bytes]]:
        """Replace only a redirect to the front page."""
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
