"""An HTTP server on this machine whose answers a function gives."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Answers = Callable[[Request], Answer | None]
"""None closes the connection without an answer."""


class _Handler(BaseHTTPRequestHandler):
    answers: Answers

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urllib.parse.urlsplit(self.path)
        query, path = dict(urllib.parse.parse_qsl(parts.query)), urllib.parse.unquote(parts.path)
        answer = type(self).answers(Request(self.command, path, query, dict(self.headers.items()), body))
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_request  # noqa: N815  the names of http.server

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@contextmanager
def serve(answers: Answers) -> Iterator[str]:
    """Serve until the block ends; gives the URL."""
    handler = type("Handler", (_Handler,), {"answers": staticmethod(answers)})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
