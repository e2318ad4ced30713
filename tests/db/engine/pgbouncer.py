"""A PgBouncer in transaction mode in front of a server."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL

_TIMEOUT_S = 60


@contextmanager
def pooling(url: URL, *, connections: int, **settings: object) -> Iterator[URL]:
    """Start a PgBouncer, and yield the URL of the database through it.

    Args:
        url: Of a database of the server.
        connections: Maximum to the server per database.
        settings: Further settings.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # PgBouncer refuses to run as root, and test folders are private
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": connections,
            **settings,
        }
        lines = ["[databases]", f"* = host={url.query['host']} user={url.username}", "[pgbouncer]"]
        ini = folder / "pgbouncer.ini"
        ini.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in options.items())]))
        command = ["pgbouncer", "--quiet", str(ini)]
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (folder, ini):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            command = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", *command]
        log = folder / "log"
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as bouncer:
            try:
                _wait_until_listening(bouncer, port, log)
                # PgBouncer refuses startup options
                yield url.set(host="127.0.0.1", port=port, query={})
            finally:
                bouncer.terminate()


def _wait_until_listening(bouncer: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert bouncer.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        else:
            return
