"""Whether to ask GitHub again, and when. Pure.

Source: GitHub's "Best practices for using the REST API" and "Rate limits for the REST API": wait as long as
`retry-after` says, else until `x-ratelimit-reset` where `x-ratelimit-remaining` is 0, else at least a minute after a
secondary limit. Ours: a server's error or a broken connection is tried again after 1, 2, 4 and 8 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_ATTEMPTS = 5
MAX_WAIT_S = 900.0
"""A job that waits longer costs more than the comment is worth; the next run posts it."""

_SERVER_ERRORS = frozenset({500, 502, 503, 504})
_LIMITED = frozenset({403, 429})
_SECONDARY_LIMIT_S = 60.0


@dataclass(frozen=True)
class Failure:
    """How a request failed."""

    status: int | None
    """None: the connection broke, or nothing came in time."""
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""

    @property
    def is_limit(self) -> bool:
        """Refused unseen, for having asked too much."""
        return self.status == 429 or (self.status in _LIMITED and self._limit_wait_s(0.0) is not None)

    @property
    def is_uncertain(self) -> bool:
        """Whether the request may have been carried out for all that."""
        return self.status is None or self.status in _SERVER_ERRORS

    def wait_s(self, attempt: int, now_s: float) -> float | None:
        """Seconds until the request may be made again; None if it is of no use.

        Args:
            attempt: How many were made.
            now_s: The time, in seconds since 1970, which a limit's end is counted from.
        """
        if attempt >= MAX_ATTEMPTS:
            return None
        if self.is_uncertain:
            return self._asked_s() or 2.0 ** (attempt - 1)
        if self.status in _LIMITED:
            wait_s = self._limit_wait_s(now_s)
            return _SECONDARY_LIMIT_S if wait_s is None and self.status == 429 else wait_s
        return None

    def _limit_wait_s(self, now_s: float) -> float | None:
        asked_s = self._asked_s()
        if asked_s is not None:
            return asked_s
        if self.headers.get("x-ratelimit-remaining") == "0":
            # a second more, since clocks differ
            return max(0.0, _number(self.headers.get("x-ratelimit-reset")) - now_s) + 1.0
        return _SECONDARY_LIMIT_S if "rate limit" in self.message.lower() else None

    def _asked_s(self) -> float | None:
        return _number(self.headers["retry-after"]) if "retry-after" in self.headers else None


def _number(text: str | None) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return _SECONDARY_LIMIT_S
