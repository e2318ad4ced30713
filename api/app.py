"""The app: routes, and what stands around them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio.to_thread
from fastapi import FastAPI
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api import problems
from api.access import Gatekeeper
from api.alerting import Alerts, AlertThread
from api.body import Uploads
from api.judging import JudgeThread
from api.limits import Limits
from api.oidc import GITHUB, Workflows
from api.rate import RateLimiter
from api.routes import artefacts, audit, comparison, health, projects, records, regressions, runs, series
from api.state import State
from api.watch import Metrics, Watch
from db.access.trust import list_trusted
from db.access.values import TrustedRepository

# connections that the engine's pool has: more threads would only wait for them
_THREADS = 15


def create_app(
    engine: Engine,
    *,
    version: str,
    limits: Limits | None = None,
    audience: str | None = None,
    issuer: str = GITHUB,
    judges: bool = True,
    alerts: Alerts | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    now_s: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The HTTP door of a store.

    Args:
        engine: Of a store with a current schema.
        version: Of roofwatch, for OpenAPI.
        limits: What is taken from anybody.
        audience: What the tokens of workflows must be made for; None where no workflow is let in.
        issuer: Who makes those tokens.
        judges: Projects that records came in for are judged beside.
        alerts: What is told whom beside; None for nothing.
        now: The time.
        now_s: A clock that never goes back.

    Raises:
        ValueError: the issuer's keys would come over an open line.
    """
    limits = limits or Limits()

    def trusted_by(names: Sequence[str]) -> list[TrustedRepository]:
        with Session(engine) as session:
            return list_trusted(session, names)

    alerting = None if alerts is None else AlertThread(engine, alerts, now)
    on_judged = (lambda: None) if alerting is None else alerting.wake
    judge = JudgeThread(engine, on_judged=on_judged) if judges else None
    beside = [thread for thread in (judge, alerting) if thread is not None]

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        for thread in beside:
            thread.start()
        try:
            yield
        finally:
            for thread in beside:
                await anyio.to_thread.run_sync(thread.stop)

    app = FastAPI(
        title="roofwatch",
        version=version,
        description="Records of kernel benchmarks in; runs, series, comparisons and regressions out.",
        openapi_url="/v1/openapi.json",
        # their pages load scripts from elsewhere
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    metrics = Metrics()
    app.state.gatekeeper = Gatekeeper(
        engine=engine,
        limiter=RateLimiter(limits.requests_per_s, limits.request_burst, now_s),
        workflows=None if audience is None else Workflows(audience, trusted_by, issuer=issuer),
        now=now,
    )
    app.state.shared = State(
        engine=engine,
        limits=limits,
        metrics=metrics,
        uploads=Uploads(limits),
        ingests=asyncio.Semaphore(limits.ingests),
        wake_judge=(lambda: None) if judge is None else judge.wake,
    )
    problems.install(app)
    for routes in (records, runs, artefacts, series, comparison, regressions, projects, audit, health):
        app.include_router(routes.router)
    app.add_middleware(Watch, metrics=metrics)
    return app
