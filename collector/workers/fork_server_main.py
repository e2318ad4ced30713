"""The process that forks workers. It must never start a thread or touch a GPU: neither survives a fork."""

from __future__ import annotations

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
_PADDING_PAGES = 256


def main(control_fd: int) -> None:
    """Answer questions until the other end closes: fork, wait for a child, load what children need."""
    with socket.socket(fileno=control_fd) as control:
        while True:
            message, fds, _, _ = socket.recv_fds(control, _MAX_QUESTION_BYTES, 4)
            if not message:
                return
            question = json.loads(message)
            answer: dict[str, int | None]
            if "fork" in question:
                answer = {"pid": _fork(control, fds)}
            elif "wait" in question:
                answer = {"status": _status_of(question["wait"])}
            elif "torch_compile" in question:
                _load_torch_compile()
                answer = {"warm": 1}
            else:
                _warm_up()
                answer = {"warm": 1}
            control.send(json.dumps(answer).encode())


def _fork(control: socket.socket, fds: list[int]) -> int:
    gc.freeze()  # the children need not look at what they all share
    pid = os.fork()
    if pid == 0:
        control.close()
        _be_worker(fds)
    for fd in fds:
        os.close(fd)
    return pid


def _be_worker(fds: list[int]) -> NoReturn:
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
        # not sys.exit: the frames above are the server's
        os._exit(status)


def _shift_addresses() -> object:
    """Move what is allocated later by a random number of pages. Forks of one process would otherwise all get the same
    addresses, and a time that hangs on them would look like a property of the code.

    Source: Mytkowicz, Diwan, Hauswirth, Sweeney, Producing Wrong Data Without Doing Anything Obviously Wrong (2009).
    """
    pages = random.SystemRandom().randint(1, _PADDING_PAGES)
    return mmap.mmap(-1, pages * mmap.PAGESIZE)


def _status_of(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _warm_up() -> None:
    """Triton hashes itself for its cache, and autograd imports sympy, once per process: once here is for all."""
    import triton.runtime.cache

    triton.runtime.cache.triton_key()


def _load_torch_compile() -> None:
    """What torch.compile does once for a process: it imports its compilers, hashes torch for its caches, and tries the
    machine's vector instructions in a process that loads torch anew.
    """
    from torch._inductor import compile_fx  # noqa: F401  it imports all that compiling takes
    from torch._inductor.codecache import torch_key
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    torch_key()
    # without a C++ compiler it raises, as it will for each case that is to be compiled
    with contextlib.suppress(RuntimeError, OSError):
        pick_vec_isa()
