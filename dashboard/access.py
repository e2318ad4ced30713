"""Sign-in, who reads, and who may triage regressions."""

import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from roofwatch.configuration.settings import Settings, load_settings
from roofwatch.dashboard.wording import code_span, shortened
from roofwatch.db.regressions.decisions import Signature
from roofwatch.regressions.triaging import git_signature

_MIN_SECRET_LENGTH = 32
LOCAL_VARIABLE = "ROOFWATCH_DASHBOARD_IS_LOCAL"
"""Environment variable, `1` if the server listens on this machine only."""
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
_PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip")
_CALLBACK = "/oauth2callback"
"""Path of Streamlit."""


class DashboardError(Exception):
    """The dashboard cannot start."""


class NotAllowedError(Exception):
    """This dashboard may not do what was asked for."""


@dataclass(frozen=True)
class Person:
    """A person who signed in."""

    subject: str
    """The provider's permanent id."""
    email: str
    """In lower case; empty if the provider has not verified it."""
    groups: tuple[str, ...] = ()
    """Of the provider, when the person signed in."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return what a list of readers or triagers may call the person."""
        named_groups = tuple(f"group:{group}" for group in self.groups)
        _, separator, domain = self.email.rpartition("@")
        if not separator:
            return named_groups
        return (self.email, f"@{domain}", *named_groups)

    @property
    def shown_as(self) -> str:
        return self.email or "a person without a verified address"

    @property
    def actor(self) -> str:
        """Return the name in the audit trail."""
        return f"sign-in:{self.subject}"


def person_of(claims: Mapping[str, object]) -> Person:
    """Read an identity token. Only a verified address counts, because anybody can write any address
    into a profile.
    """
    # an address that nobody verified could be anybody's
    verified = claims.get("email_verified")
    # some providers send a string
    is_verified = verified is True or verified == "true"
    email = ""
    if is_verified:
        email = str(claims.get("email") or "").strip().lower()
    groups = claims.get("groups")
    if not isinstance(groups, list):
        groups = []
    return Person(
        subject=str(claims.get("sub") or ""),
        email=email,
        groups=tuple(group for group in groups if isinstance(group, str)),
    )


def may_triage(
    person: Person,
    project: str,
    triagers: Iterable[str],
) -> bool:
    """Check whether a person is on the list.

    Args:
        person: Who signed in.
        project: Project of the regression.
        triagers: Addresses or `@domain`; `project=address` is valid for that project only.
    """
    # the audit trail names an address
    if not person.email:
        return False
    for entry in triagers:
        # `owner/kernels=ada@example.com` is for one project, a plain address for all
        of_project, separator, who = entry.strip().rpartition("=")
        if separator and of_project != project:
            continue
        if who.lower() in person.names:
            return True
    return False


def person_here() -> Person | None:
    """Return the person who signed in, if any."""
    if st.user.get("is_logged_in", False):
        return person_of(st.user.to_dict())
    return None


def signature_here(project: str) -> tuple[Signature | None, str]:
    """Return who may decide about regressions in this session; else None and the reason.

    Without an identity provider, only a browser on this machine may: git says who that is.
    """
    settings = load_settings()
    if settings.sign_in_issuer is None:
        # without sign-in nobody elsewhere can be told apart
        if not is_local():
            return None, "Read-only: sign-in is not configured."
        signature = git_signature()
        if signature is None:
            return None, "Read-only: git config --global user.email says who decides."
        return signature, ""
    person = person_here()
    if person is None:
        return None, "Sign in to decide."
    if not may_triage(person, project, settings.triagers):
        return None, f"{shortened(person.shown_as)} may read, but may not decide."
    return Signature(person=person.email, actor=person.actor), ""


def reader_names_here() -> tuple[str, ...] | None:
    """Return what lists of readers may call the person of this session; None for somebody on this
    machine, who could read the database too.
    """
    if load_settings().sign_in_issuer is None:
        if is_local():
            return None
        return ()
    person = person_here()
    if person is None:
        return ()
    return person.names


def is_local() -> bool:
    """Whether browser and server are one machine, with no proxy between them."""
    if os.environ.get(LOCAL_VARIABLE) != "1":
        return False
    headers = st.context.headers
    # the port does not count, and IPv6 addresses stand in brackets
    host_and_port = headers.get("Host") or ""
    host, _, _ = host_and_port.rpartition(":")
    host = host.strip("[]")
    is_forwarded = any(name in headers for name in _PROXY_HEADERS)
    return host in _LOOPBACK_NAMES and not is_forwarded


def show_sign_in() -> None:
    """Show a button to sign in or out, if sign-in is configured."""
    if load_settings().sign_in_issuer is None:
        return
    person = person_here()
    if person is None:
        st.button("Sign in", on_click=st.login)
        return
    with st.popover("Account"):
        st.caption(f"Signed in as {code_span(shortened(person.shown_as, length=60))}")
        st.button("Sign out", on_click=st.logout)


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
        raise DashboardError(
            f"signing in by {settings.sign_in_issuer} takes the settings {', '.join(missing)} too"
        )
    return {
        "auth": {
            "redirect_uri": f"{settings.dashboard_url.rstrip('/')}{_CALLBACK}",
            "cookie_secret": _cookie_secret(settings),
            "client_id": settings.sign_in_client_id,
            "client_secret": settings.sign_in_client_secret.get_secret_value(),
            "server_metadata_url": (
                f"{settings.sign_in_issuer.rstrip('/')}/.well-known/openid-configuration"
            ),
        }
    }


def _cookie_secret(settings: Settings) -> str:
    if settings.sign_in_cookie_secret is None:
        # a new one at each start: people sign in again after a restart
        return secrets.token_urlsafe(_MIN_SECRET_LENGTH)
    secret = settings.sign_in_cookie_secret.get_secret_value()
    if len(secret) < _MIN_SECRET_LENGTH:
        raise DashboardError(
            f"sign_in_cookie_secret has {len(secret)} characters; use at least {_MIN_SECRET_LENGTH}"
        )
    return secret
