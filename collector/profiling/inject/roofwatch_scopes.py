"""Waits until no scope of torch's profiler is open. The standard library only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any


class OpenScopes:
    """Counts the open scopes of `record_function`, and delays the start of a session until none is.

    An open scope holds a pointer into the memory of the session in which it began. If another
    session runs when the scope ends, torch writes its end there, although that memory is free: the
    process crashes later, or its Python stacks cannot be joined. Without a session, torch writes
    nothing, so that a session may stop at any time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: Callable[[], None] | None = None

    @property
    def is_start_waiting(self) -> bool:
        return self._waiting is not None

    def watch(self) -> None:
        """Count from now on; an optimizer's step is such a scope as well."""
        from torch.autograd.profiler import record_function

        enter: Any = record_function.__enter__
        leave: Any = record_function.__exit__

        @wraps(enter)
        def enter_and_count(scope: Any) -> Any:
            entered = enter(scope)
            with self._lock:
                self._count += 1
            return entered

        @wraps(leave)
        def leave_and_count(scope: Any, *exception: Any) -> Any:
            try:
                return leave(scope, *exception)
            finally:
                self._leave()

        changed: Any = record_function
        changed.__enter__ = enter_and_count
        changed.__exit__ = leave_and_count

    def start_when_closed(self, start: Callable[[], None]) -> None:
        """Start a session now, or once the last open scope has ended."""
        with self._lock:
            is_open = self._count > 0
            self._waiting = start if is_open else None
        if not is_open:
            start()

    def abandon(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self._waiting = None

    def _leave(self) -> None:
        """Leave a scope; after the outermost one, start what waits for it."""
        with self._lock:
            self._count -= 1
            if self._count > 0:
                return
            start, self._waiting = self._waiting, None
        if start is not None:
            start()
