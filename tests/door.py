"""A real HTTP server on this machine that answers as a test tells it to."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from roofwatch.collector.outbox.upload import HttpSender
from roofwatch.collector.record.record import RunRecord
from tests.builders import NOON

TOKEN = "a-secret-token"


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.door.requests.append(Received(self.path, dict(self.headers.items()), body))
        self.server.door.answers.pop(0)(self, body)

    def do_PUT(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        if not self.server.door.is_read:
            raise AssertionError("a redirect was followed")
        self.server.door.requests.append(Received(self.path, dict(self.headers.items()), b""))
        self.server.door.answers.pop(0)(self, b"")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    door: Door


Say = Callable[[_Handler, bytes], None]


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Door:
    url: str
    answers: list[Say] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)
    is_read: bool = False
    """Questions are answered too."""

    def sender(self, token: str | None = TOKEN) -> HttpSender:
        return HttpSender(self.url, token, timeout_s=5, now=lambda: NOON)


def acknowledge(status: int = 201) -> Say:
    def say(handler: _Handler, body: bytes) -> None:
        record = RunRecord.from_json(gzip.decompress(body), name="request")
        known = {"run_id": str(record.run_id), "content_hash": record.content_hash}
        handler.say(status, json.dumps(known).encode())

    return say


def answer(status: int, body: bytes = b"", **headers: str) -> Say:
    return lambda handler, _: handler.say(status, body, **headers)


def hang_up(handler: _Handler, _body: bytes) -> None:
    handler.close_connection = True


def hang_up_within(handler: _Handler, _body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"run_id":')
    handler.close_connection = True


def speak_another_protocol(handler: _Handler, _body: bytes) -> None:
    handler.wfile.write(b"220 mail.example ESMTP\r\n")
    handler.close_connection = True


@contextmanager
def open_door() -> Iterator[Door]:
    with _HttpServer(("127.0.0.1", 0), _Handler) as server:
        server.door = Door(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.door
        server.shutdown()
        thread.join()
