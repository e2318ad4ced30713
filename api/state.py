"""What the routes of one app share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fastapi import Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.body import Uploads
from api.limits import Limits
from api.store import reading
from api.watch import Metrics


@dataclass(frozen=True)
class State:
    engine: Engine
    limits: Limits
    metrics: Metrics
    uploads: Uploads
    ingests: asyncio.Semaphore
    """Held while a record is unpacked and stored."""
    wake_judge: Callable[[], None]

    def reading(self) -> AbstractContextManager[Session]:
        return reading(self.engine, self.limits)


def state_of(request: Request) -> State:
    state: State = request.app.state.shared
    return state
