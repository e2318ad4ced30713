"""Worker processes that the API starts and keeps running, without the analysis in its memory."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from roofwatch.api.logs import Outage

# how late a worker that has ended is noticed
_POLL_S = 0.5
_FIRST_RESTART_PAUSE_S = 1.0
# doubled up to here, so a worker that always fails uses no processor
_LONGEST_RESTART_PAUSE_S = 30.0
_STEADY_S = 60.0
"""A worker that ran for this long has started well; one without a database gives up earlier."""
# a long analysis is broken off and repeated after the restart
_STOP_S = 20.0

_log = logging.getLogger("roofwatch.worker")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


@contextmanager
def worker_processes(count: int) -> Iterator[None]:
    """Keep some worker processes running: one that ends is started again."""
    stopping = threading.Event()
    command = [sys.executable, "-m", "roofwatch", "worker", f"--parent={os.getpid()}"]

    def keep_running() -> None:
        outage = Outage(_log, "a worker")
        pause_s = _FIRST_RESTART_PAUSE_S
        while not stopping.is_set():
            started_s = time.monotonic()
            with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
                while process.poll() is None and not stopping.wait(_POLL_S):
                    if time.monotonic() > started_s + _STEADY_S:
                        outage.note_success()
                        pause_s = _FIRST_RESTART_PAUSE_S
                if stopping.is_set():
                    _stop(process)
                    return
            outage.note_failure(f"it ended with status {process.returncode}; starting another")
            stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RESTART_PAUSE_S)

    keepers = [threading.Thread(target=keep_running, daemon=True) for _ in range(count)]
    for keeper in keepers:
        keeper.start()
    try:
        yield
    finally:
        stopping.set()
        for keeper in keepers:
            keeper.join()
