"""A proxy to a database that a test can close and open again."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Gate:
    """Passes bytes between clients of `port` and the socket of a server while it is open."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._listening: socket.socket | None = None
        self._lines: set[socket.socket] = set()
        self.port = 0
        self.open()

    def open(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def close(self) -> None:
        """Refuse new connections and close the others."""
        if self._listening is not None:
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        for line in list(self._lines):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            self._lines |= {client, server}
            with selectors.DefaultSelector() as waiting:
                waiting.register(client, selectors.EVENT_READ, server)
                waiting.register(server, selectors.EVENT_READ, client)
                while True:
                    for found, _ in waiting.select():
                        data = found.fileobj.recv(2**16)  # type: ignore[union-attr]
                        if not data:
                            return
                        found.data.sendall(data)
