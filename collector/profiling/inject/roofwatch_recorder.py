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
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

import roofwatch_forwards  # type: ignore[import-not-found]  # a neighbour on PYTHONPATH
import roofwatch_scopes  # type: ignore[import-not-found]
from roofwatch_session import (  # type: ignore[import-not-found]
    EventFile,
    SessionRecorder,
    call_later,
)

VARIABLE = "ROOFWATCH_CAPTURE"
"""Environment variable with the folder and the window as JSON."""
_COMPILE_WORKER = "torch/_inductor/compile_worker"
_CODE_SUFFIXES = (".cubin", ".amdgcn")
_AUTOMATIC_WARMUP_STEPS = 3
"""Steps before the window if the user named none. Compiling and filling caches mostly takes two;
the third is recorded with Python stacks.
"""
_AUTOMATIC_STEPS = 20
"""Steps of the window if the user named none. Reading 100,000 operators takes 0.1 GB."""


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
        """Let the callback of a module run once its import is done."""
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
        self._forwards: Any = None
        """Counts forward passes until the first other step."""
        self._exit = os._exit

    def prepare(self) -> None:
        """Wait for torch and Triton to be imported, in this process and in forked ones."""
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
        """Start the recorder in the way that the window asks for."""
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
            call_later(after_s, self._recorder.start_window)
        elif warmup_steps is None:
            self._count_backward_passes(torch)
            self._recorder.start_up()
            self._forwards = roofwatch_forwards.ForwardPasses(
                recorder=self._recorder,
                scopes=self._scopes,
                journal=self._journal,
                limit_s=self._window.get("for_s"),
            )
            self._journal.guard(self._forwards.watch)
        elif not warmup_steps:
            self._recorder.start_window()

    def _count_backward_passes(self, torch: ModuleType) -> None:
        """Let backward passes be the steps of a program that has no optimizer."""
        backward = torch.autograd.backward

        @wraps(backward)
        def count_backward(*arguments: Any, **named: Any) -> Any:
            self._end_forward_passes()
            result = backward(*arguments, **named)
            if self._optimizer is None:
                self._after_step()
            return result

        torch.autograd.backward = count_backward

    def _end_forward_passes(self) -> None:
        """Let forward passes be no steps, as the program has better ones."""
        if self._forwards is not None:
            self._journal.guard(self._forwards.end)
            self._forwards = None

    def _after_optimizer_step(self, optimizer: object, *_: object) -> None:
        """Count the steps of the first optimizer."""
        self._end_forward_passes()
        if self._optimizer is None:
            self._optimizer = id(optimizer)
            self._step_count = 0
        # with several optimizers a step of the program has a step of each
        if self._optimizer == id(optimizer):
            self._after_step()

    def _after_step(self) -> None:
        """Count a step, and go on to the next part of the recording."""
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
        """Forget the parent's recording in a forked child."""
        self._scopes.abandon()
        self._recorder.abandon()
        os._exit = self._exit
        if signal.getsignal(signal.SIGTERM) == self._terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._journal.write("forked", parent=os.getppid())

    def _listen_to_compilations(self, triton: ModuleType) -> None:
        """Note each kernel that Triton compiles or takes from its cache."""
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


def prepare() -> None:
    """Prepare the capture that the environment requests, if any."""
    settings = os.environ.get(VARIABLE)
    if settings:
        ProcessCapture(json.loads(settings)).prepare()
