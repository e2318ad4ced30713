"""A real PgBouncer in front of a server, which hands each transaction to whatever connection is free."""

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

_A_MINUTE_S = 60


@contextmanager
def pooling(url: URL, *, connections: int, **settings: object) -> Iterator[URL]:
    """Start one for the time of a `with` block.

    Args:
        url: Of a database of the server.
        connections: That it has to the server for one database.
        settings: More of its own.

    Returns:
        The URL of the same database by way of it.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # it refuses to be root, and nobody else may look into a folder of a test's
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        told = {
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
        ini.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in told.items())]))
        command = ["pgbouncer", "--quiet", str(ini)]
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (folder, ini):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            command = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", *command]
        log = folder / "log"
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as bouncer:
            try:
                _wait_until_it_listens(bouncer, port, log)
                # it takes no options of the server's in the beginning
                yield url.set(host="127.0.0.1", port=port, query={})
            finally:
                bouncer.terminate()


def _wait_until_it_listens(bouncer: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + _A_MINUTE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert bouncer.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        else:
            return
