"""Runs sessions of torch's profiler in the profiled process, and writes what it sees."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import roofwatch_attribution  # type: ignore[import-not-found]  # a neighbour on PYTHONPATH

_TIMER_END_S = 5.0
_STEP_ATTEMPTS = 3
"""Steps that are recorded with Python stacks until one can be read."""


class EventFile:
    """Appends the events of this process to its own file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, event: str, **facts: Any) -> None:
        """Append an event to the file of this process."""
        pid = os.getpid()
        document = {
            "event": event,
            "pid": pid,
            "at_ns": time.time_ns(),
            **facts,
        }
        line = json.dumps(document) + "\n"
        try:
            # one unbuffered write, which no other thread can interrupt
            with (self.folder / f"{pid}.jsonl").open("ab", buffering=0) as file:
                file.write(line.encode())
        except OSError:
            pass  # the program goes on if roofwatch ended or the disk is full

    def guard(self, function: Callable[..., None], *arguments: Any, **named: Any) -> None:
        """Call a function and record its errors instead of raising them."""
        try:
            function(*arguments, **named)
        except Exception as error:  # noqa: BLE001  no error of ours may reach the program
            self.write("failed", message=_message_of(error))


def _message_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class SessionRecorder:
    """Runs one session of torch's profiler at a time."""

    def __init__(self, journal: EventFile, window: dict[str, Any], scopes: Any) -> None:
        self._journal = journal
        self._window = window
        self._scopes = scopes
        self._lock = threading.RLock()  # a signal handler may run in the thread that holds it
        self._profiler: Any = None
        self._session_count = 0
        self._device = "cpu"
        self._part = "window"
        self._timer: threading.Timer | None = None
        self._started_cpu_ns = 0
        """Processor time of this process when the session began."""
        self._unread_steps = 0
        """Steps whose Python stacks torch's profiler could not join."""
        self._is_over = False

    def owns(self, profiler: object) -> bool:
        return profiler is self._profiler

    def start(self, part: str) -> None:
        """Start a session; it records the "start-up", a "step" with its stacks, or the "window"."""
        with self._lock:
            if self._profiler is None and not self._is_over:
                self._part = part
                self._journal.guard(self._start)

    def start_window(self) -> None:
        self.start("window")
        limit_s = self._window.get("for_s")
        if limit_s:
            call_later(limit_s, lambda: self.stop("the window ended"))

    def start_passes(self) -> None:
        """Record forward passes; who counts them ends it."""
        self.start("window")

    def restart(self) -> None:
        """Count what was recorded so far to the start-up, and record more of it."""
        with self._lock:
            if self._is_over:
                return
            self.stop("the steps began", for_good=False)
            self._journal.write("restarted")
            self.start("start-up")

    def start_up(self) -> None:
        """Record from the import on, until steps are seen or the time is over."""
        self.start("start-up")
        limit_s = self._window.get("for_s")
        if limit_s:
            self._timer = call_later(limit_s, self._end_start_up)

    def _end_start_up(self) -> None:
        """Pause until steps are seen, if ever."""
        self.stop_part("start-up", "the window ended")
        self._journal.write("paused")

    def start_step(self) -> None:
        """Record a step with its Python stacks; the thread of our timer has none to record."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join(_TIMER_END_S)
            self._timer = None
        self.start("step")

    def stop_part(self, part: str, end_reason: str) -> None:
        with self._lock:
            if self._part == part:
                self.stop(end_reason, for_good=False)

    def stop_step(self) -> bool:
        """Stop the recording of a step; False if it was lost and another step is to be recorded."""
        with self._lock:
            unread_steps = self._unread_steps
            self.stop_part("step", "the step was done")
            return self._unread_steps in (unread_steps, _STEP_ATTEMPTS)

    def stop(self, end_reason: str, *, for_good: bool = True) -> None:
        with self._lock:
            was_over = self._is_over
            self._is_over = was_over or for_good
            if self._profiler is not None:
                self._journal.guard(self._stop, end_reason)
            if self._is_over and not was_over:
                self._journal.write("complete")

    def use_device(self, device: str) -> None:
        """Continue in a session that sees the GPU, now that the program uses it."""
        with self._lock:
            was_running = self._profiler is not None
            if was_running:
                self.stop("the program began to use a GPU", for_good=False)
            self._device = device
            if was_running:
                self._scopes.start_when_closed(partial(self.start, self._part))

    def abandon(self) -> None:
        """In a forked child: the session belongs to the parent."""
        self._lock = threading.RLock()
        self._is_over = True
        if self._profiler is not None:
            self._profiler = None
            # otherwise recorded operators would fill the memory of the child
            self._journal.guard(
                lambda: sys.modules["torch"]._C._autograd._enable_record_function(False)
            )

    def _start(self) -> None:
        """Start torch's profiler; Python stacks are recorded for a single step only."""
        window = self._window
        if self._part == "step":
            window = {"with_stacks": True}
        self._profiler = _new_profiler(self._device, window)
        try:
            self._profiler.__enter__()
        except Exception:
            self._profiler = None
            raise
        self._started_cpu_ns = time.process_time_ns()
        self._journal.write("recording", device=self._device)

    def _stop(self, end_reason: str) -> None:
        """End the recording, and write its trace or its times."""
        profiler = self._profiler
        self._profiler = None
        cpu_ns = time.process_time_ns() - self._started_cpu_ns
        try:
            profiler.__exit__(None, None, None)
        except RuntimeError:
            # synchronising fails after an illegal memory access; earlier events are still there
            profiler.use_device = None
            profiler.__exit__(None, None, None)
        except IndexError as error:
            self._note_lost_stacks(error)
            return
        if self._part == "step":
            times = roofwatch_attribution.attribute(profiler)
            self._journal.write("attribution", times=times)
            return
        name = f"{os.getpid()}-{self._session_count}.json"
        self._session_count += 1
        unfinished = self._journal.folder / f"{name}.part"
        profiler.export_chrome_trace(str(unfinished))
        unfinished.rename(self._journal.folder / name)
        self._journal.write(
            "trace",
            file=name,
            end_reason=end_reason,
            device=self._device,
            part=self._part,
            cpu_ns=cpu_ns,
        )

    def _note_lost_stacks(self, error: IndexError) -> None:
        """Say what is lost, unless another step is recorded in its place.

        torch's profiler raises IndexError if it meets a call that it has not stored, as it does
        where its memory was damaged (see `OpenScopes`). It ends that session; the next one works.
        """
        lost = "the recording: record without Python stacks"
        if self._part == "step":
            self._unread_steps += 1
            if self._unread_steps < _STEP_ATTEMPTS and not self._is_over:
                return
            lost = "times by module, function and line; times of operators are complete"
        message = f"torch's profiler could not join Python stacks. Lost: {lost}"
        self._journal.write("failed", message=f"{message} ({_message_of(error)})")

    def warm_up(self) -> None:
        """Let the profiler register itself; it must do so in the thread that imported torch."""
        with self._lock:
            self._profiler = _new_profiler("cpu", self._window)
            try:
                self._profiler.__enter__()
                self._profiler.__exit__(None, None, None)
            finally:
                self._profiler = None


def _new_profiler(device: str, window: dict[str, Any]) -> Any:
    """A profiler of the installed version of torch, without what this process cannot record."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    try:
        config = _ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # older versions record only the thread that starts it, and backward passes
        config = _ExperimentalConfig()
    # torch.profiler.profile imports all of inductor first
    return profile(
        use_device=None if device == "cpu" else device,
        use_kineto=True,
        record_shapes=bool(window.get("with_shapes")),
        with_stack=bool(window.get("with_stacks")),
        experimental_config=config,
    )


def call_later(seconds: float, function: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer
