"""Which outcome an exception of a kernel stands for."""

from __future__ import annotations

import torch

from roofwatch.collector.accuracy.evaluation import IncorrectResultError
from roofwatch.collector.errors import ToolchainError
from roofwatch.collector.record.part import Outcome
from roofwatch.collector.timing.cuda_graph import FailedCaptureError
from roofwatch.collector.workers.protocol import Failure

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
    return Failure(outcome=_outcome_of(error), message=message, spoils_process=isinstance(error, FailedCaptureError))


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
