"""A case of a suite as a call without arguments, and the outcome that its exception stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    differentiable,
    differentiated_names,
    make_inputs,
    outputs_by_name,
    upstream_gradients,
)
from roofwatch.collector.errors import SuiteError, ToolchainError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.timing.cuda_timers import FailedCaptureError
from roofwatch.collector.workers.protocol import Failure
from roofwatch.spec import Case, Direction, Draws, Implementation, KernelSpec, UnsupportedError

_MAX_MESSAGE = 2_000

# Errors are told apart by their text only where torch raises a plain RuntimeError for them.
_OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "not enough memory", "out of memory")
_UNSUPPORTED_TEXTS = ("not implemented for", "no working C++ compiler", "InvalidCxxCompiler", "0 active drivers")
_COMPILE_ERROR_TYPES = (
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CudaCompileError",
    "OutOfResources",
    "PTXASError",
)


def failure_of(error: BaseException) -> Failure:
    """Classify what an implementation, its compiler or its inputs raised."""
    message = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
    return Failure(outcome=_outcome_of(error), message=message, must_restart=isinstance(error, FailedCaptureError))


def _outcome_of(error: BaseException) -> Outcome:
    text = str(error)
    if isinstance(error, IncorrectResultError):
        return Outcome.INCORRECT
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(part in text for part in _OUT_OF_MEMORY_TEXTS):
        return Outcome.OUT_OF_MEMORY
    if isinstance(error, (NotImplementedError, ToolchainError)) or any(
        part in f"{type(error).__name__}: {text}" for part in _UNSUPPORTED_TEXTS
    ):
        return Outcome.UNSUPPORTED
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & set(_COMPILE_ERROR_TYPES) or type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return Outcome.COMPILE_ERROR
    return Outcome.CRASHED


_MOST_SHAPES = 100_000


def compiled(implementation: Implementation, device: str) -> Callable[..., Any]:
    """The launcher through torch.compile, for fixed shapes: each case is compiled, however many there are."""
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    # else inductor's backward frees what a second backward of the same graph, which is timed, needs
    functorch_config.donated_buffer = False
    # beyond its limit, 8 for one function, torch runs what was to be compiled as it is, and only warns
    dynamo_config.recompile_limit = dynamo_config.accumulated_recompile_limit = _MOST_SHAPES
    # what cannot be compiled fails: as it is it would be timed under the wrong name
    dynamo_config.fail_on_recompile_limit_hit = True
    dynamo_config.suppress_errors = False
    if device == "cpu":
        # else a pool of processes that each load torch is started beside what is timed; C++ is compiled without it
        inductor_config.compile_threads = 1
    form: Callable[..., Any] = torch.compile(implementation.launch, dynamic=False)
    return form


def prepare_call(
    launch: Callable[..., Any], spec: KernelSpec, case: Case, device: str, draws: Draws | None = None
) -> Callable[[], object]:
    """Make the case's inputs, and give the call that does its work: the forward pass without a graph, or the gradients
    alone.

    Raises:
        SuiteError: what the call gives back cannot be differentiated.
    """
    inputs = make_inputs(spec, case, device, draws=draws)
    if case.direction is Direction.FWD:

        def forward() -> object:
            with torch.no_grad():
                return launch(**inputs)

        return forward
    try:
        outputs = outputs_by_name(launch(**inputs))
        roots = differentiable(outputs)
    except IncorrectResultError as error:
        raise SuiteError(f"{case.id}: {error}") from None
    upstream = upstream_gradients(outputs, case)
    leaves = [inputs[name] for name in differentiated_names(spec, case, inputs)]
    return lambda: torch.autograd.grad(roots, leaves, upstream, retain_graph=True, allow_unused=True)


def another_call(make: Callable[[], Callable[[], object]]) -> Callable[[], object]:
    """One more call beside others of its case, on memory of its own, for a cache through which they take turns.

    Raises:
        UnsupportedError: there is no room for it. The kernel is not at fault, which ran alone.
        Exception: whatever else making it raises.
    """
    try:
        return make()
    except (MemoryError, RuntimeError) as error:
        if failure_of(error).outcome is not Outcome.OUT_OF_MEMORY:
            raise
        raise UnsupportedError(
            "memory does not hold as many copies of its data as a rotated cache takes: --cache hot or cold, as the "
            "timer has it"
        ) from error
