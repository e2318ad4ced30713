"""The process that runs Streamlit. It ends with the one that started it, however that one ended."""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

from roofwatch.dashboard.variables import PARENT_VARIABLE

_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGTERM, signal.SIGINT)
_LOG = logging.getLogger("roofwatch.dashboard")
_SCRIPT = Path(__file__).with_name("app.py")
# Given here rather than in a file: nothing is written into the home folder, and what a file there says changes nothing.
_OPTIONS: dict[str, object] = {
    "server.headless": True,
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "viewer",
    "logger.level": "warning",
    # the welcome text would ask a host elsewhere for this machine's address
    "logger.hideWelcomeMessage": True,
    "client.showErrorDetails": "none",
    # it would write the strings that stand alone in a view's file, such as what a constant means, on the page
    "runner.magicEnabled": False,
    "theme.headingFontSizes": ["1.9rem", "1.4rem", "1.2rem"],
    "theme.light.primaryColor": "#0072B2",
    # a lighter blue would leave white text on it too pale
    "theme.dark.primaryColor": "#0077BB",
}


def end_with_parent(parent_pid: int) -> None:
    """Ask the kernel for a SIGTERM when the parent dies, even by SIGKILL, which leaves it no time to end us.

    Source: prctl(2), PR_SET_PDEATHSIG; Linux only, elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        # it died before we asked
        sys.exit(0)


def let_go_when_asked_to_end() -> None:
    """Let go of the embedded Postgres before SIGTERM or Ctrl-C end us: they end a process at once, and uvicorn, which
    answers first what it was asked, then has them do it.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        if "roofwatch.db.engine.embedded" in sys.modules:  # else none was opened
            from roofwatch.db.engine.embedded import close_all
            from roofwatch.db.errors import StoreError

            try:
                close_all()
            except (StoreError, OSError):  # whoever asked us to end gets that, and the server is found by its next user
                _LOG.exception("the embedded Postgres was not let go of")
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    for number in _ENDING:
        signal.signal(number, end)


def _say_that_a_view_failed(error: Exception) -> bool:
    """In our words, since Streamlit's speak of its own cloud; the log has the rest."""
    import streamlit as st

    _LOG.error("a view failed", exc_info=error)
    st.error(
        "This view failed, and the log of the dashboard says how. Reload the page, or choose something else.",
        icon=":material/error:",
    )
    return True


@asynccontextmanager
async def _warming_up(_: object) -> AsyncIterator[None]:
    """Import the views and open the store beside what is served already, so that the first reader waits for neither."""
    threading.Thread(target=_prepare, daemon=True).start()
    yield


def _prepare() -> None:
    from roofwatch.dashboard import data
    from roofwatch.dashboard.navigation import VIEWS

    for view in VIEWS:
        importlib.import_module(f"roofwatch.dashboard.views.{view}")
    data.open_early()


def run(address: str, port: int, script: Path = _SCRIPT) -> None:
    """Serve what a script shows until a signal ends it."""
    import streamlit as st
    from starlette.middleware import Middleware

    from roofwatch.dashboard.access.provider import sign_in_secrets
    from roofwatch.dashboard.access.sign_in_return import ReturnAfterSignIn
    from roofwatch.dashboard.navigation import VIEWS
    from roofwatch.settings import load_settings

    settings = load_settings()
    returning = Middleware(ReturnAfterSignIn, views=VIEWS, origin=settings.dashboard_url or "")
    # secrets in memory, in the place of whatever file of secrets lies about: nothing is written where others could read
    served = st.App(
        script,
        secrets=sign_in_secrets(settings),
        lifespan=_warming_up,
        middleware=[returning] if settings.sign_in_issuer is not None else [],
        on_script_error=_say_that_a_view_failed,
    )
    served.run(config={**_OPTIONS, "server.address": address, "server.port": port})


if __name__ == "__main__":
    let_go_when_asked_to_end()
    end_with_parent(int(os.environ[PARENT_VARIABLE]))
    run(sys.argv[1], int(sys.argv[2]))
