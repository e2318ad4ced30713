"""What the reader's browser tells of them."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import streamlit as st


def is_page_dark() -> bool:
    """By the theme that the browser shows; light where it does not say."""
    return st.context.theme.type == "dark"


def reader_zone() -> tzinfo:
    """The zone of the reader's browser; UTC where it does not say, or names one that is not known here."""
    name = st.context.timezone
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, ValueError):
        return UTC
