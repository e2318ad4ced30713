"""Profiles the process that it is loaded into, from its first import of torch on.

Nothing here may change what the program does: torch is not imported for it, no CUDA context is made, a profiler that
the program starts itself goes first, and no error of ours reaches it. What happens is written line by line, so that
what was written before a kill is kept.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

VARIABLE = "ROOFWATCH_CAPTURE"
"""Names the folder and the window as JSON, in the environment."""
_COMPILE_WORKER = "torch/_inductor/compile_worker"
_KEPT_BINARIES = ("cubin", "amdgcn")


class Journal:
    """Appends what happens in this process to a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.folder = folder

    def write(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), "at_ns": time.time_ns(), **facts})
        try:
            with self._lock, (self._folder / f"{os.getpid()}.jsonl").open("a") as file:
                file.write(line + "\n")
        except OSError:
            pass  # the folder went away with roofwatch, or the disk is full: the program goes on

    def after_fork(self) -> None:
        self._lock = threading.Lock()


class Recorder:
    """One session of torch's profiler after another; at most one at a time, and the program's own goes first."""

    def __init__(self, journal: Journal, window: dict[str, Any]) -> None:
        self._journal = journal
        self._window = window
        # a signal's handler may come while this thread is inside
        self._lock = threading.RLock()
        self._profiler: Any = None
        self._sessions = 0
        self._device = "cpu"
        self._is_over = False

    def owns(self, profiler: object) -> bool:
        return profiler is self._profiler

    def start(self, device: str) -> None:
        with self._lock:
            if self._profiler is not None or self._is_over:
                return
            self._guarded(self._start, device)

    def stop(self, because: str, *, for_good: bool = True) -> None:
        with self._lock:
            self._is_over = self._is_over or for_good
            if self._profiler is not None:
                self._guarded(self._stop, because)

    def use_device(self, device: str) -> None:
        """The program begins to use a GPU: go on with a session that sees it."""
        with self._lock:
            was_running = self._profiler is not None
            self._device = device
            if was_running:
                self.stop("the program began to use a GPU", for_good=False)
                self.start(device)

    def start_window(self) -> None:
        self.start(self._device)
        limit_s = self._window.get("for_s")
        if limit_s:
            _later(limit_s, lambda: self.stop("the window ended"))

    def warm_up(self) -> None:
        """Let the profiler register itself from the thread that imported torch, as it demands."""
        with self._lock:
            self._guarded(self._rehearse)

    def abandon(self) -> None:
        """In a forked child: the session belongs to the parent."""
        self._lock = threading.RLock()
        self._is_over = True
        if self._profiler is not None:
            self._profiler = None
            self._guarded(_stop_recording_here)

    def _start(self, device: str) -> None:
        profiler = _new_profiler(device, self._window)
        self._profiler = profiler
        self._device = device
        try:
            profiler.__enter__()
        except Exception:
            self._profiler = None
            raise
        self._journal.write("recording", device=device)

    def _stop(self, because: str) -> None:
        profiler, self._profiler = self._profiler, None
        try:
            profiler.__exit__(None, None, None)
        except RuntimeError:
            # waiting for a device fails after an illegal memory access; what was recorded before is still there
            profiler.use_device = None
            profiler.__exit__(None, None, None)
        name = f"{os.getpid()}-{self._sessions}.json"
        self._sessions += 1
        unfinished = self._journal.folder / f"{name}.part"
        profiler.export_chrome_trace(str(unfinished))
        unfinished.rename(self._journal.folder / name)
        self._journal.write("trace", file=name, because=because, device=self._device)

    def _rehearse(self) -> None:
        profiler = self._profiler = _new_profiler("cpu", self._window)
        try:
            profiler.__enter__()
            profiler.__exit__(None, None, None)
        finally:
            self._profiler = None

    def _guarded(self, do: Callable[..., None], *arguments: Any) -> None:
        try:
            do(*arguments)
        except Exception as error:  # noqa: BLE001  whatever goes wrong here must not reach the program
            self._journal.write("failed", message=f"{type(error).__name__}: {error}")


def _new_profiler(device: str, window: dict[str, Any]) -> Any:
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    try:
        every_thread = _ExperimentalConfig(profile_all_threads=True)
    except TypeError:  # an older torch, which sees the thread that starts it, and its backward passes
        every_thread = _ExperimentalConfig()
    # torch.profiler's own class imports all of inductor first
    return profile(
        use_device=None if device == "cpu" else device,
        use_kineto=True,
        record_shapes=bool(window.get("with_shapes")),
        with_stack=bool(window.get("with_stacks")),
        experimental_config=every_thread,
    )


def _stop_recording_here() -> None:
    import torch

    # else a worker's memory grows with each operator
    torch._C._autograd._enable_record_function(False)


class TorchHook(importlib.abc.MetaPathFinder):
    """Calls back once torch, and once Triton, has been imported by the program."""

    def __init__(self, callbacks: dict[str, Callable[[ModuleType], None]]) -> None:
        self._callbacks = callbacks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        callback = self._callbacks.pop(fullname, None)
        if callback is None:
            return None
        # asks all finders again, this one included, which no longer knows the name
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        def run_then_call(module: ModuleType) -> None:
            run(module)
            callback(module)

        spec.loader.exec_module = run_then_call  # type: ignore[method-assign]  # of this one loader
        return spec


class Capture:
    """Joins the recorder to what happens in the process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._window: dict[str, Any] = settings["window"]
        self._journal = Journal(Path(settings["folder"]))
        self._recorder = Recorder(self._journal, self._window)
        self._steps = 0
        self._is_compile_worker = any(_COMPILE_WORKER in argument for argument in sys.orig_argv)
        self._exit = os._exit

    def prepare(self) -> None:
        self._journal.write("process", parent=os.getppid(), arguments=sys.orig_argv[1:], rank=os.environ.get("RANK"))
        sys.meta_path.insert(0, TorchHook({"torch": self._torch_is_there, "triton": self._triton_is_there}))
        os.register_at_fork(after_in_child=self._after_fork)

    def _torch_is_there(self, torch: ModuleType) -> None:
        self._journal.write("torch", version=str(torch.__version__))
        if self._is_compile_worker:
            return
        try:
            self._watch_the_end()
            _let_the_program_profile_itself(self._recorder)
            self._watch_the_device(torch)
            self._open_the_window()
        except Exception as error:  # noqa: BLE001  as above
            self._journal.write("failed", message=f"{type(error).__name__}: {error}")

    def _open_the_window(self) -> None:
        after_s = self._window.get("after_s") or 0
        if self._window.get("steps") or self._window.get("warmup_steps"):
            from torch.optim.optimizer import register_optimizer_step_post_hook

            register_optimizer_step_post_hook(self._after_step)
        if after_s:
            self._recorder.warm_up()
            _later(after_s, self._recorder.start_window)
        elif not self._window.get("warmup_steps"):
            self._recorder.start_window()

    def _after_step(self, *_: object) -> None:
        self._steps += 1
        warmup, steps = self._window.get("warmup_steps") or 0, self._window.get("steps")
        if self._steps == warmup:
            self._recorder.start_window()
        elif steps and self._steps == warmup + steps:
            self._recorder.stop("the steps were done")

    def _watch_the_device(self, torch: ModuleType) -> None:
        if torch.version.cuda or torch.version.hip:
            # asking whether there is a GPU would make one unusable in forked children
            torch.cuda._lazy_call(lambda: self._recorder.use_device("cuda"))

    def _watch_the_end(self) -> None:
        # the first to be registered is the last to be called
        atexit.register(self._recorder.stop, "the program ended")
        os._exit = self._leave
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)

    def _leave(self, status: int) -> NoReturn:
        self._recorder.stop("the program ended at once")
        self._exit(status)

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        self._recorder.stop("the program was terminated")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _after_fork(self) -> None:
        self._journal.after_fork()
        self._recorder.abandon()
        os._exit = self._exit
        if signal.getsignal(signal.SIGTERM) == self._terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._journal.write("forked", parent=os.getppid())

    def _triton_is_there(self, triton: ModuleType) -> None:
        try:
            compilation = triton.knobs.compilation
            before = compilation.listener

            def listen(**facts: Any) -> None:
                if before is not None:
                    before(**facts)
                self._note_kernel(**facts)

            compilation.listener = listen
        except AttributeError:
            self._journal.write("failed", message="this Triton has no knobs: its kernels are not listed")

    def _note_kernel(self, **facts: Any) -> None:
        try:
            self._journal.write("kernel", **_kernel_facts(self._journal.folder, **facts))
        except Exception as error:  # noqa: BLE001  as above
            self._journal.write("failed", message=f"{type(error).__name__}: {error}")


def _kernel_facts(
    folder: Path, *, src: Any, metadata: dict[str, Any], metadata_group: dict[str, str], times: Any, cache_hit: bool
) -> dict[str, Any]:
    """What the compiler says of a kernel, as plain values; times in ns.

    Source: triton/knobs.py, CompilationListener, which counts in microseconds.
    """
    target = metadata["target"]
    stages = {name: microseconds * 1000 for name, microseconds in times.lowering_stages}
    binaries = {}
    for name, path in metadata_group.items():
        kind = name.rpartition(".")[2]
        if kind in _KEPT_BINARIES:
            # the program may delete its cache; what a kernel takes is read from this when it is over
            binaries[kind] = f"{metadata['hash']}.{kind}"
            shutil.copyfile(path, folder / binaries[kind])
    return {
        "name": metadata.get("name") or getattr(src, "name", ""),
        "hash": metadata["hash"],
        "backend": _of(target, "backend"),
        "arch": str(_of(target, "arch")),
        "warps": metadata.get("num_warps"),
        "stages": metadata.get("num_stages"),
        "shared_bytes": metadata.get("shared"),
        "was_cached": cache_hit,
        "compile_ns": {"ir": times.ir_initialization * 1000, **stages, "store": times.store_results * 1000},
        "binaries": binaries,
    }


def _of(target: Any, name: str) -> Any:
    return target.get(name) if isinstance(target, dict) else getattr(target, name, None)


def _let_the_program_profile_itself(recorder: Recorder) -> None:
    """Two sessions at once are an error in torch: ours ends where the program begins one."""
    from torch.autograd.profiler import profile

    prepare: Any = profile._prepare_trace

    def prepare_trace(self: Any, *arguments: Any, **named: Any) -> Any:
        if not recorder.owns(self):
            recorder.stop("the program started a profiler of its own")
        return prepare(self, *arguments, **named)

    profile._prepare_trace = prepare_trace  # type: ignore[method-assign]  # for as long as the process lives


def _later(seconds: float, do: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()


def prepare() -> None:
    """Prepare the capture that the environment asks for; nothing where it asks for none."""
    settings = os.environ.get(VARIABLE)
    if settings:
        Capture(json.loads(settings)).prepare()
