"""Interrupts code that runs too long."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LEAST_STEP_S = 0.01
_REPEAT_S = 1.0


@contextmanager
def interrupted_at(deadline_s: float, error: type[BaseException]) -> Iterator[None]:
    """Raise an error in the block at a deadline, by the monotonic clock.

    An operator of torch that runs then ends first.
    """
    # signals reach the main thread alone
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: object) -> None:
        raise error

    previous = signal.signal(signal.SIGALRM, interrupt)
    first_s = max(deadline_s - time.monotonic(), _LEAST_STEP_S)
    # again and again: Python drops an exception that is raised in a destructor or weak reference
    signal.setitimer(signal.ITIMER_REAL, first_s, _REPEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
