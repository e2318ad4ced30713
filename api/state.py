"""What the routes of one app share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.api.body import Uploads
from roofwatch.api.limits import Limits
from roofwatch.api.memory import Memory
from roofwatch.api.middleware import Metrics
from roofwatch.api.problems import unavailable
from roofwatch.api.room import Room
from roofwatch.db.engine.session import reading_session

_RETRY_S = 5


@dataclass(frozen=True)
class State:
    engine: Engine
    limits: Limits
    metrics: Metrics
    uploads: Uploads
    ingests: asyncio.Semaphore
    """Held while a record is unpacked and stored."""
    memory: Memory
    is_ready: Callable[[], bool]
    room: Room
    wake_judge: Callable[[], None]

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One of the turns to store something.

        Raises:
            ProblemError: none came free in time; a client that waited longer would give up while it is served.
        """
        try:
            async with asyncio.timeout(self.limits.turn_s):
                await self.ingests.acquire()
        except TimeoutError:
            raise unavailable("too many are sending at once; try again in a moment", _RETRY_S) from None
        try:
            yield
        finally:
            self.ingests.release()

    def reading(self) -> AbstractContextManager[Session]:
        """A session that only reads, sees one state of the store throughout, and does not take for ever."""
        return reading_session(self.engine, sees_one_state=True, timeout_s=self.limits.query_s)


def state_of(request: Request) -> State:
    state: State = request.app.state.shared
    return state
