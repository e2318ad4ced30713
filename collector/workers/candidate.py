"""A sandboxed process that calls a kernel, as the judge of `roofwatch submit` uses it.

The process is stopped whenever the judge does not wait for it: it can neither read an input before the clock starts nor
work on after it has answered. Inputs and outputs are in memory shared with it; the outputs are copied at once, and
whether somebody changed them later is checked before the next call.
"""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import ValidationError

from roofwatch.collector.errors import CollectorError
from roofwatch.collector.workers.candidate_main import IPC_HANDLE_BYTES, MAX_MESSAGE_BYTES
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
    extent,
)
from roofwatch.collector.workers.sandbox import Policy
from roofwatch.install import python_command

_SHIFTS = 4096
"""Places where the first input may begin, so that an address does not identify an input."""
_DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"),
    *("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
)
_KEPT_ENVIRONMENT = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "TRITON_LIBCUDA_PATH")


@dataclass(frozen=True)
class Sandbox:
    """How the processes of a submission are isolated.

    Args:
        folder: Temporary; each process gets a scratch folder in it.
        device: Of the kernels.
        is_interpreted: Triton's kernels run in its interpreter.
        arena_bytes: Size of the shared memory.
        policy: The limits; its scratch folder is set for each process.
    """

    folder: Path
    device: str
    is_interpreted: bool
    arena_bytes: int
    policy: Policy


class CandidateProcess:
    """Starts the process; it loads the kernel when `load` is called.

    Args:
        sandbox: Its limits.
        name: Of its scratch folder, and in messages.
        what: To load: `file` and `entry` of a candidate, or `spec`, `kernel` and `roots` of a spec; both, and a
            `compiled_case`, to compile the candidate without calling it.
        import_roots: Folders first on the import path.
    """

    def __init__(self, sandbox: Sandbox, name: str, what: Mapping[str, Any], import_roots: Sequence[Path]) -> None:
        self._name = name
        self._late: str | None = None
        self._returned: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._resources = contextlib.ExitStack()
        scratch = sandbox.folder / f"scratch-{name}"
        scratch.mkdir(mode=0o700)
        memory_fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory_fd, sandbox.arena_bytes)
        # a process that shrank it would crash the judge
        fcntl.fcntl(memory_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._arena = torch.frombuffer(mmap.mmap(memory_fd, sandbox.arena_bytes), dtype=torch.uint8)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = self._resources.enter_context(ours)
        with theirs:
            self._process = subprocess.Popen(
                python_command("roofwatch.collector.workers.candidate_main", theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd=scratch,
                env=_environment(scratch, is_interpreted=sandbox.is_interpreted),
                start_new_session=True,  # a group of its own, which is stopped and killed as a whole
            )
        setup = {
            **dict.fromkeys(("file", "entry", "spec", "kernel", "compiled_case")),
            "roots": [],
            **what,
            "policy": asdict(replace(sandbox.policy, scratch=str(scratch))),
            "arena_bytes": sandbox.arena_bytes,
            "device_arena": None if sandbox.device == "cpu" else self._move_to_device(),
            "device": sandbox.device,
            "is_interpreted": sandbox.is_interpreted,
            "import_roots": [str(root) for root in import_roots],
            "import_path": [path for path in sys.path if path],
        }
        socket.send_fds(self._control, [json.dumps(setup).encode()], [memory_fd])
        os.close(memory_fd)
        self.missing_layers: Mapping[str, str] = {}
        self.static_facts: tuple[dict[str, Any], ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._resources.close()

    def wait_until_isolated(self, timeout_s: float) -> None:
        """Wait for the process to be isolated; it has not run any code of the kernel yet.

        Raises:
            CollectorError: it could not be.
        """
        try:
            self.missing_layers = self._receive(timeout_s).missing or {}
        except CandidateError as error:
            raise CollectorError(f"the sandbox of the {self._name} could not be set up: {error}") from None

    def load(self, timeout_s: float) -> None:
        """Load the kernel, which runs the candidate's code for the first time, and stop the process.

        Raises:
            CandidateError: it cannot be loaded.
        """
        answer, _ = self._ask({"do": "load"}, timeout_s)
        self.static_facts = tuple(each.model_dump() for each in answer.static or ())

    def call(
        self, arguments: Arguments, *, implementation: str = "candidate", timeout_s: float, is_recorded: bool = False
    ) -> Returned:
        """Call the kernel once.

        Args:
            arguments: Copied into the shared memory.
            implementation: Of a process that loaded a spec.
            timeout_s: Time limit of the call.
            is_recorded: Ask for the kernels that run on the GPU; takes longer.

        Raises:
            CandidateError: the kernel raised an exception; `ForgeryError` and `CandidateGoneError` for the rest.
        """
        self.check_settled()
        place = secrets.randbelow(_SHIFTS) * ALIGNMENT
        places: list[dict[str, Any]] = []
        for tensor in (*arguments.tensors.values(), *arguments.upstream):
            places.append(_place(tensor, place))
            place += extent(places[-1]["byte_count"])
        if place > len(self._arena):
            raise CollectorError(f"inputs of {place} bytes do not fit into {len(self._arena)} bytes of shared memory")
        count = len(arguments.tensors)
        self._ask(
            {
                "do": "prepare",
                "implementation": implementation,
                "tensors": dict(zip(arguments.tensors, places, strict=False)),
                "upstream": places[count:],
                "values": arguments.values,
                "gradients": arguments.gradients,
                "output_start": place,
            },
            timeout_s,
        )
        tensors = (*arguments.tensors.values(), *arguments.upstream)
        for each, tensor in zip(places, tensors, strict=True):
            self._bytes(each).copy_(_storage(tensor))
        answer, elapsed_ns = self._ask({"do": "record" if is_recorded else "call"}, timeout_s)
        outputs = self._copy(answer.outputs, place)
        changed = tuple(
            name
            for name, each, tensor in zip(arguments.tensors, places, tensors, strict=False)
            if not torch.equal(self._bytes(each), _storage(tensor))
        )
        return Returned(outputs, elapsed_ns, float(answer.claimed_ns or 0), tuple(answer.kernels or ()), changed)

    def exchange_ns(self, timeout_s: float) -> float:
        """Time of an exchange without a call, by the judge's clock."""
        return self._ask({"do": "nothing"}, timeout_s)[1]

    def check_settled(self) -> None:
        """Check that the outputs of the last call are what they were when it returned.

        Raises:
            ForgeryError: they are not, or the process has sent something that nobody asked for.
        """
        returned, self._returned = self._returned, []
        if any(not torch.equal(copy, place) for place, copy in returned):
            raise ForgeryError("an output was written after the call had returned")
        if select.select([self._control], [], [], 0)[0] and self._process.poll() is None:
            raise ForgeryError("the process sent a message that was not asked for")

    def _move_to_device(self) -> str:
        """Share GPU memory in place of the host's, and return its handle. Not tried on a GPU yet."""
        self._arena = torch.empty(len(self._arena), dtype=torch.uint8, device="cuda")
        handle = (ctypes.c_char * IPC_HANDLE_BYTES)()
        if ctypes.CDLL("libcuda.so.1").cuIpcGetMemHandle(handle, ctypes.c_uint64(self._arena.data_ptr())):
            raise CollectorError("this GPU cannot share memory with another process (cuIpcGetMemHandle)")
        return bytes(handle).hex()

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> tuple[Answer, float]:
        """Send a request, let the process run until it has answered, and return the answer and the time in ns."""
        try:
            self._control.send(json.dumps(request).encode())
        except OSError:
            raise CandidateGoneError(self._how_it_ended()) from None
        began_ns = time.perf_counter_ns()
        self._signal(signal.SIGCONT)
        try:
            answer = self._receive(timeout_s)
            return answer, float(time.perf_counter_ns() - began_ns)
        finally:
            self._signal(signal.SIGSTOP)

    def _receive(self, timeout_s: float) -> Answer:
        self._control.settimeout(timeout_s)
        try:
            message = self._control.recv(MAX_MESSAGE_BYTES)
        except TimeoutError:
            raise CandidateLateError(f"did not return within {timeout_s:.0f} s, all that was left") from None
        except OSError:
            message = b""
        if not message:
            raise CandidateGoneError(self._how_it_ended())
        try:
            answer = Answer.model_validate_json(message)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise ForgeryError(f"malformed answer: {first['msg']}") from None
        if answer.error is not None:
            raise CandidateError(answer.error, answer.kinds)
        return answer

    def _copy(self, outputs: list[Output] | None, start: int) -> dict[str, torch.Tensor]:
        """Copy the outputs, which lie one after another, and remember where they were."""
        found: dict[str, torch.Tensor] = {}
        if outputs is None:
            raise ForgeryError("malformed answer: no outputs")
        for output in outputs:
            if output.dtype not in _DTYPES:
                raise CandidateError(
                    f"{output.name} has dtype {output.dtype!r}; a result has one of {', '.join(_DTYPES)}"
                )
            dtype = getattr(torch, output.dtype)
            byte_count = dtype.itemsize
            for length in output.shape:
                byte_count *= length
            if output.start != start or start + byte_count > len(self._arena) or output.name in found:
                raise ForgeryError(f"malformed answer: {output.name} does not fit into the shared memory")
            place = self._arena[start : start + byte_count]
            copy = place.clone()
            self._returned.append((place, copy))
            found[output.name] = copy.view(dtype).view(output.shape)
            start += extent(byte_count)
        return found

    def _bytes(self, place: Mapping[str, Any]) -> torch.Tensor:
        return self._arena[place["start"] : place["start"] + place["byte_count"]]

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "closed its end of the socket"
        number = -status if status < 0 else status - 128
        with contextlib.suppress(ValueError):
            if status < 0 or status > 128:
                return f"was ended by {signal.Signals(number).name}"
        return f"ended with exit status {status}"

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _environment(scratch: Path, *, is_interpreted: bool) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    folders = {
        "HOME": scratch,
        "TMPDIR": scratch,
        "TRITON_CACHE_DIR": scratch / "triton",
        "TORCHINDUCTOR_CACHE_DIR": scratch / "inductor",
    }
    threads = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    # with an empty cache, probing the vector instructions and precompiling headers take longer than a kernel
    compiler = {"TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    interpreter = {"TRITON_INTERPRET": "1"} if is_interpreted else {}
    return kept | {name: str(folder) for name, folder in folders.items()} | threads | compiler | interpreter


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage, with the gaps of its layout."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _place(tensor: torch.Tensor, start: int) -> dict[str, Any]:
    return {
        "start": start,
        "byte_count": tensor.untyped_storage().nbytes(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
    }
