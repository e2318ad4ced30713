"""Whether the database can be worked with, looked into once for all who ask meanwhile: nobody needs a token to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool


class Readiness:
    """Has one look at a time.

    Args:
        look: Whether it has room; raises what else is wrong with it.
    """

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = look
        self._looking: asyncio.Future[bool] | None = None

    async def has_room(self) -> bool:
        """Have a look, or wait for the one that is under way; raises what it raises."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(run_in_threadpool(self._look))
            self._looking.add_done_callback(self._note_done)
        # whoever leaves ends it for nobody else
        return await asyncio.shield(self._looking)

    def _note_done(self, _: asyncio.Future[bool]) -> None:
        self._looking = None
