"""Forks worker processes from a process that has loaded torch and Triton, so that each starts in
milliseconds.
"""

import contextlib
import gc
import importlib.util
import json
import mmap
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, Self

from roofwatch.install import python_command
from roofwatch.model.errors import CollectorError
from roofwatch.model.worker_mode import Mode

_WORKER_PROGRAM = "roofwatch.collector.jobs.worker_main"
_POLL_S = 0.01
_LOG_TAIL_BYTES = 1_500
_MAX_MESSAGE_BYTES = 2**16
_CHECK_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
Feature = Literal["triton", "torch_compile", "torch_compile_beside_gpu", "backward", "without_data"]


class ForkServer:
    """Forks workers, with some more environment variables; on exit all of them are ended."""

    def __init__(self, extra_environment: Mapping[str, str] | None = None) -> None:
        self.extra_environment = dict(extra_environment or {})
        self._processes: list[_Process] = []
        self._servers: dict[tuple[Mode, Path | None], _Server] = {}
        """By mode, and by the Python of another environment."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._processes:
            process.stop()
        self._processes.clear()
        self._servers.clear()

    def start(self) -> None:
        """Begin to load torch and Triton while the caller goes on."""
        self._server(Mode.DEVICE, None)

    def finish_start(self) -> None:
        """Wait until everything that was started has loaded, so that nothing else runs.

        Raises:
            CollectorError: torch or Triton cannot be loaded.
        """
        for mode, python in list(self._servers):
            # the interpreter loads nothing until it is asked
            if mode is Mode.DEVICE:
                self._server(mode, python).ask({})

    def fork_worker(
        self,
        mode: Mode,
        fds: tuple[int, int, int],
        log: IO[bytes],
        python: Path | None = None,
    ) -> int:
        """Fork a worker and return its process ID, which is also its process group.

        It gets its ends of the lifeline, jobs and replies pipes; the log receives its standard
        output and error.

        Raises:
            CollectorError: torch or Triton cannot be loaded.
        """
        if mode is Mode.INTERPRETER and not _has_numpy():
            raise CollectorError("Triton's interpreter needs NumPy: pip install numpy")
        server = self._server(mode, python)
        return int(server.ask({"fork": True}, (*fds, log.fileno())))

    def exit_status(
        self,
        mode: Mode,
        pid: int,
        python: Path | None = None,
        *,
        timeout_s: float,
    ) -> int | None:
        """Exit status of a worker, negative for a signal; None if it still runs after the time.

        Raises:
            CollectorError: the process that forked it has ended.
        """
        deadline = time.monotonic() + timeout_s
        # a new process would not know the worker
        server = self._servers[mode, python]
        while True:
            status: int | None = server.ask({"wait": pid})
            if status is not None or time.monotonic() > deadline:
                return status
            time.sleep(_POLL_S)

    def load(self, *features: Feature) -> None:
        """Load what every compilation by Triton or torch.compile needs, every backward pass, or
        every analysis of tensors without data, once for all workers that are forked later.
        """
        environments = {python for _, python in self._servers} or {None}
        for python in environments:
            for feature in features:
                self._server(Mode.DEVICE, python).ask({"load": feature})

    def _server(self, mode: Mode, python: Path | None) -> "_Server":
        key = (mode, python)
        with self._lock:
            if key not in self._servers or not self._servers[key].is_alive:
                self._start(python)
            return self._servers[key]

    def _start(self, python: Path | None) -> None:
        """Start the servers of both modes; one that still runs has workers, and is kept."""
        process = _Process(self.extra_environment, python)
        self._processes.append(process)
        for mode, server in process.servers.items():
            running = self._servers.get((mode, python))
            if running is None or not running.is_alive:
                self._servers[mode, python] = server


def _has_numpy() -> bool:
    return importlib.util.find_spec("numpy") is not None


class _Process:
    """Loads torch once, and serves both modes: Triton decides at import whether it interprets, so
    the interpreter's server is forked before Triton is loaded.
    """

    def __init__(self, extra_environment: Mapping[str, str], python: Path | None) -> None:
        environment = {**os.environ, **extra_environment}
        environment.pop("TRITON_INTERPRET", None)
        self._resources = contextlib.ExitStack()
        log = tempfile.TemporaryFile()  # noqa: SIM115  closed by the stack
        self._resources.enter_context(log)
        self.servers: dict[Mode, _Server] = {}
        with contextlib.ExitStack() as ends_of_process:
            fds: list[int] = []
            for mode in (Mode.DEVICE, Mode.INTERPRETER):
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._resources.enter_context(ours)
                ends_of_process.enter_context(theirs)
                self.servers[mode] = _Server(ours, log)
                fds.append(theirs.fileno())
            try:
                self._process = subprocess.Popen(
                    python_command(__name__, *fds, python=python),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=fds,
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the collector only,
                )
            except OSError as error:
                self._resources.close()
                raise CollectorError(
                    f"a worker process could not be started: {error.strerror}"
                ) from None

    def stop(self) -> None:
        # the interpreter's server is in the same group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._resources.close()


class _Server:
    """The process that forks, for one mode."""

    def __init__(self, control: socket.socket, log: IO[bytes]) -> None:
        self._control = control
        self._log = log
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        with self._lock:
            try:
                message = self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
        # the end of a process closes its socket
        return message != b""

    def ask(self, question: dict[str, Any], fds: tuple[int, ...] = ()) -> Any:
        """Send a question with file descriptors, and wait for the answer.

        Raises:
            CollectorError: the process ended, for example because torch cannot be imported.
        """
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(question).encode()], fds)
                answer = self._control.recv(_MAX_MESSAGE_BYTES)
            except OSError:
                answer = b""
        if not answer:
            raise CollectorError(_start_error(read_tail(self._log) or "it ended without a word"))
        return json.loads(answer)


def _start_error(output: str) -> str:
    """Say in one line why the process that forks workers ended; its output follows."""
    last = output.splitlines()[-1]
    missing = re.fullmatch(
        r"ModuleNotFoundError: No module named '(torch|triton|numpy)[\w.]*'", last
    )
    if missing is not None:
        return (
            f"{missing[1]} is not installed for {sys.executable}, which measures; let the setup of "
            f"the job install it (`pip install {missing[1]}`, or the requirements file that has it)"
        )
    return f"no worker process can be started: {last}\n{output}"


def read_tail(log: IO[bytes]) -> str:
    """Read the end of a process's output."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_TAIL_BYTES))
    return without_modules(log.read().decode(errors="replace").replace("\0", "").strip())


def without_modules(text: str) -> str:
    """Leave out the list of extension modules that faulthandler adds when a process crashes."""
    head, separator, modules = text.partition("\nExtension modules:")
    _, _, tail = modules.partition("\n")
    if not separator:
        return text
    return "\n".join(filter(None, (head.strip(), tail.strip())))


# --- in the process that forks

_MAX_PADDING_PAGES = 256
_MODULES: dict[Feature, str] = {
    # torch.autograd.grad imports it in its first call, with SymPy
    "backward": "torch.fx.experimental.symbolic_shapes",
    # FakeTensorMode imports it, with all of torch._dynamo
    "without_data": "torch._dynamo.config",
}
"""What a first call imports, for a second or more in each process."""


def main(device_fd: int, interpreter_fd: int) -> None:
    """Load torch once for both modes, and serve them by two processes."""
    import torch  # noqa: F401  loaded once for both

    if os.fork() == 0:
        os.close(device_fd)
        os.environ["TRITON_INTERPRET"] = "1"
        # most commands interpret nothing
        select.select([interpreter_fd], [], [])
        serve(interpreter_fd)
    else:
        os.close(interpreter_fd)
        serve(device_fd)


def serve(control_fd: int) -> None:
    """The process that forks workers: answers questions until the other end closes.

    It must never leave a thread running or use a GPU: neither survives a fork.
    """
    import_module(_WORKER_PROGRAM)  # loads Triton, once for all workers

    with socket.socket(fileno=control_fd) as control:
        while True:
            message, fds, _, _ = socket.recv_fds(control, _MAX_MESSAGE_BYTES, 4)
            if not message:
                return
            question = json.loads(message)
            answer: int | None = None
            if "fork" in question:
                answer = _fork(control, fds)
            elif "wait" in question:
                answer = _exit_status(question["wait"])
            elif "load" in question:
                _load(question["load"])
            control.send(json.dumps(answer).encode())


def _fork(control: socket.socket, fds: list[int]) -> int:
    gc.freeze()  # the garbage collectors of the children skip shared objects
    pid = os.fork()
    if pid == 0:
        control.close()
        _become_worker(fds)
    for fd in fds:
        os.close(fd)
    return pid


def _become_worker(fds: list[int]) -> NoReturn:
    # by name: the program imports the collector's other folders, which import this one
    run_worker = import_module(_WORKER_PROGRAM).main

    status = 1
    try:
        os.setsid()
        lifeline_fd, jobs_fd, replies_fd, log_fd = fds
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)
        _padding = _shift_addresses()
        run_worker(lifeline_fd, jobs_fd, replies_fd)
        status = 0
    finally:
        os._exit(status)  # not sys.exit: the frames above belong to the server


def _shift_addresses() -> object:
    """Shift later allocations by a random number of pages. Otherwise all forks would get the same
    addresses, and a time that depends on them would look like a property of the code.

    Source: Mytkowicz, Diwan, Hauswirth, Sweeney, Producing Wrong Data Without Doing Anything
    Obviously Wrong (2009).
    """
    pages = random.SystemRandom().randint(1, _MAX_PADDING_PAGES)
    return mmap.mmap(-1, pages * mmap.PAGESIZE)


def _exit_status(pid: int) -> int | None:
    exited_pid, status = os.waitpid(pid, os.WNOHANG)
    if not exited_pid:
        return None
    return os.waitstatus_to_exitcode(status)


def _load(feature: Feature) -> None:
    """Import what workers of one kind need, before they are forked."""
    if feature in _MODULES:
        import_module(_MODULES[feature])
    elif feature == "torch_compile":
        _load_torch_compile()
    elif feature == "torch_compile_beside_gpu":
        _load_torch_compile_beside_gpu()
    else:
        _load_triton()


def _load_triton() -> None:
    """Triton hashes itself once per process for its cache."""
    from triton.compiler import compiler
    from triton.runtime import cache

    # Triton 3.4 has it in another module
    module = cache if hasattr(cache, "triton_key") else compiler
    module.triton_key()


def _load_torch_compile_beside_gpu() -> None:
    """Load torch's compilers without touching CUDA, which cannot be used after a fork.

    They ask for a GPU when they are imported, and NVML can answer. Without it, each worker imports
    them itself.

    Source: PyTorch documentation, PYTORCH_NVML_BASED_CUDA_CHECK.
    """
    import torch

    if not torch.version.cuda or torch.cuda._device_count_nvml() < 0:
        return
    wished = os.environ.get(_CHECK_BY_NVML)
    os.environ[_CHECK_BY_NVML] = "1"
    _load_torch_compile()
    if wished is None:
        del os.environ[_CHECK_BY_NVML]
    else:
        os.environ[_CHECK_BY_NVML] = wished


def _load_torch_compile() -> None:
    """Import torch's compilers, hash torch for its caches, and detect vector instructions."""
    from torch._inductor.codecache import torch_key
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    # each detection waits for a process that loads a library
    with ThreadPoolExecutor(1) as pool:
        detected = pool.submit(pick_vec_isa)
        import_module("torch._inductor.compile_fx")  # imports everything that compiling needs
        torch_key()
        # fails without a C++ compiler, as every compilation will
        with contextlib.suppress(RuntimeError, OSError):
            detected.result()
