"""The process that runs Streamlit. It ends with the one that started it, however that one ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
PARENT_VARIABLE = "ROOFWATCH_DASHBOARD_PARENT"


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


if __name__ == "__main__":
    end_with_parent(int(os.environ[PARENT_VARIABLE]))
    from streamlit.runtime.secrets import secrets_singleton
    from streamlit.web.cli import main

    from dashboard.access.provider import sign_in_secrets
    from roofwatch.settings import load_settings

    # in memory, and in the place of whatever file of secrets lies about: nothing is written where others could read it
    secrets_singleton.merge_programmatic_secrets(sign_in_secrets(load_settings()))
    main(prog_name="streamlit")
