"""The FastAPI app: routes, authentication, limits and the alerts of one store; and its server,
uvicorn. Workers analyse (`worker.py`).
"""

import asyncio
import gc
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio.to_thread
import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from roofwatch.api import (
    acceptances,
    acknowledge,
    agenda,
    artefacts,
    comparison,
    problems,
    questions,
    queue,
    queue_runners,
    regressions,
    runs,
    series,
)
from roofwatch.api.auth import GITHUB, Authenticator, Reader, Workflows
from roofwatch.api.limits import BodyReader, HeaderTimeoutProtocol, Limits
from roofwatch.api.logs import Outage
from roofwatch.api.models import Health
from roofwatch.api.problems import PROBLEMS, unavailable
from roofwatch.api.state import Metrics, RequestLog, ServiceHealth, State, state_of
from roofwatch.ci.alerts.evaluation import AlertSetup, deliver_waiting, raise_alerts
from roofwatch.db.engine.migrate import ensure_current
from roofwatch.db.engine.session import connections_of
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.service_state import probe_disk, read_service_state

_RETRY_S = 10
# how late an alert may be sent
_WORK_INTERVAL_S = 30.0
# connections that the kernel holds while the process is busy
_BACKLOG = 512
# room for a long OIDC token among the headers
_HEAD_BYTES = 64 * 2**10
# longer than a usual ingest, so that a restart does not break one off
_SHUTDOWN_S = 30
# a large record makes a million objects without cycles, which defaults would search ten times
_COLLECTION_THRESHOLDS = (50_000, 20, 100)

_log = logging.getLogger("roofwatch.api")

_health = APIRouter(tags=["health"])


def create_app(
    engine: Engine,
    *,
    version: str,
    limits: Limits | None = None,
    audience: str | None = None,
    issuer: str = GITHUB,
    alerts: AlertSetup | None = None,
    exports_series: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> FastAPI:
    """Create the HTTP API of a store.

    Args:
        engine: Of a store with a current schema. Alerts take one connection, requests the others.
        version: Of roofwatch, for OpenAPI.
        limits: On what clients send.
        audience: Audience of workflows' OIDC tokens; None to refuse workflows.
        issuer: Issuer of these tokens.
        alerts: Rules and channels; None for no alerts.
        exports_series: Serve the newest values of series as OpenMetrics.
        now: The time.

    Raises:
        ValueError: the issuer has no https URL.
    """
    limits = limits or Limits()
    stopping = threading.Event()
    tasks: dict[str, Callable[[], object]] = {}
    if alerts is not None:
        tasks["alerts"] = lambda: _send_alerts(engine, alerts, now)
    wakes = {name: threading.Event() for name in tasks}

    def repeat(name: str) -> None:
        """Do a task when woken, and at an interval. Several servers may share one store."""
        outage = Outage(_log, name)
        while not stopping.is_set():
            try:
                tasks[name]()
            except Exception as error:  # noqa: BLE001  the next call may succeed
                # without the message, which may quote a secret
                outage.note_failure(type(error).__name__)
            else:
                outage.note_success()
            wakes[name].wait(_WORK_INTERVAL_S)
            wakes[name].clear()

    def wake() -> None:
        for event in wakes.values():
            event.set()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # a request needs one connection, so more threads would only wait
        anyio.to_thread.current_default_thread_limiter().total_tokens = max(
            1, connections_of(engine) - 1
        )
        workers = [
            threading.Thread(target=repeat, args=[name], name=name, daemon=True) for name in tasks
        ]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            stopping.set()
            wake()
            for worker in workers:
                await anyio.to_thread.run_sync(worker.join)

    app = FastAPI(
        title="roofwatch",
        version=version,
        description="Ingest records of kernel benchmarks; read runs, series, comparisons and "
        "regressions.",
        openapi_url="/v1/openapi.json",
        # these pages load third-party scripts
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    metrics, health = Metrics(), ServiceHealth(Outage(_log, "the database"))
    workflows = None if audience is None else Workflows(engine, audience, issuer)
    app.state.authenticator = Authenticator(engine, limits, now, workflows)
    app.state.shared = State(
        engine=engine,
        limits=limits,
        metrics=metrics,
        health=health,
        bodies=BodyReader(limits),
        ingests=asyncio.Semaphore(limits.ingests),
        wake_worker=wake,
        exports_series=exports_series,
        now=now,
    )
    problems.install(app)
    for module in (
        runs,
        artefacts,
        series,
        comparison,
        regressions,
        questions,
        agenda,
        queue,
        queue_runners,
        acceptances,
    ):
        app.include_router(module.router)
    # a page for people, which exists only where messages link to it
    if alerts is not None and alerts.links is not None:
        app.state.acknowledge_links = alerts.links
        app.include_router(acknowledge.router)
    app.include_router(_health)
    app.add_middleware(RequestLog, metrics=metrics, health=health)
    return app


def _send_alerts(engine: Engine, alerts: AlertSetup, now: Callable[[], datetime]) -> None:
    """Evaluate alerts, and send waiting messages even if that fails."""
    try:
        raise_alerts(engine, alerts, now())
    finally:
        deliver_waiting(engine, alerts.channels, now)


@_health.get("/healthz", summary="Liveness", response_model=Health)
async def healthz() -> Health:
    """Answers while the process runs. Needs no token."""
    return Health(status="ok")


@_health.get("/readyz", summary="Readiness", response_model=Health, responses={503: PROBLEMS[503]})
def readyz(request: Request) -> Health:
    """Checks that the database is reachable with the schema of this version, and has disk space.
    Needs no token.
    """
    state = state_of(request)
    try:
        ensure_current(state.engine)
        if state.health.is_disk_full:
            # no record may come to find out while this is not ready
            with Session(state.engine) as session, session.begin():
                probe_disk(session)
            state.health.is_disk_full = False
    except (StoreError, SQLAlchemyError) as error:
        state.health.database.note_failure(type(error).__name__)
        detail = "the database is unreachable or has another schema"
        if state.health.is_disk_full:
            detail = "the database's disk is full"
        raise unavailable(f"{detail}; see the server's log", _RETRY_S) from None
    state.health.database.note_success()
    return Health(status="ok")


@_health.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **PROBLEMS},
)
def metrics(request: Request, reader: Reader) -> Response:
    """Metrics of this process and of the service in Prometheus' text format, without project
    names.
    """
    del reader
    state = state_of(request)
    with state.reading() as session:
        service_state = read_service_state(session, state.now())
    state.metrics.service.update(service_state, is_disk_full=state.health.is_disk_full)
    return Response(generate_latest(state.metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


# --- the server


class ServeError(Exception):
    """The server cannot listen."""


def serve(
    app: FastAPI,
    *,
    host: str,
    port: int,
    limits: Limits,
    on_ready: Callable[[str], None],
    certificate: Path | None = None,
    key: Path | None = None,
) -> None:
    """Serve until a signal; open requests are answered first.

    Args:
        app: To serve.
        host: Address to listen on.
        port: 0 for any free port.
        limits: Of connections and heads.
        on_ready: Called with the URL; clients that connect at once wait.
        certificate: PEM with its chain, for TLS; None for plain HTTP.
        key: Of the certificate, if in another file.

    Raises:
        ServeError: it cannot listen there.
    """
    family, name = socket.AF_INET, host
    if ":" in host:
        family, name = socket.AF_INET6, f"[{host}]"
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ServeError(f"{host}:{port}: cannot listen: {error.strerror or error}") from None
    config = configure(app, limits, certificate=certificate, key=key)
    scheme = "http" if certificate is None else "https"
    url = f"{scheme}://{name}:{listening.getsockname()[1]}"
    gc.freeze()  # full collections then skip the 200,000 objects of imported modules
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    with listening:
        on_ready(url)
        uvicorn.Server(config).run(sockets=[listening])


def configure(
    app: FastAPI,
    limits: Limits,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=type("Protocol", (HeaderTimeoutProtocol,), {"head_s": limits.head_s}),
        ws="none",
        # the app logs requests itself, without query strings
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.idle_s,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        h11_max_incomplete_event_size=_HEAD_BYTES,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
