"""A sandboxed process that calls a kernel, as the judge of `roofwatch submit` uses it.

The process is stopped whenever the judge does not wait for it: it can neither read an input before
the clock starts nor work on after it has answered. That none of its threads has run in between is
checked before the next call. Inputs and outputs are in memory shared with it; the outputs are
copied at once.
"""

import contextlib
import fcntl
import json
import math
import mmap
import os
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import torch

from roofwatch.collector.workers.candidate_limits import MAX_MESSAGE_BYTES
from roofwatch.collector.workers.candidate_protocol import (
    ALIGNMENT,
    Answer,
    Arguments,
    CandidateError,
    CandidateGoneError,
    CandidateLateError,
    ForgeryError,
    Output,
    Returned,
    TooManyProcessesError,
    extent,
    parse_answer,
)
from roofwatch.collector.workers.device_memory import create_device_memory
from roofwatch.collector.workers.sandbox import Policy
from roofwatch.collector.workers.thread_activity import ThreadActivity
from roofwatch.install import python_command
from roofwatch.model.errors import CollectorError
from roofwatch.model.files import JsonObject

_SHIFTS = 4096
"""Places where the first input may begin, so that an address does not identify an input."""
_DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)
_STOP_S = 5.0
_STOP_PAUSE_S = 1e-4
_MAX_WORKED_NS = 30_000
"""CPU time in which a thread that counts as stopped comes to rest; shorter than an exchange."""
_MANY_THREADS_SHARE = 0.9
"""Share of the limit of processes from which a process counts as one that forks without end."""
_KEPT_ENVIRONMENT = (
    "PATH",
    "LANG",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "TRITON_LIBCUDA_PATH",
)


class CandidateProcess:
    """Starts the process; it loads the kernel when `load` is called.

    Args:
        name: Of its scratch folder, and in messages.
        setup: What the process needs to know: `device`, `is_interpreted`, `arena_bytes` (size of
            the shared memory), `import_roots` and `import_path` (folders first and last on the
            import path), and what to load: `file` and `entry` of a candidate, or `spec` and
            `kernel` of a spec; both, and a `compiled_case`, to compile the candidate without
            calling it.
        policy: The limits; `scratch` is the parent of its scratch folder.
    """

    def __init__(self, name: str, setup: Mapping[str, Any], policy: Policy) -> None:
        self._name = name
        self._most_processes = policy.process_count
        self._returned: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._activity: ThreadActivity | None = None
        scratch = Path(policy.scratch, f"scratch-{name}")
        scratch.mkdir(mode=0o700)
        arena_bytes = setup["arena_bytes"]
        memory_fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory_fd, arena_bytes)
        # a process that shrank it would crash the judge
        fcntl.fcntl(
            memory_fd,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
        )
        self._arena = torch.frombuffer(mmap.mmap(memory_fd, arena_bytes), dtype=torch.uint8)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                python_command("roofwatch.collector.jobs.candidate_main", theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd=scratch,
                env=_environment(scratch, is_interpreted=setup["is_interpreted"]),
                # a group of its own, which is stopped and killed as a whole
                start_new_session=True,
            )
        shared_fds = [memory_fd]
        if setup["device"] != "cpu":
            shared_fds.append(self._move_to_device())
        with_scratch = replace(policy, scratch=str(scratch))
        message = json.dumps({**setup, "policy": asdict(with_scratch)})
        socket.send_fds(self._control, [message.encode()], shared_fds)
        for shared_fd in shared_fds:
            os.close(shared_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._control.close()

    def wait_until_isolated(self, timeout_s: float) -> Mapping[str, str]:
        """Wait for the process to be isolated; it has not run any code of the kernel yet.

        Returns:
            Why a layer is missing, by its name.

        Raises:
            CollectorError: it could not be isolated.
        """
        try:
            return parse_answer(self._receive(timeout_s)).missing
        except CandidateError as error:
            raise CollectorError(
                f"the sandbox of the {self._name} could not be set up: {error}"
            ) from None

    def load(self, timeout_s: float) -> list[JsonObject]:
        """Load the kernel, which runs the candidate's code for the first time, and stop the
        process.

        Returns:
            Facts of what was compiled.

        Raises:
            CandidateError: it cannot be loaded.
        """
        return self._ask({}, timeout_s)[0].static

    def call(
        self,
        arguments: Arguments,
        *,
        implementation: str | None = "candidate",
        timeout_s: float,
        is_recorded: bool = False,
    ) -> Returned:
        """Call the kernel once.

        The process first learns of the call when the clock runs, so that it can prepare nothing in
        advance.

        Args:
            arguments: Copied into the shared memory.
            implementation: Of a process that loaded a spec; None does everything but call it, which
                is an exchange.
            timeout_s: Time limit of the call.
            is_recorded: Ask for the kernels that run on the GPU; takes longer.

        Raises:
            CandidateError: the kernel raised an exception; `ForgeryError` and `CandidateGoneError`
            for the rest.
        """
        self.check_settled()
        offset = secrets.randbelow(_SHIFTS) * ALIGNMENT
        spans: list[JsonObject] = []
        tensors = (*arguments.tensors.values(), *arguments.upstream)
        for tensor in tensors:
            spans.append(_place(tensor, offset))
            offset += extent(spans[-1]["byte_count"])
        if offset > len(self._arena):
            raise CollectorError(
                f"inputs of {offset} bytes do not fit into {len(self._arena)} bytes of shared "
                "memory"
            )
        for span, tensor in zip(spans, tensors, strict=True):
            self._bytes(span).copy_(_storage(tensor))
        answer, elapsed_ns = self._ask(
            {
                "implementation": implementation,
                "tensors": dict(zip(arguments.tensors, spans, strict=False)),
                "upstream": spans[len(arguments.tensors) :],
                "values": arguments.values,
                "gradients": arguments.gradients,
                "output_start": offset,
                "is_recorded": is_recorded,
            },
            timeout_s,
        )
        outputs = self._copy(answer.outputs, offset)
        changed: list[str] = []
        for name, span, tensor in zip(arguments.tensors, spans, tensors, strict=False):
            if not torch.equal(self._bytes(span), _storage(tensor)):
                changed.append(name)
        return Returned(
            outputs=outputs,
            elapsed_ns=elapsed_ns,
            kernels=tuple(answer.kernels),
            changed_inputs=tuple(changed),
        )

    def check_settled(self) -> None:
        """Check that nothing has happened since the last call returned.

        Raises:
            ForgeryError: the process has run, an output has changed, or a message was sent that
            nobody asked for.
        """
        returned = self._returned
        self._returned = []
        self._check_idle()
        if any(not torch.equal(copy, output) for output, copy in returned):
            raise ForgeryError("an output was written after the call had returned")
        readable, _, _ = select.select([self._control], [], [], 0)
        # the end of a process makes its socket readable too
        if readable and self._process.poll() is None:
            raise ForgeryError("the process sent a message that was not asked for")

    def _move_to_device(self) -> int:
        """Share GPU memory in place of the host's, and return its file descriptor.

        Not tried on a GPU yet.
        """
        torch.zeros(1, device="cuda")  # makes the context current
        memory, descriptor = create_device_memory(len(self._arena), torch.cuda.current_device())
        self._arena = memory.as_tensor()
        return descriptor

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> tuple[Answer, float]:
        """Send a request, let the process run until it has answered, and return the answer and the
        time in ns.
        """
        self._check_idle()
        number = secrets.randbelow(2**53)
        try:
            self._control.send(json.dumps({**request, "number": number}).encode())
        except OSError:
            raise CandidateGoneError(self._how_it_ended()) from None
        began_ns = time.perf_counter_ns()
        self._signal(signal.SIGCONT)
        try:
            message = self._receive(timeout_s)
            elapsed_ns = float(time.perf_counter_ns() - began_ns)
        finally:
            self._signal(signal.SIGSTOP)
        self._wait_until_stopped()
        answer = parse_answer(message)
        if answer.number != number:
            raise ForgeryError("the process sent a message that was not asked for")
        return answer, elapsed_ns

    def _wait_until_stopped(self) -> None:
        """Wait for every thread to stop and come to rest; one that is inside the operating system's
        kernel works on for a while.
        """
        until_s = time.monotonic() + _STOP_S
        activity = ThreadActivity.below(self._process.pid)
        is_at_rest = False
        while not is_at_rest and time.monotonic() <= until_s:
            time.sleep(_STOP_PAUSE_S)
            earlier, activity = activity, ThreadActivity.below(self._process.pid)
            # a thread counts as stopped a little before it leaves its core
            is_at_rest = activity.is_stopped and activity == earlier
        count = len(activity.threads)
        if self._is_near_limit(count):
            raise TooManyProcessesError(
                f"it runs {count} of at most {self._most_processes} processes"
            )
        if not is_at_rest:
            raise ForgeryError("the process could not be stopped")
        self._activity = activity

    def _is_near_limit(self, thread_count: int) -> bool:
        return thread_count >= _MANY_THREADS_SHARE * self._most_processes

    def _check_idle(self) -> None:
        """Check that no thread has run since all were stopped; a timer of the kernel may continue
        them.
        """
        if self._activity is not None and self._process.poll() is None:
            now = ThreadActivity.below(self._process.pid)
            worked_ns = now.cpu_ns - self._activity.cpu_ns
            if (
                now.threads != self._activity.threads
                or not now.is_stopped
                or worked_ns > _MAX_WORKED_NS
            ):
                raise ForgeryError("the process worked while it was stopped")

    def _receive(self, timeout_s: float) -> bytes:
        self._control.settimeout(timeout_s)
        try:
            message = self._control.recv(MAX_MESSAGE_BYTES)
        except TimeoutError:
            late_text = f"did not return within {timeout_s:.0f} s, all that was left"
            thread_count = len(ThreadActivity.below(self._process.pid).threads)
            if self._is_near_limit(thread_count):
                late_text += f"; it runs {thread_count} of at most {self._most_processes} processes"
            raise CandidateLateError(late_text, timeout_s) from None
        except OSError:
            message = b""
        if not message:
            raise CandidateGoneError(self._how_it_ended())
        return message

    def _copy(self, outputs: list[Output] | None, start: int) -> dict[str, torch.Tensor]:
        """Copy the outputs, which lie one after another, and remember where they were."""
        copies: dict[str, torch.Tensor] = {}
        if outputs is None:
            raise ForgeryError("malformed answer: no outputs")
        for output in outputs:
            if output.dtype not in _DTYPES:
                raise CandidateError(
                    f"{output.name} has dtype {output.dtype!r}; a result has one of "
                    f"{', '.join(_DTYPES)}"
                )
            dtype = getattr(torch, output.dtype)
            # torch multiplies the other lengths of an empty shape too
            largest = dtype.itemsize * math.prod(length for length in output.shape if length)
            if start + largest > len(self._arena) or output.name in copies:
                raise ForgeryError(
                    f"malformed answer: {output.name} does not fit into the shared memory"
                )
            byte_count = dtype.itemsize * math.prod(output.shape)
            output_bytes = self._arena[start : start + byte_count]
            copy = output_bytes.clone()
            self._returned.append((output_bytes, copy))
            copies[output.name] = copy.view(dtype).view(output.shape)
            start += extent(len(output_bytes))
        return copies

    def _bytes(self, span: Mapping[str, Any]) -> torch.Tensor:
        return self._arena[span["start"] : span["start"] + span["byte_count"]]

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "closed its end of the socket"
        if status < 0:
            number = -status
        else:
            number = status - 128
        with contextlib.suppress(ValueError):
            if status < 0 or status > 128:
                return f"was ended by {signal.Signals(number).name}"
        return f"ended with exit status {status}"

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _environment(scratch: Path, *, is_interpreted: bool) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    folders = {
        "HOME": scratch,
        "TMPDIR": scratch,
        "TRITON_CACHE_DIR": scratch / "triton",
        "TORCHINDUCTOR_CACHE_DIR": scratch / "inductor",
    }
    environment = inherited | {name: str(folder) for name, folder in folders.items()}
    environment |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    # with an empty cache, probing the vector instructions and precompiling headers take longer than
    # a kernel
    environment |= {
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }
    if is_interpreted:
        environment["TRITON_INTERPRET"] = "1"
    return environment


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage, with the gaps of its layout."""
    storage_bytes = torch.empty(
        0,
        dtype=torch.uint8,
        device=tensor.device,
    )
    return storage_bytes.set_(tensor.untyped_storage())


def _place(tensor: torch.Tensor, start: int) -> JsonObject:
    return {
        "start": start,
        "byte_count": tensor.untyped_storage().nbytes(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
    }
