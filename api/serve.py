"""Serve the app with uvicorn."""

import gc
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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ServeError(f"{host}:{port}: cannot listen: {error.strerror or error}") from None
    config = configure(app, limits, certificate=certificate, key=key)
    name = f"[{host}]" if ":" in host else host
    url = f"{'http' if certificate is None else 'https'}://{name}:{listening.getsockname()[1]}"
    gc.freeze()  # full collections then skip the 200,000 objects of imported modules
    with listening:
        on_ready(url)
        uvicorn.Server(config).run(sockets=[listening])


def configure(
    app: FastAPI, limits: Limits, *, certificate: Path | None = None, key: Path | None = None
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


def log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # these repeat our lines, or log every check of the schema
    for name in ("uvicorn.error", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
