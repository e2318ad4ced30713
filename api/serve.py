"""Serve the app with uvicorn."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from roofwatch.api.limits import HeaderTimeoutProtocol, Limits

_BACKLOG = 512
_HEAD_BYTES = 64 * 2**10
_SHUTDOWN_S = 30


class ServeError(Exception):
    """The server cannot listen where it should."""


class _Server(uvicorn.Server):
    """A server that tells when it is ready."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()


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
    """Serve until a signal ends it; requests at hand are answered first.

    Args:
        app: What to serve.
        host: Address to listen on.
        port: 0 for a free one.
        limits: For connections and heads.
        on_ready: Gets the URL once the server answers.
        certificate: For TLS, with its chain, as PEM; None to speak plain HTTP, to this machine or a proxy.
        key: Of the certificate, if it is not in the same file.

    Raises:
        ServeError: it cannot listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ServeError(f"{host}:{port}: cannot listen there: {error.strerror or error}; choose another") from None
    config = configure(app, limits, certificate=certificate, key=key)
    name = f"[{host}]" if ":" in host else host
    url = f"{'http' if certificate is None else 'https'}://{name}:{listening.getsockname()[1]}"
    with listening:
        _Server(config, lambda: on_ready(url)).run(sockets=[listening])


def configure(
    app: FastAPI, limits: Limits, *, certificate: Path | None = None, key: Path | None = None
) -> uvicorn.Config:
    """How uvicorn serves the app."""
    return uvicorn.Config(
        app,
        http=type("Protocol", (HeaderTimeoutProtocol,), {"head_s": limits.head_s}),
        ws="none",
        # the app logs a line of its own for each request, without what its query says
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


def log_to_stderr() -> None:
    """A line for each request and each failure."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # they repeat our lines, or report every look at the schema
    for name in ("uvicorn.error", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
