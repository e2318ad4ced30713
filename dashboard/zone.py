"""Times as the reader's clock shows them. Every view names the zone once, in its header. Pure."""

from __future__ import annotations

from datetime import datetime, tzinfo


def zone_title(zone: tzinfo) -> str:
    """`Europe/Berlin`, whatever the season."""
    return str(zone)


def written(moment: datetime, zone: tzinfo) -> str:
    """`2026-03-01 13:00`."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M}"


def date_written(moment: datetime, zone: tzinfo) -> str:
    """`2026-03-01`."""
    return f"{moment.astimezone(zone):%Y-%m-%d}"
