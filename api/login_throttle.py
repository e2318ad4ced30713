"""How many wrong tokens an address may show before they are no longer looked at.

Counted in this process alone and by the address that a connection comes from: nothing that a client writes is believed
about where it is, so behind a proxy all clients are one. That locks nobody out who has a right token: right ones are
told from wrong ones without a question to the database, by hashes that are in memory, and go on as ever.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from roofwatch.db.auth.tokens import LiveTokens

_MOST_KNOWN = 10_000
"""Addresses: some megabytes. Who comes from more than these is not held up by this."""
_IPV6_NETWORK_BITS = 64
"""Whoever has one address of a network has all of them."""
_TOKENS_LIVE_S = 1.0
"""A token that is made meanwhile waits so long at most, where its address shows too many wrong ones."""


@dataclass
class _Bucket:
    level: float
    filled_at_s: float


class FailureLimiter:
    """Counts the wrong tokens of each address.

    Args:
        per_s: So many come back.
        most: So many at once.
        load_tokens: The tokens that are good now.
        now_s: A clock that never goes back.
    """

    def __init__(
        self, per_s: float, most: int, load_tokens: Callable[[], LiveTokens], now_s: Callable[[], float]
    ) -> None:
        self._per_s = per_s
        self._most = float(most)
        self._load_tokens = load_tokens
        self._now_s = now_s
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()
        self._tokens: LiveTokens | None = None
        self._loaded_at_s = 0.0

    def wait_s(self, address: str) -> float:
        """0 where a token of this address is looked at whatever it is, else in how many seconds."""
        with self._lock:
            bucket = self._buckets.get(_network(address))
            level = self._most if bucket is None else self._level(bucket)
        return 0.0 if level >= 1 else (1 - level) / self._per_s

    def note(self, address: str) -> None:
        """A token of this address was wrong."""
        name = _network(address)
        with self._lock:
            bucket = self._buckets.pop(name, None) or _Bucket(self._most, self._now_s())
            bucket.level, bucket.filled_at_s = max(0.0, self._level(bucket) - 1), self._now_s()
            self._buckets[name] = bucket
            if len(self._buckets) > _MOST_KNOWN:
                self._buckets.popitem(last=False)  # who showed none for longest

    def is_right(self, text: str) -> bool:
        """Whether a text is a token that was good a second ago."""
        with self._lock:
            if self._tokens is None or self._now_s() - self._loaded_at_s >= _TOKENS_LIVE_S:
                self._loaded_at_s = self._now_s()
                self._tokens = self._load_tokens()
            tokens = self._tokens
        return tokens.have(text)

    def _level(self, bucket: _Bucket) -> float:
        return min(self._most, bucket.level + (self._now_s() - bucket.filled_at_s) * self._per_s)


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address  # of a socket that has none
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_NETWORK_BITS), strict=False))
