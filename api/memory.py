"""What records may take of memory while they are parsed and stored, all of a process together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from roofwatch.api.limits import Limits
from roofwatch.api.problems import unavailable

_RETRY_S = 5


class Memory:
    """Shares out `memory_bytes`. Many small records are read at once so, and large ones one after the other."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held_bytes = 0
        self._first = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def share(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold so much of it, which is no more than there is; who came first is served first.

        Raises:
            ProblemError: none came free in time.
        """
        try:
            # a large one that waits is not overtaken by small ones for ever
            async with asyncio.timeout(self._limits.turn_s), self._first:
                while self._held_bytes + size_bytes > self._limits.memory_bytes:
                    self._freed.clear()
                    await self._freed.wait()
                self._held_bytes += size_bytes
        except TimeoutError:
            raise unavailable("too many large records are sent at once; try again in a moment", _RETRY_S) from None
        try:
            yield
        finally:
            self._held_bytes -= size_bytes
            self._freed.set()
