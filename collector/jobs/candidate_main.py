"""The sandboxed process of `roofwatch submit`: calls one kernel on inputs that the judge puts into
shared memory.

Nothing that it says is trusted, because the candidate's code may change any of it. The judge relies
on the bytes of the outputs, which it checks, and on its own clock.
"""

import contextlib
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from roofwatch.collector.module_file import load_module
from roofwatch.collector.workers.candidate_limits import MAX_MESSAGE_BYTES
from roofwatch.collector.workers.sandbox import Policy, isolate
from roofwatch.model.files import JsonObject

STATIC_FIELDS = (
    "target",
    "function",
    "outcome",
    "registers",
    "spilled_registers",
    "local_bytes",
    "shared_bytes",
)
# Messages of a candidate may be of any length.
_MAX_ERROR_CHARACTERS = 2_000
_MAX_FACTS = 100


def main(control_fd: int) -> NoReturn:
    """Isolate this process, load the kernel, and serve the judge until it closes the socket."""
    control = socket.socket(fileno=control_fd)
    message, fds, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 2)
    setup = json.loads(message)
    # On a GPU, a second descriptor shares memory of the device.
    memory_fd, *device_fds = fds
    memory = mmap.mmap(memory_fd, setup["arena_bytes"])
    os.close(memory_fd)
    missing = isolate(Policy(**setup["policy"]))
    _send(control, {"missing": missing})
    import torch  # noqa: F401  before the candidate's turn, while the other process loads it too

    message = control.recv(MAX_MESSAGE_BYTES)
    if not message:  # the judge refuses this isolation
        os._exit(1)
    sys.path[:0] = setup["import_roots"]
    sys.path += [path for path in setup["import_path"] if path not in sys.path]
    try:
        server = _Server(
            setup=setup,
            memory=memory,
            device_fds=device_fds,
        )
    except BaseException as error:  # noqa: BLE001  SystemExit too: the judge hears why
        _send(control, _described(error))
        os._exit(1)
    _send(control, {"static": server.static_facts, **json.loads(message)})
    while message := control.recv(MAX_MESSAGE_BYTES):
        request = json.loads(message)
        number = request.pop("number")
        try:
            reply = server.answer(**request)
        except BaseException as error:  # noqa: BLE001
            reply = _described(error)
        _send(control, {**reply, "number": number})
    # Without exit handlers: the candidate may have registered some.
    os._exit(0)


def _send(control: socket.socket, reply: Mapping[str, Any]) -> None:
    control.send(json.dumps(reply).encode())


def _described(error: BaseException) -> JsonObject:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    text = f"{type(error).__name__}: {error}"
    return {"error": text[:_MAX_ERROR_CHARACTERS], "kinds": kinds}


class _Server:
    """The loaded kernel."""

    def __init__(
        self,
        setup: Mapping[str, Any],
        memory: mmap.mmap,
        device_fds: Sequence[int],
    ) -> None:
        import torch

        self._torch = torch
        self._device = setup["device"]
        # the judge does the same for its own calls
        if self._device == "cpu":
            from roofwatch.collector.timing.memory import keep_freed_memory

            # One thread, as the judge's own side: times are compared.
            torch.set_num_threads(1)
            keep_freed_memory()
        # without the corrections, right candidates could be refused
        if setup["is_interpreted"]:
            from roofwatch.collector.accuracy.corrected_interpreter import correct_interpreter

            correct_interpreter()
        self._arena = torch.frombuffer(memory, dtype=torch.uint8)
        # memory of the GPU takes the place of that of the host
        for device_fd in device_fds:
            self._arena = _open_device_arena(device_fd, setup["arena_bytes"])
        self._kernels = _load(setup)
        self.static_facts: list[JsonObject] = []
        # once, before the calls that are timed
        if "compiled_case" in setup:
            self.static_facts = _compile(setup, self._kernels["candidate"])
        self._outputs: dict[str, Any] = {}
        self._recorder: Any = None
        if self._device != "cpu":
            with contextlib.suppress(Exception):  # without CUPTI the judge sees no kernels
                from roofwatch.collector.timing.cupti import recorder

                self._recorder = recorder()

    def answer(
        self,
        implementation: str | None,
        tensors: Mapping[str, Any],
        upstream: Sequence[Any],
        values: Mapping[str, Any],
        gradients: Sequence[str],
        output_start: int,
        is_recorded: bool,
    ) -> JsonObject:
        """Call the kernel, and copy its outputs into the shared memory."""
        views = {name: self._view(**span) for name, span in tensors.items()}
        self._declare_operands([*tensors.values(), *upstream])
        for name in gradients:
            views[name].requires_grad_(True)
        weights = [self._view(**span) for span in upstream]
        if implementation is None:
            # The copy that writing into the shared memory at once would save.
            for output in self._outputs.values():
                copy = self._torch.empty_like(output)
                copy.copy_(self._torch.empty_like(output))
            return {"outputs": []}
        is_recorded = is_recorded and self._recorder is not None
        with self._recorder.recording() if is_recorded else contextlib.nullcontext():
            results = _call(
                launch=self._kernels[implementation],
                arguments={**values, **views},
                differentiated=gradients,
                upstream=weights,
            )
            answer: JsonObject = {"outputs": self._copy(results, output_start)}
            if is_recorded:
                answer["kernels"] = self._recorded_kernels()
        return answer

    def _recorded_kernels(self) -> list[str]:
        kernels: set[str] = set()
        for activity in self._recorder.activities():
            kernels.add(f"{activity.name[:200]} on stream {activity.stream}")
        return sorted(kernels)[:100]

    def _view(
        self,
        start: int,
        byte_count: int,
        dtype: str,
        shape: Any,
        stride: Any,
        offset: int,
    ) -> Any:
        """A tensor in the shared memory, with the strides of the judge's."""
        storage_bytes = self._arena[start : start + byte_count]
        storage = storage_bytes.view(getattr(self._torch, dtype))
        # the arena is one storage: offsets count from its beginning
        return storage.as_strided(shape, stride, storage.storage_offset() + offset)

    def _declare_operands(self, spans: Sequence[Mapping[str, Any]]) -> None:
        """Let the interpreter know where each tensor ends in the shared memory."""
        from roofwatch.collector.accuracy.memory_guard import GUARD

        begin = self._arena.data_ptr()
        parts: dict[int, int] = {}
        for span in spans:
            start = begin + span["start"]
            parts[start] = start + span["byte_count"]
        GUARD.divide_storage(parts)

    def _copy(self, results: Mapping[str, Any], offset: int) -> list[JsonObject]:
        """Copy the outputs into the shared memory, one after another from an offset."""
        outputs: list[JsonObject] = []
        self._outputs = {}
        for name, result in results.items():
            # A subclass could compute when the judge reads it.
            if type(result) is not self._torch.Tensor:
                raise TypeError(f"{name} is a {type(result).__name__}; return plain tensors")
            # a larger output cannot be right, and would end this process
            if offset + result.nbytes > len(self._arena):
                raise ValueError(
                    f"{name} has {result.nbytes} bytes, more than the reference's outputs"
                )
            shared = self._arena[offset:][: result.nbytes]
            target = shared.view(result.dtype).view(result.shape)
            target.copy_(result.detach())
            self._outputs[name] = target
            output = {
                "name": name,
                "dtype": str(result.dtype).removeprefix("torch."),
                "shape": list(result.shape),
            }
            outputs.append(output)
            # Each output begins at a multiple of 64 bytes.
            offset += -(-result.nbytes // 64) * 64
        # The clock of the judge must include the kernels.
        if self._device != "cpu":
            self._torch.cuda.synchronize()
        return outputs


def _open_device_arena(device_fd: int, byte_count: int) -> Any:
    """Map GPU memory of the judge. Not tried on a GPU yet."""
    import torch

    from roofwatch.collector.workers.device_memory import open_device_memory

    torch.zeros(1, device="cuda")  # makes the context current
    memory = open_device_memory(device_fd, byte_count, torch.cuda.current_device())
    os.close(device_fd)
    return memory.as_tensor()


def _load(setup: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """The candidate's callable, or the implementations of the spec that is compared with."""
    if "entry" in setup:
        return {"candidate": _load_candidate(Path(setup["file"]), setup["entry"])}
    from roofwatch.collector.jobs.case_call import compiled

    spec = _load_spec(setup)
    launches: dict[str, Callable[..., Any]] = {}
    for name, implementation in spec.implementations.items():
        launches[name] = implementation.launch
        if implementation.is_compiled:
            launches[name] = compiled(implementation)
    return launches


def _load_candidate(file: Path, entry: str) -> Callable[..., Any]:
    """Run the candidate's file, and find the callable in it."""
    module = load_module("candidate", file)
    launch: Callable[..., Any] | None = getattr(module, entry, None)
    if launch is None or not callable(launch):
        raise AttributeError(f"{file.name} defines no callable {entry!r}; name one with --entry")
    return launch


def _load_spec(setup: Mapping[str, Any]) -> Any:
    """Load the spec from the files of the judge's suite."""
    from roofwatch.collector.suite import load_suite
    from roofwatch.model.suite_source import SuiteSource

    import_roots = [Path(root) for root in setup["import_roots"]]
    specs = load_suite(SuiteSource(Path(setup["spec"]), tuple(import_roots)))
    return next(spec for spec in specs if spec.name == setup["kernel"])


def _compile(setup: Mapping[str, Any], launch: Callable[..., Any]) -> list[JsonObject]:
    """Compile what the candidate launches for a case, for every target."""
    from roofwatch.collector.compile.static import compile_case
    from roofwatch.spec import Implementation, Language

    spec = _load_spec(setup)
    cases = (*spec.cases, *spec.edges)
    case = next(case for case in cases if case.id == setup["compiled_case"])
    candidate = Implementation(
        name="candidate",
        language=Language.TRITON,
        launch=launch,
        directions=frozenset({case.direction}),
    )
    facts = compile_case(spec, candidate, case)[:_MAX_FACTS]
    return [fact.model_dump(mode="json", include=set(STATIC_FIELDS)) for fact in facts]


def _call(
    launch: Callable[..., Any],
    arguments: Mapping[str, Any],
    differentiated: Sequence[str],
    upstream: Sequence[Any],
) -> JsonObject:
    """Run the forward pass without a graph, or the outputs and the gradients."""
    import torch

    from roofwatch.collector.accuracy.evaluation import outputs_by_name
    from roofwatch.collector.accuracy.memory_guard import GUARD

    leaves = [arguments[name] for name in differentiated]
    if not leaves:
        with torch.no_grad(), GUARD.refusing():
            return outputs_by_name(launch(**arguments))
    with GUARD.refusing():
        outputs = outputs_by_name(launch(**arguments))
        # Integers have no gradient.
        roots = [output for output in outputs.values() if output.is_floating_point()]
        gradients = torch.autograd.grad(roots, leaves, upstream, allow_unused=True)
    for name, gradient in zip(differentiated, gradients, strict=True):
        outputs[f"grad_{name}"] = gradient
    return outputs
