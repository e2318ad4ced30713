"""Receivers on this machine: a mail server and a webhook, which keep all that comes, however often it comes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass
class Mailbox:
    """What came by mail. `refusal` is what the server answers instead of taking a message."""

    url: str = ""
    messages: list[EmailMessage] = field(default_factory=list)
    refusal: str | None = None

    @property
    def keys(self) -> list[str]:
        return [message["Message-ID"] for message in self.messages]

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802  aiosmtpd's
        if self.refusal is not None:
            return self.refusal
        content = cast("bytes", envelope.content)
        self.messages.append(message_from_bytes(content, policy=policy.default))
        return "250 taken"


@contextmanager
def open_mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        mailbox.url = f"smtp://127.0.0.1:{port}/?from=roofwatch@example.com&to=a@example.com,b@example.com"
        yield mailbox
    finally:
        controller.stop()


@dataclass
class Hook:
    """What was posted. `status` is what is answered, after the request was kept or, with `is_deaf`, was not."""

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
        """Say nothing."""


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
