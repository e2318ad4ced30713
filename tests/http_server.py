"""An HTTP server on this machine whose answers a function or a list gives."""

from __future__ import annotations

import gzip
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from roofwatch.collector.outbox.http_client import HttpSender
from roofwatch.model.record import RunRecord
from tests.builders import NOON

TOKEN = "a-secret-token"


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
        answer = type(self).answers(
            Request(self.command, path, query, dict(self.headers.items()), body)
        )
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request  # noqa: N815  the names of http.server

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


# --- a server that gives the answers of a list


@dataclass
class FakeServer:
    """Gives each answer once, in order; a request too many breaks the connection."""

    url: str = ""
    answers: list[Answers] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def answer(self, request: Request) -> Answer | None:
        self.requests.append(request)
        return self.answers.pop(0)(request) if self.answers else None

    def sender(self) -> HttpSender:
        return HttpSender(self.url, TOKEN, timeout_s=5, now=lambda: NOON)


def answer(status: int, body: bytes = b"", **headers: str) -> Answers:
    """Give a fixed answer; `_` in the name of a header stands for `-`."""
    return lambda _: Answer(
        status, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )


def acknowledge(status: int = 201, **changed: object) -> Answers:
    """Acknowledge the record of a request, with other or further fields."""

    def acknowledged(request: Request) -> Answer:
        record = RunRecord.from_json(gzip.decompress(request.body), name="request")
        known = {"run_id": str(record.run_id), "content_hash": record.content_hash}
        return Answer(status, json.dumps(known | changed).encode())

    return acknowledged


def hang_up(_: Request) -> None:
    """Close the connection without an answer."""


hang_up_within = answer(200, b'{"run_id":', Content_Length="1000")
