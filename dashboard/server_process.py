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
    from streamlit.web.cli import main

    main(prog_name="streamlit")
