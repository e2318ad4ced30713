"""Serve the dashboard: Streamlit as a child process that is surely gone when we are."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from roofwatch.dashboard.access.provider import sign_in_secrets
from roofwatch.dashboard.errors import DashboardError
from roofwatch.dashboard.variables import NO_SERVER, PARENT_VARIABLE, SERVER_VARIABLE
from roofwatch.install import INSTALL_ROOT
from roofwatch.settings import load_settings

_START_TIMEOUT_S = 120.0
_ANSWERING_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.1


class _Stopped(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt, no handler of errors may swallow it."""


def serve(
    *,
    port: int | None,
    data_dir: Path | None,
    database_url: str | None,
    server_url: str | None = None,
    on_ready: Callable[[str], None],
    address: str = "127.0.0.1",
) -> int:
    """Serve until Ctrl-C or SIGTERM, or until the server ends by itself.

    Args:
        port: To listen on; a free one if None.
        data_dir: Folder of the embedded database, which is used unless there is a URL.
        database_url: Of a database that runs already.
        server_url: Of a server in front of a database, which is read through instead, with the token of the
            environment. Without any of the three, the settings of the environment hold.
        on_ready: Called once with the dashboard's address, as soon as it answers.
        address: To listen on. Beyond this machine whoever reaches it may read: signing in is only for triage. Put a
            proxy that encrypts in front.

    Returns:
        0 after Ctrl-C or SIGTERM, else the exit status of the server.

    Raises:
        DashboardError: the port is taken, the server does not start, or signing in is set up only in part.
        SettingsError: the settings cannot be read.
    """
    sign_in_secrets(load_settings())
    chosen_port = _free_port(address, port)
    with _terminated_as_exception():
        child: subprocess.Popen[bytes] | None = None
        try:
            reading = _what_is_read(data_dir, database_url, server_url)
            child = _start(address, chosen_port, reading)
            local = "127.0.0.1" if address in {"0.0.0.0", "::"} else address  # noqa: S104 (compared, not bound)
            url = f"http://{local}:{chosen_port}"
            _wait_until_healthy(url, child)
            on_ready(url)
            return child.wait()
        except (KeyboardInterrupt, _Stopped):
            return 0
        finally:
            if child is not None:
                _stop(child)


def _free_port(address: str, port: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port or 0))
        except OSError as error:
            where, way_out = (address, "--address") if port is None else (f"{address}:{port}", "--port")
            raise DashboardError(
                f"dashboard: cannot listen on {where}: {error.strerror}; choose another with {way_out}"
            ) from None
        return int(probe.getsockname()[1])


def _what_is_read(data_dir: Path | None, database_url: str | None, server_url: str | None) -> dict[str, str]:
    """Our environment, changed where the server's process is to read something else than the settings say."""
    environment = dict(os.environ)
    if server_url is not None:
        return environment | {SERVER_VARIABLE: server_url}
    if data_dir is not None:
        environment["ROOFWATCH_DATA_DIR"] = str(data_dir.resolve())
        environment.pop("ROOFWATCH_DATABASE_URL", None)
    if database_url is not None:
        environment["ROOFWATCH_DATABASE_URL"] = database_url
    if data_dir is not None or database_url is not None:
        environment[SERVER_VARIABLE] = NO_SERVER
    return environment


def _start(address: str, port: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    environment[PARENT_VARIABLE] = str(os.getpid())
    # ours first: the folder that we were started in may have a `db` or `dashboard` of its own
    search_path = [str(INSTALL_ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(part for part in search_path if part)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "roofwatch.dashboard.server_process", address, str(port)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def _wait_until_healthy(url: str, child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        status = child.poll()
        if status is not None:
            raise DashboardError(f"dashboard: the server ended with status {status} before it answered at {url}")
        # refused until it listens
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5),  # noqa: S310 (our own http address)
        ):
            return
        time.sleep(_POLL_S)
    raise DashboardError(f"dashboard: no answer from {url} within {_START_TIMEOUT_S:.0f} s; is the machine overloaded?")


def _stop(child: subprocess.Popen[bytes]) -> None:
    # asked by the second signal it waits no longer for readers who take their answers slowly
    for number, timeout_s in ((signal.SIGTERM, _ANSWERING_TIMEOUT_S), (signal.SIGINT, _STOP_TIMEOUT_S)):
        if child.poll() is None:
            child.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout_s)
            return
    child.kill()
    child.wait()


@contextlib.contextmanager
def _terminated_as_exception() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the child is ended; only the main thread can be asked to."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Stopped

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
