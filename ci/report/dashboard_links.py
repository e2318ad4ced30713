"""Addresses of the dashboard's views. Pure."""

from __future__ import annotations

from urllib.parse import urlencode


def dashboard_link(dashboard_url: str, view: str, **query: str) -> str:
    """The address of a view; whatever a query says is quoted.

    Args:
        dashboard_url: Where the dashboard is.
        view: As its address names it; empty for the first.
        query: What is chosen there.
    """
    return f"{dashboard_url.rstrip('/')}/{view}?{urlencode(query)}"
