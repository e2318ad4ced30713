"""What Streamlit is told of the OpenID Connect provider that people sign in with, from our settings."""

from __future__ import annotations

import secrets
from typing import Any

from roofwatch.dashboard.errors import DashboardError
from roofwatch.settings import Settings

_CALLBACK = "oauth2callback"
"""Streamlit's own path for it."""
_DISCOVERY = ".well-known/openid-configuration"
_LEAST_SECRET_LENGTH = 32


def sign_in_secrets(settings: Settings) -> dict[str, Any]:
    """What Streamlit wants to find among its secrets; nothing where nobody can sign in. It is kept in memory alone.

    Raises:
        DashboardError: only a part of what it takes is set.
    """
    if settings.sign_in_issuer is None:
        return {}
    required = {
        "sign_in_client_id": settings.sign_in_client_id,
        "sign_in_client_secret": settings.sign_in_client_secret,
        "dashboard_url": settings.dashboard_url,
    }
    missing = [name for name, value in required.items() if value is None]
    if missing:
        raise DashboardError(f"signing in by {settings.sign_in_issuer} takes the settings {', '.join(missing)} too")
    assert settings.sign_in_client_secret is not None
    assert settings.dashboard_url is not None
    return {
        "auth": {
            "redirect_uri": f"{settings.dashboard_url.rstrip('/')}/{_CALLBACK}",
            "cookie_secret": _cookie_secret(settings),
            "client_id": settings.sign_in_client_id,
            "client_secret": settings.sign_in_client_secret.get_secret_value(),
            "server_metadata_url": f"{settings.sign_in_issuer.rstrip('/')}/{_DISCOVERY}",
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
