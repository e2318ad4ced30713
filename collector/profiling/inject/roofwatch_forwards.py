"""Lets forward passes be the steps of a program that makes no backward pass."""

from __future__ import annotations

import threading
import time
import warnings
from typing import Any
from weakref import WeakSet

_FIRST_STACKS = 3
"""The pass that is recorded with Python stacks first: compiling and filling caches takes two."""


class ForwardPasses:
    """Finds the module that the main thread calls again and again, and records its passes.

    A pass may take longer with each call, as where a cache grows. So a later pass, after half of
    the time to record, is recorded with Python stacks once more.

    Args:
        recorder: Its sessions start and stop between passes.
        scopes: Delay the start of a session until no scope is open.
        journal: Takes errors: none may reach the program.
        limit_s: Time to record; None has no end.
    """

    def __init__(self, recorder: Any, scopes: Any, journal: Any, limit_s: float | None) -> None:
        self._recorder = recorder
        self._scopes = scopes
        self._journal = journal
        self._limit_s = limit_s
        self._hook: Any = None
        """The hook that is registered now: of all modules, or of one."""
        self._called: WeakSet[Any] = WeakSet()
        """Modules that were called from outside of other modules."""
        self._pass_count = 0
        self._window_end_s = float("inf")
        self._is_last_step = False

    def watch(self) -> None:
        """Look at each module that is called from outside of other modules."""
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there")
        self._watch_all()

    def end(self) -> None:
        """Let other steps count, from their first on; recorded passes were start-up then."""
        self._unhook()
        if self._pass_count >= _FIRST_STACKS - 1:
            self._recorder.restart()

    def _watch_all(self) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._hook = register_module_forward_pre_hook(_Hook(self._before_call))

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _before_call(self, module: Any) -> None:
        """Watch the outermost module that is called; the ones inside it run unhooked."""
        import torch

        # what is being compiled must not depend on a hook
        if torch.compiler.is_compiling():
            return
        if threading.current_thread() is not threading.main_thread():
            return
        # the modules inside run as without us
        self._unhook()
        is_step = module in self._called and _is_inference(module)
        self._called.add(module)
        after_call = self._after_pass if is_step else self._after_other_call
        self._hook = module.register_forward_hook(_Hook(after_call), always_call=True)

    def _after_other_call(self, _module: Any) -> None:
        # the first backward pass may have ended the search
        if self._hook is not None:
            self._unhook()
            self._watch_all()

    def _after_pass(self, _module: Any) -> None:
        # between two sessions, no pass is counted
        if self._hook is not None and not self._scopes.is_start_waiting:
            self._journal.guard(self._count_pass)

    def _count_pass(self) -> None:
        """Count a pass, and go on to the next part of the recording."""
        self._pass_count += 1
        if self._is_last_step:
            self._recorder.stop_step()
            self._journal.write("complete")
            self._unhook()
        elif self._pass_count == _FIRST_STACKS - 1:
            self._recorder.stop_part("start-up", "the steps began")
            self._scopes.start_when_closed(self._recorder.start_step)
        elif self._pass_count == _FIRST_STACKS:
            if not self._recorder.stop_step():
                self._pass_count -= 1
                self._scopes.start_when_closed(self._recorder.start_step)
                return
            self._scopes.start_when_closed(self._start_window)
        elif time.monotonic() >= self._window_end_s:
            self._recorder.stop_part("window", "the window ended")
            self._is_last_step = True
            self._scopes.start_when_closed(self._recorder.start_step)

    def _start_window(self) -> None:
        self._recorder.start_passes()
        # from here on: an open scope may delay the start
        if self._limit_s:
            self._window_end_s = time.monotonic() + self._limit_s / 2


def _is_inference(module: Any) -> bool:
    import torch

    return not (torch.is_grad_enabled() and module.training)


class _Hook:
    """A hook of modules that does not hinder copies of them."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, module: Any, *_: Any) -> None:
        self._function(module)

    def __deepcopy__(self, _memo: Any) -> Any:
        return ignore_call

    def __reduce__(self) -> Any:
        return _ignored, ()


def ignore_call(*_: Any) -> None:
    """Stand in a copy of a module for a hook that recorded the original."""


def _ignored() -> Any:
    return ignore_call
