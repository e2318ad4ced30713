"""Health checks and metrics."""

from __future__ import annotations

import logging

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from sqlalchemy.exc import SQLAlchemyError

from roofwatch.api.auth import Reader
from roofwatch.api.models import Health
from roofwatch.api.problems import PROBLEMS, unavailable
from roofwatch.api.state import state_of
from roofwatch.db.engine.migrate import ensure_current
from roofwatch.db.errors import StoreError

_RETRY_S = 10

_log = logging.getLogger("roofwatch.api")

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Liveness", response_model=Health)
async def healthz() -> Health:
    """Answers while the process runs. Needs no token."""
    return Health(status="ok")


@router.get("/readyz", summary="Readiness", response_model=Health, responses={503: PROBLEMS[503]})
def readyz(request: Request) -> Health:
    """Checks that the database is reachable with the schema of this version. Needs no token."""
    try:
        ensure_current(state_of(request).engine)
    except (StoreError, SQLAlchemyError) as error:
        _log.warning("not ready: %s", type(error).__name__)
        detail = "the database is unreachable or has another schema; see the server's log"
        raise unavailable(detail, _RETRY_S) from None
    return Health(status="ok")


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **PROBLEMS},
)
def metrics(request: Request, reader: Reader) -> Response:
    """Metrics of this process in Prometheus' text format, without project names."""
    del reader
    return Response(generate_latest(state_of(request).metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)
