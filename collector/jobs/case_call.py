"""Turn a case into a call without arguments, and an exception into an outcome."""

import traceback
from collections.abc import Callable
from typing import Any

import torch

from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    UpstreamGradients,
    differentiable,
    differentiated_names,
    make_inputs,
    outputs_by_name,
)
from roofwatch.collector.user_code import kernel_error, place_in_user_code
from roofwatch.model.check_report import REFERENCE_FAILED
from roofwatch.model.errors import SuiteError, ToolchainError
from roofwatch.model.machine import Outcome
from roofwatch.model.worker_protocol import Failure
from roofwatch.spec import Case, Direction, Implementation, KernelSpec, UnsupportedError

_MAX_MESSAGE_LENGTH = 2_000
_MAX_TRACEBACK_LENGTH = 4_000
_MAX_SHAPES = 100_000

# texts of errors for which torch raises a plain RuntimeError
_OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "not enough memory", "out of memory")
_UNSUPPORTED_TEXTS = (
    "not implemented for",
    "no working C++ compiler",
    "InvalidCxxCompiler",
    "0 active drivers",
)
_COMPILE_ERROR_TYPES = frozenset(
    {
        "CompilationError",
        "CompileTimeAssertionFailure",
        "CudaCompileError",
        "OutOfResources",
        "PTXASError",
    }
)


def failure_of(error: BaseException) -> Failure:
    """Classify an error of an implementation, its compiler or its inputs, and locate it."""
    cause = kernel_error(error)
    # a refusal needs no location
    message = f"{type(cause).__name__}: {cause}"[:_MAX_MESSAGE_LENGTH]
    if not isinstance(cause, UnsupportedError):
        location = place_in_user_code(cause)
        if location:
            message += f" ({location})"
        if REFERENCE_FAILED in getattr(error, "__notes__", ()):
            message = f"{REFERENCE_FAILED}: {message}"
    return Failure(
        outcome=_outcome_of(cause),
        message=message,
        traceback="".join(traceback.format_exception(error))[-_MAX_TRACEBACK_LENGTH:],
    )


def _outcome_of(error: BaseException) -> Outcome:
    """The outcome for an exception, by its type or by words of its text."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, IncorrectResultError):
        return Outcome.INCORRECT
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        part in text for part in _OUT_OF_MEMORY_TEXTS
    ):
        return Outcome.OUT_OF_MEMORY
    if isinstance(error, (NotImplementedError, ToolchainError)) or any(
        part in text for part in _UNSUPPORTED_TEXTS
    ):
        return Outcome.UNSUPPORTED
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _COMPILE_ERROR_TYPES or type(error).__module__.startswith(
        ("torch._dynamo", "torch._inductor")
    ):
        return Outcome.COMPILE_ERROR
    return Outcome.CRASHED


def compiled(implementation: Implementation) -> Callable[..., Any]:
    """The launcher through torch.compile, compiled for each shape."""
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    # inductor's backward would free what a second, timed backward of the same graph needs
    functorch_config.donated_buffer = False
    # beyond the default limit of 8, torch would run the function uncompiled
    dynamo_config.recompile_limit = dynamo_config.accumulated_recompile_limit = _MAX_SHAPES
    dynamo_config.fail_on_recompile_limit_hit = True
    dynamo_config.suppress_errors = False
    # a pool of compiling processes would disturb timing
    inductor_config.compile_threads = 1
    form: Callable[..., Any] = torch.compile(implementation.launch, dynamic=False)
    return form


def prepare_call(
    launch: Callable[..., Any],
    spec: KernelSpec,
    case: Case,
    device: str,
) -> Callable[[], object]:
    """Make the inputs of a case, and return the call to time: the forward pass without a graph, or
    only the gradients.

    Raises:
        SuiteError: the result of the launcher cannot be differentiated.
    """
    inputs = make_inputs(spec, case, device)
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
    upstream = UpstreamGradients(case).of(outputs)
    leaves = [inputs[name] for name in differentiated_names(spec, case, inputs)]
    return lambda: torch.autograd.grad(
        roots,
        leaves,
        upstream,
        retain_graph=True,
        allow_unused=True,
    )


def another_call(make: Callable[[], Callable[[], object]]) -> Callable[[], object]:
    """Make one more call of a case with its own memory, for a rotated cache.

    Raises:
        UnsupportedError: memory is exhausted; the kernel is not at fault.
    """
    try:
        return make()
    except (MemoryError, RuntimeError) as error:
        if failure_of(error).outcome is not Outcome.OUT_OF_MEMORY:
            raise
        raise UnsupportedError(
            "memory does not hold enough copies of its data for a rotated cache: use --cache hot "
            "or cold"
        ) from error
