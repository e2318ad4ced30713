"""The process that forks workers. It must never start a thread or use a GPU: neither survives a fork."""

import contextlib
import gc
import json
import mmap
import os
import random
import socket
from typing import NoReturn

from roofwatch.collector.workers.worker_main import main as run_worker

_MAX_QUESTION_BYTES = 2**16
_MAX_PADDING_PAGES = 256


def main(control_fd: int) -> None:
    """Answer questions until the other end closes."""
    with socket.socket(fileno=control_fd) as control:
        while True:
            message, fds, _, _ = socket.recv_fds(control, _MAX_QUESTION_BYTES, 4)
            if not message:
                return
            question = json.loads(message)
            answer: int | None = None
            if "fork" in question:
                answer = _fork(control, fds)
            elif "wait" in question:
                answer = _exit_status(question["wait"])
            elif question["load"] == "torch_compile":
                _load_torch_compile()
            else:
                _load_triton()
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
    """Shift later allocations by a random number of pages. Otherwise all forks would get the same addresses, and a time
    that depends on them would look like a property of the code.

    Source: Mytkowicz, Diwan, Hauswirth, Sweeney, Producing Wrong Data Without Doing Anything Obviously Wrong (2009).
    """
    pages = random.SystemRandom().randint(1, _MAX_PADDING_PAGES)
    return mmap.mmap(-1, pages * mmap.PAGESIZE)


def _exit_status(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _load_triton() -> None:
    """Triton hashes itself once per process for its cache."""
    import triton.runtime.cache

    triton.runtime.cache.triton_key()


def _load_torch_compile() -> None:
    """Import torch's compilers, hash torch for its caches, and detect vector instructions."""
    from torch._inductor import compile_fx  # noqa: F401  imports everything that compiling needs
    from torch._inductor.codecache import torch_key
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    torch_key()
    # fails without a C++ compiler, as every compilation will
    with contextlib.suppress(RuntimeError, OSError):
        pick_vec_isa()
