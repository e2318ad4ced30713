"""When a message that could not be sent is tried again. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

MAX_ATTEMPTS = 12
"""About twenty hours: a channel that is down over a night is up again by then."""
_FIRST = timedelta(minutes=1)
_LONGEST = timedelta(hours=6)


def next_attempt_at(attempt_count: int, now: datetime, *, asked_wait_s: float = 0.0) -> datetime | None:
    """When to try again: after 1, 2, 4, … minutes, at most 6 hours, no sooner than the receiver asks; None to give up.

    Args:
        attempt_count: Attempts that were made.
        now: When the last of them failed.
        asked_wait_s: Seconds that the receiver asks to be left alone for.
    """
    if attempt_count >= MAX_ATTEMPTS:
        return None
    wait: timedelta = min(_FIRST * 2.0 ** (attempt_count - 1), _LONGEST)
    return now + max(wait, timedelta(seconds=asked_wait_s))
