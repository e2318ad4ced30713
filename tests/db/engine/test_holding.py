"""The advisory lock of an analysis."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Engine, text

from roofwatch.db.engine.session import ANALYSIS, analysis_lock, open_store
from tests.builders import PROJECT
from tests.databases import text_of

TIMEOUT_S = 60
HOLD = """
import sys
from roofwatch.db.engine.session import analysis_lock, open_store
with open_store(sys.argv[1]) as engine, analysis_lock(engine, sys.argv[2]):
    print("holds", flush=True)
    sys.stdin.read()
"""
HOLDERS = (
    "SELECT pid, backend_xmin, granted FROM pg_locks JOIN pg_stat_activity USING (pid) "
    f"WHERE locktype = 'advisory' AND classid = {ANALYSIS} AND objsubid = 2"
)


def wait_until(condition: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def holders(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(f"{HOLDERS} AND datname = current_database()")))


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
        ini.write_text(
            "\n".join([*lines, *(f"{name} = {value}" for name, value in options.items())])
        )
        command = ["pgbouncer", "--quiet", str(ini)]
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (folder, ini):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            command = [
                "setpriv",
                f"--reuid={nobody.pw_uid}",
                f"--regid={nobody.pw_gid}",
                "--clear-groups",
                *command,
            ]
        log = folder / "log"
        with (
            log.open("w") as output,
            subprocess.Popen(command, stdout=output, stderr=output) as bouncer,
        ):
            try:
                wait_until(lambda: _is_listening(bouncer, port, log))
                # PgBouncer refuses startup options
                yield url.set(host="127.0.0.1", port=port, query={})
            finally:
                bouncer.terminate()


def _is_listening(bouncer: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        assert bouncer.poll() is None, log.read_text()
        return False
    return True


@pytest.fixture(params=["direct", "pooled"])
def url(request: pytest.FixtureRequest, store: Engine) -> Iterator[str]:
    """URL of the store, direct or through PgBouncer."""
    if request.param == "direct":
        yield text_of(store.url)
    elif shutil.which("pgbouncer") is None:
        pytest.skip("no PgBouncer on this machine (Debian: apt install pgbouncer)")
    else:
        with pooling(store.url, connections=6) as pooled:
            yield text_of(pooled)


def test_analysis_waits_for_another_process_until_it_ends(store: Engine, url: str) -> None:
    command = [sys.executable, "-c", HOLD, url, PROJECT]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
        ThreadPoolExecutor(1) as pool,
        open_store(url) as engine,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == "holds\n"
        with analysis_lock(engine, "another project"):
            pass
        second = pool.submit(_judge, engine)
        wait_until(lambda: [one for one in holders(store) if not one.granted])
        for _ in range(20):
            with engine.connect() as connection:
                assert connection.scalar(text("SELECT 1")) == 1
        assert not second.done()

        other.send_signal(signal.SIGKILL)

        second.result(timeout=TIMEOUT_S)
    assert holders(store) == []


def _judge(engine: Engine) -> None:
    with analysis_lock(engine, PROJECT):
        pass


def test_lock_does_not_hold_back_vacuum(store: Engine, url: str) -> None:
    with open_store(url) as engine, analysis_lock(engine, PROJECT):
        (holder,) = holders(store)
        assert holder.backend_xmin is None
