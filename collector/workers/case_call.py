"""A case of a suite as a call without arguments: what is timed, and what a profiler looks at."""

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
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.record.part import Outcome
from roofwatch.collector.workers.failures import failure_of
from roofwatch.spec import Case, Direction, Draws, Implementation, KernelSpec, UnsupportedError

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
