"""Moments on an axis of time, in a zone. Plotly draws the clock time that it is given and ignores the zone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, tzinfo


def on_axis(moments: Iterable[datetime], zone: tzinfo) -> list[datetime]:
    """As the clock of the zone shows them."""
    return [moment.astimezone(zone).replace(tzinfo=None) for moment in moments]
