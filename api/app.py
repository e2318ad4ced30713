"""The FastAPI app: routes, authentication, limits and background threads of one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio.to_thread
from fastapi import FastAPI
from sqlalchemy import Engine

from roofwatch.api import artefacts, comparison, health, problems, questions, records, regressions, runs, series
from roofwatch.api.auth import GITHUB, Authenticator, Workflows
from roofwatch.api.background import (
    ALERTS_INTERVAL_S,
    ANALYSIS_INTERVAL_S,
    BackgroundThread,
    analyse_waiting,
    send_alerts,
)
from roofwatch.api.limits import BodyReader, Limits
from roofwatch.api.state import Metrics, RequestLog, State
from roofwatch.ci.alerts.delivery import AlertSetup
from roofwatch.db.engine.session import connections_of


def create_app(
    engine: Engine,
    *,
    version: str,
    limits: Limits | None = None,
    audience: str | None = None,
    issuer: str = GITHUB,
    analyses: bool = True,
    alerts: AlertSetup | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> FastAPI:
    """Create the HTTP API of a store.

    Args:
        engine: Of a store with a current schema. Analysis and alerts take one connection each, requests the others.
        version: Of roofwatch, for OpenAPI.
        limits: On what clients send.
        audience: Audience of workflows' OIDC tokens; None to refuse workflows.
        issuer: Issuer of these tokens.
        analyses: Analyse projects with new records.
        alerts: Rules and channels; None for no alerts.
        now: The time.

    Raises:
        ValueError: the issuer has no https URL.
    """
    limits = limits or Limits()
    alerting = analysis = None
    if alerts is not None:
        chosen = alerts
        alerting = BackgroundThread(
            "alerts", lambda is_stopping: send_alerts(engine, chosen, now, is_stopping), ALERTS_INTERVAL_S
        )
    if analyses:

        def analyse(_: Callable[[], bool]) -> None:
            if analyse_waiting(engine) and alerting is not None:
                alerting.wake()

        analysis = BackgroundThread("analysis", analyse, ANALYSIS_INTERVAL_S)
    threads = [thread for thread in (analysis, alerting) if thread is not None]

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # a request needs one connection, so more threads would only wait
        workers = max(1, connections_of(engine) - len(threads))
        anyio.to_thread.current_default_thread_limiter().total_tokens = workers
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in threads:
                await anyio.to_thread.run_sync(thread.stop)

    app = FastAPI(
        title="roofwatch",
        version=version,
        description="Ingest records of kernel benchmarks; read runs, series, comparisons and regressions.",
        openapi_url="/v1/openapi.json",
        # these pages load third-party scripts
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    metrics = Metrics()
    workflows = None if audience is None else Workflows(engine, audience, issuer)
    app.state.authenticator = Authenticator(engine, limits, now, workflows)
    app.state.shared = State(
        engine=engine,
        limits=limits,
        metrics=metrics,
        bodies=BodyReader(limits),
        ingests=asyncio.Semaphore(limits.ingests),
        wake_analysis=(lambda: None) if analysis is None else analysis.wake,
    )
    problems.install(app)
    for module in (records, runs, artefacts, series, comparison, regressions, questions, health):
        app.include_router(module.router)
    app.add_middleware(RequestLog, metrics=metrics)
    return app
