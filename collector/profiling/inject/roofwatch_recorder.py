"""Profiles the process that loads it, from the first import of torch on.

It must not change what the program does: it does not import torch, creates no CUDA context, yields
to a profiler of the program, and raises no errors. Events are written line by line, so a kill loses
only what comes after.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

import roofwatch_attribution  # type: ignore[import-not-found]  # a neighbour on PYTHONPATH
import roofwatch_scopes  # type: ignore[import-not-found]

VARIABLE = "ROOFWATCH_CAPTURE"
"""Environment variable with the folder and the window as JSON."""
_COMPILE_WORKER = "torch/_inductor/compile_worker"
_CODE_SUFFIXES = (".cubin", ".amdgcn")
_AUTOMATIC_WARMUP_STEPS = 3
"""Steps before the window if the user named none. Compiling and filling caches mostly takes two;
the third is recorded with Python stacks.
"""
_TIMER_END_S = 5.0
_AUTOMATIC_STEPS = 20
"""Steps of the window if the user named none. Reading 100,000 operators takes 0.1 GB."""
_STEP_ATTEMPTS = 3
"""Steps that are recorded with Python stacks until one can be read."""


class EventFile:
    """Appends the events of this process to its own file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, event: str, **facts: Any) -> None:
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
            _call_later(limit_s, lambda: self.stop("the window ended"))

    def start_up(self) -> None:
        """Record from the import on, until steps are seen or the time is over."""
        self.start("start-up")
        limit_s = self._window.get("for_s")
        if limit_s:
            end = partial(self.stop_part, "start-up", "the window ended")
            self._timer = _call_later(limit_s, end)

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
            self._is_over = self._is_over or for_good
            if self._profiler is not None:
                self._journal.guard(self._stop, end_reason)

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
        window = self._window
        if self._part == "step":
            window = {"with_stacks": True}
        self._profiler = _new_profiler(self._device, window)
        try:
            self._profiler.__enter__()
        except Exception:
            self._profiler = None
            raise
        self._journal.write("recording", device=self._device)

    def _stop(self, end_reason: str) -> None:
        profiler = self._profiler
        self._profiler = None
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


class ImportHook(importlib.abc.MetaPathFinder):
    """Calls back once each named module has been imported."""

    def __init__(self, callbacks: dict[str, Callable[[ModuleType], None]]) -> None:
        self._callbacks = callbacks

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        callback = self._callbacks.pop(fullname, None)
        if callback is None:
            return None
        # asks all finders; this one no longer knows the name
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        exec_module = spec.loader.exec_module

        def exec_then_call(module: ModuleType) -> None:
            exec_module(module)
            callback(module)

        # of this loader only
        spec.loader.exec_module = exec_then_call  # type: ignore[method-assign]
        return spec


class ProcessCapture:
    """Connects the recorder to the events of the process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._window: dict[str, Any] = settings["window"]
        self._journal = EventFile(Path(settings["folder"]))
        self._scopes = roofwatch_scopes.OpenScopes()
        self._recorder = SessionRecorder(self._journal, self._window, self._scopes)
        self._step_count = 0
        self._repeated_steps = 0
        """Steps by which the window starts later, because a recorded step could not be read."""
        self._optimizer: int | None = None
        """Identity of the optimizer whose steps are counted; None: backward passes are."""
        self._exit = os._exit

    def prepare(self) -> None:
        self._journal.write(
            "process",
            parent=os.getppid(),
            arguments=sys.orig_argv[1:],
            rank=os.environ.get("RANK"),
        )
        listen = partial(self._journal.guard, self._listen_to_compilations)
        sys.meta_path.insert(0, ImportHook({"torch": self._torch_imported, "triton": listen}))
        os.register_at_fork(after_in_child=self._forked)

    def _torch_imported(self, torch: ModuleType) -> None:
        self._journal.write("torch", version=str(torch.__version__))
        if not any(_COMPILE_WORKER in argument for argument in sys.orig_argv):
            self._journal.guard(self._begin, torch)

    def _begin(self, torch: ModuleType) -> None:
        atexit.register(self._recorder.stop, "the program ended")  # registered first, called last
        os._exit = self._exit_at_once
        is_main_thread = threading.current_thread() is threading.main_thread()
        if is_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)
        self._scopes.watch()
        _yield_to_other_profilers(self._recorder)
        if torch.version.cuda or torch.version.hip:
            # asking for a GPU here would make it unusable in forked children
            torch.cuda._lazy_call(lambda: self._recorder.use_device("cuda"))
        after_s = self._window.get("after_s") or 0
        warmup_steps = self._window["warmup_steps"]
        if self._window.get("steps") or warmup_steps != 0:
            from torch.optim.optimizer import register_optimizer_step_post_hook

            register_optimizer_step_post_hook(self._after_optimizer_step)
        if after_s:
            self._journal.guard(self._recorder.warm_up)
            _call_later(after_s, self._recorder.start_window)
        elif warmup_steps is None:
            self._count_backward_passes(torch)
            self._recorder.start_up()
        elif not warmup_steps:
            self._recorder.start_window()

    def _count_backward_passes(self, torch: ModuleType) -> None:
        """Let backward passes be the steps of a program that has no optimizer."""
        backward = torch.autograd.backward

        @wraps(backward)
        def count_backward(*arguments: Any, **named: Any) -> Any:
            result = backward(*arguments, **named)
            if self._optimizer is None:
                self._after_step()
            return result

        torch.autograd.backward = count_backward

    def _after_optimizer_step(self, optimizer: object, *_: object) -> None:
        if self._optimizer is None:
            self._optimizer = id(optimizer)
            self._step_count = 0
        # with several optimizers a step of the program has a step of each
        if self._optimizer == id(optimizer):
            self._after_step()

    def _after_step(self) -> None:
        # between two sessions, no step is counted
        if self._scopes.is_start_waiting:
            return
        self._step_count += 1
        warmup_steps = self._window["warmup_steps"]
        steps = self._window.get("steps")
        if warmup_steps is None:
            warmup_steps = _AUTOMATIC_WARMUP_STEPS
            steps = _AUTOMATIC_STEPS
        warmup_steps += self._repeated_steps
        # the first step compiles and loads: a single one is not like the others
        if self._step_count == warmup_steps - 1:
            self._recorder.stop_part("start-up", "the steps began")
            self._scopes.start_when_closed(self._recorder.start_step)
        elif self._step_count == warmup_steps:
            if not self._recorder.stop_step():
                self._repeated_steps += 1
                self._scopes.start_when_closed(self._recorder.start_step)
                return
            self._scopes.start_when_closed(self._recorder.start_window)
        elif steps and self._step_count == warmup_steps + steps:
            self._recorder.stop("the steps were done")

    def _exit_at_once(self, status: int) -> NoReturn:
        self._recorder.stop("the program ended at once")
        self._exit(status)

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        self._recorder.stop("the program was terminated")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _forked(self) -> None:
        self._scopes.abandon()
        self._recorder.abandon()
        os._exit = self._exit
        if signal.getsignal(signal.SIGTERM) == self._terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._journal.write("forked", parent=os.getppid())

    def _listen_to_compilations(self, triton: ModuleType) -> None:
        compilation = triton.knobs.compilation
        previous = compilation.listener

        def listen(**facts: Any) -> None:
            if previous is not None:
                previous(**facts)
            self._journal.guard(_note_kernel, self._journal, **facts)

        compilation.listener = listen


def _note_kernel(
    journal: EventFile,
    *,
    src: Any,
    metadata: dict[str, Any],
    metadata_group: dict[str, str],
    times: Any,
    cache_hit: bool,
) -> None:
    """Record what the compiler reports about a kernel.

    Source: triton/knobs.py, CompilationListener; its times are in microseconds.
    """
    target = metadata["target"]
    stages_ns = {name: microseconds * 1000 for name, microseconds in times.lowering_stages}
    code_paths = [path for path in metadata_group.values() if path.endswith(_CODE_SUFFIXES)]
    journal.write(
        "kernel",
        name=metadata.get("name") or getattr(src, "name", ""),
        hash=metadata["hash"],
        backend=_field(target, "backend"),
        arch=str(_field(target, "arch")),
        warps=metadata.get("num_warps"),
        stages=metadata.get("num_stages"),
        shared_bytes=metadata.get("shared"),
        was_cached=cache_hit,
        compile_ns={
            "ir": times.ir_initialization * 1000,
            **stages_ns,
            "store": times.store_results * 1000,
        },
        code=code_paths[0] if code_paths else "",
    )


def _field(target: Any, name: str) -> Any:
    # a kernel from Triton's cache has its metadata as JSON
    if isinstance(target, dict):
        return target.get(name)
    return getattr(target, name, None)


def _yield_to_other_profilers(recorder: SessionRecorder) -> None:
    """Stop our session when the program starts one; torch refuses two at once."""
    from torch.autograd.profiler import profile

    prepare: Any = profile._prepare_trace

    def prepare_trace(self: Any, *arguments: Any, **named: Any) -> Any:
        if not recorder.owns(self):
            recorder.stop("the program started a profiler of its own")
        return prepare(self, *arguments, **named)

    profile._prepare_trace = prepare_trace  # type: ignore[method-assign]  # while the process lives


def _call_later(seconds: float, function: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer


def prepare() -> None:
    """Prepare the capture that the environment requests, if any."""
    settings = os.environ.get(VARIABLE)
    if settings:
        ProcessCapture(json.loads(settings)).prepare()
