"""Serve the dashboard with Streamlit's own server, in this process."""

import contextlib
import importlib
import logging
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from roofwatch.configuration.settings import load_settings
from roofwatch.dashboard.access import LOCAL_VARIABLE, DashboardError, sign_in_secrets
from roofwatch.dashboard.data import DATABASE, SERVER_VARIABLE
from roofwatch.dashboard.navigation import FRONT_PAGE, MOVED, VIEWS, path_of
from roofwatch.dashboard.security import SecurityMiddleware
from roofwatch.dashboard.unfurl import PreviewMiddleware

_START_TIMEOUT_S = 120.0
_POLL_S = 0.1
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_SMALLEST_COMPRESSED_BYTES = 1_000
_LOG = logging.getLogger("roofwatch.dashboard")
_SCRIPT = Path(__file__).with_name("app.py")
# Given here rather than in a file: nothing is written into the home folder, and what a file there
# says changes nothing.
_OPTIONS: dict[str, object] = {
    "server.headless": True,
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "viewer",
    "logger.level": "warning",
    # the welcome message queries an external host
    "logger.hideWelcomeMessage": True,
    "client.showErrorDetails": "none",
    # magic would print attribute docstrings on the page
    "runner.magicEnabled": False,
    "theme.headingFontSizes": ["1.9rem", "1.3rem", "1.15rem"],
    "theme.light.primaryColor": "#0072B2",
    # contrast with white text
    "theme.dark.primaryColor": "#0077BB",
    # the colours of assets/style.css
    "theme.light.textColor": "#1B1F24",
    "theme.light.secondaryBackgroundColor": "#F6F8FA",
    "theme.dark.backgroundColor": "#0E1117",
    "theme.dark.secondaryBackgroundColor": "#161B22",
    "theme.dark.textColor": "#E6EDF3",
}


def serve(
    *,
    port: int | None,
    server_url: str | None = None,
    on_ready: Callable[[str], None],
    address: str = "127.0.0.1",
) -> None:
    """Serve until Ctrl-C or SIGTERM. Sets environment variables of this process that say what is
    read, and whether only this machine reads.

    Args:
        port: Port; None for a free one.
        server_url: URL of a server to read through; None for the database of the settings.
        on_ready: Called with the dashboard's address once it answers.
        address: Address to listen on. Anyone who reaches it may read; put a TLS proxy in front.

    Raises:
        DashboardError: the port is in use, or the sign-in settings are incomplete.
        SettingsError: the settings cannot be read.
    """
    secrets = sign_in_secrets(load_settings())
    chosen_port = _free_port(address, port)
    # Streamlit runs scripts, which take no arguments
    os.environ[SERVER_VARIABLE] = server_url or DATABASE
    os.environ[LOCAL_VARIABLE] = "1" if address in _LOOPBACK else "0"
    # Streamlit runs the views as scripts; what they import takes seconds, for which the first
    # reader would wait
    for view in VIEWS:
        importlib.import_module(f"roofwatch.dashboard.views.{view}")
    app = st.App(
        _SCRIPT,
        secrets=secrets,
        routes=[Route(f"/{name}", _open_moved) for name in (*MOVED, FRONT_PAGE)],
        middleware=[
            Middleware(SecurityMiddleware),
            Middleware(GZipMiddleware, minimum_size=_SMALLEST_COMPRESSED_BYTES),
            Middleware(PreviewMiddleware),
        ],
        on_script_error=_report_failed_view,
    )
    local = "127.0.0.1" if address in {"0.0.0.0", "::"} else address  # noqa: S104 (compared, not bound)
    threading.Thread(
        target=_wait_until_ready,
        args=(f"http://{local}:{chosen_port}", on_ready),
        daemon=True,
    ).start()
    # SIGTERM ends it as Ctrl-C does, so the embedded database is closed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        app.run(config={**_OPTIONS, "server.address": address, "server.port": chosen_port})


def _open_moved(request: Request) -> RedirectResponse:
    """Send an old address to the screen that has its content, with its parameters."""
    name = request.url.path.rpartition("/")[2]
    target = path_of(MOVED.get(name, name))
    return RedirectResponse(f"{target}?{request.url.query}")


def _free_port(address: str, port: int | None) -> int:
    with socket.socket() as probe:
        # a port that was just left may be taken again
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port or 0))
        except OSError as error:
            where, way_out = address, "--address"
            if port is not None:
                where, way_out = f"{address}:{port}", "--port"
            raise DashboardError(
                f"dashboard: cannot listen on {where}: {error.strerror}; choose another with "
                f"{way_out}"
            ) from None
        return int(probe.getsockname()[1])


def _wait_until_ready(url: str, on_ready: Callable[[str], None]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        # refused until the server listens
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5),  # noqa: S310 (our own http address)
        ):
            on_ready(url)
            return
        time.sleep(_POLL_S)


def _report_failed_view(error: Exception) -> bool:
    """Show our own message instead of Streamlit's; the log has the details."""
    _LOG.error("a view failed", exc_info=error)
    st.error(
        "This view failed; see the log of the dashboard. Reload the page, or choose something "
        "else.",
        icon=":material/error:",
    )
    return True
