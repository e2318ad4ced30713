"""The app behind a real socket, in a thread of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import uvicorn
from sqlalchemy import Engine

from roofwatch.api.limits import Limits
from roofwatch.api.serve import configure
from roofwatch.db.auth.values import Scope
from tests.api.conftest import make_app, new_token


def token_of_today(store: Engine, scope: Scope) -> str:
    """A token that is valid by the real clock."""
    return new_token(store, scope, now=datetime.now(UTC)).text


@contextmanager
def served(store: Engine, limits: Limits | None = None) -> Iterator[tuple[str, int]]:
    """Serve the app, and yield its address."""
    chosen = limits or Limits()
    server = uvicorn.Server(configure(make_app(store, chosen), chosen))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            # early clients wait in the socket's queue
            yield listening.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()
