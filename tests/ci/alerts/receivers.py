"""A webhook on this machine that keeps every request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hook:
    """What was posted. It answers `status`; with `is_deaf` it keeps nothing."""

    url: str = ""
    documents: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    is_deaf: bool = False
    arrived: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        hook = self.server.hook
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        if not hook.is_deaf:
            hook.documents.append(json.loads(sent))
            hook.keys.append(self.headers["Idempotency-Key"])
        self.send_response(hook.status)
        for name, value in hook.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()
        hook.arrived.set()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hook: Hook


@contextmanager
def open_hook() -> Iterator[Hook]:
    hook = Hook()
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.hook = hook
        hook.url = f"http://127.0.0.1:{server.server_address[1]}/services/T0KEN-in-the-path"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hook
        finally:
            server.shutdown()
            thread.join()
