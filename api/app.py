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
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from roofwatch.api import problems
from roofwatch.api.access import Gatekeeper
from roofwatch.api.alerting import Alerts, AlertThread
from roofwatch.api.body import Uploads
from roofwatch.api.judging import JudgeThread
from roofwatch.api.limits import Limits
from roofwatch.api.login_throttle import FailureLimiter
from roofwatch.api.memory import Memory
from roofwatch.api.middleware import Metrics, Watch
from roofwatch.api.oidc import GITHUB, Workflows
from roofwatch.api.rate import RateLimiter
from roofwatch.api.room import Room
from roofwatch.api.routes import (
    artefacts,
    audit,
    comparison,
    health,
    projects,
    questions,
    records,
    regressions,
    runs,
    series,
)
from roofwatch.api.state import State
from roofwatch.db.auth.allowance import Bucket, Taken, take
from roofwatch.db.auth.tokens import load_live_tokens
from roofwatch.db.auth.trust import list_trusted
from roofwatch.db.auth.values import TrustedRepository
from roofwatch.db.engine.disk_space import is_full
from roofwatch.db.engine.migrate import ensure_current
from roofwatch.db.engine.session import connections_of

_LOANS = 20
"""A process takes such a part of a full bucket at a time."""


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
        engine: Of a store with a current schema. So many requests are worked on at once as it may have connections,
            but for those of judging and alerting beside.
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

    bucket = Bucket(limits.requests_per_s, limits.request_burst)

    def take_requests(name: str, wanted: int) -> Taken:
        try:
            return take(engine, name, wanted, bucket, now())
        except DBAPIError as error:
            if not is_full(error):
                raise
            return Taken(wanted, 0.0)  # whoever only reads is answered though nothing can be written

    alerting = None if alerts is None else AlertThread(engine, alerts, now)
    on_judged = (lambda: None) if alerting is None else alerting.wake
    judge = JudgeThread(engine, on_judged=on_judged) if judges else None
    beside = [thread for thread in (judge, alerting) if thread is not None]

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # a request has at most one connection: more threads would only wait for them
        threads = max(1, connections_of(engine) - len(beside))
        anyio.to_thread.current_default_thread_limiter().total_tokens = threads
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
    metrics, room = Metrics(), Room(engine)

    def look() -> bool:
        ensure_current(engine)
        return not room.is_full()

    app.state.gatekeeper = Gatekeeper(
        engine=engine,
        limiter=RateLimiter(take_requests, max(1, limits.request_burst // _LOANS), now_s),
        failures=FailureLimiter(
            limits.failures_per_s, limits.failure_burst, lambda: load_live_tokens(engine, now()), now_s
        ),
        workflows=None if audience is None else Workflows(audience, trusted_by, issuer=issuer),
        now=now,
    )
    app.state.shared = State(
        engine=engine,
        limits=limits,
        metrics=metrics,
        uploads=Uploads(limits),
        ingests=asyncio.Semaphore(limits.ingests),
        memory=Memory(limits),
        is_ready=look,
        room=room,
        wake_judge=(lambda: None) if judge is None else judge.wake,
    )
    problems.install(app)
    for routes in (records, runs, artefacts, series, comparison, regressions, projects, questions, audit, health):
        app.include_router(routes.router)
    app.add_middleware(Watch, metrics=metrics)
    return app
