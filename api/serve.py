"""Serve the app with uvicorn."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from roofwatch.api.limits import Limits

_BACKLOG = 512
_HEAD_BYTES = 64 * 2**10
_SHUTDOWN_S = 30


class ServeError(Exception):
    """The server cannot listen where it should."""


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose request has no whole head in time; uvicorn itself waits for one for ever."""

    head_s = Limits.head_s
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop()
        elif self._deadline is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._deadline = self.loop.call_later(self.head_s, self._give_up)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """A server that says when it is ready."""

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
        on_ready: Gets the URL once it can be asked.
        certificate: For TLS, with its chain, as PEM; None to speak plain HTTP, to this machine or a proxy.
        key: Of the certificate, if it is not in the same file.

    Raises:
        ServeError: it cannot listen there.
    """
    try:
        listening = socket.create_server((host, port), family=_family(host), backlog=_BACKLOG, reuse_port=False)
    except OSError as error:
        raise ServeError(f"{host}:{port}: cannot listen there: {error.strerror or error}; choose another") from None
    config = configure(app, limits, certificate=certificate, key=key)
    name = f"[{host}]" if ":" in host else host
    url = f"{'http' if certificate is None else 'https'}://{name}:{listening.getsockname()[1]}"
    with listening:
        Server(config, lambda: on_ready(url)).run(sockets=[listening])


def configure(
    app: FastAPI, limits: Limits, *, certificate: Path | None = None, key: Path | None = None
) -> uvicorn.Config:
    """How uvicorn serves the app."""
    protocol = type("Protocol", (ImpatientProtocol,), {"head_s": limits.head_s})
    return uvicorn.Config(
        app,
        http=protocol,
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
    # uvicorn's own lines say what ours do
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # says which database and which transactions it found, whenever it looks whether the schema is the right one
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
