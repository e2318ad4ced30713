"""Times as the reader's clock shows them."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import streamlit as st


def reader_zone() -> tzinfo:
    """The zone of the reader's browser; UTC where it does not say, or names one that is not known here."""
    name = st.context.timezone
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, ValueError):
        return UTC


def written(moment: datetime, zone: tzinfo) -> str:
    """`2026-03-01 13:00 CET`."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M %Z}"
