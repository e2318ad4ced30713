"""Check one case of one implementation, as declared or in another memory layout."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from roofwatch.collector.accuracy.accuracy import (
    CheckCache,
    compare_with_reference,
    require_same_bits,
    run_once,
    worst_message,
)
from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    PreparedCase,
    differentiated_names,
)
from roofwatch.collector.accuracy.memory_guard import GUARD, MemoryWatch
from roofwatch.model.check_report import Arrangement, CheckReport, Layout, TensorReport
from roofwatch.model.machine import Outcome
from roofwatch.spec import Case, Implementation, KernelSpec, Language

UPSTREAM = "upstream"
"""Names the gradients that are passed to the backward pass."""

_REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError)
_MAX_REFUSAL_CHARACTERS = 300


def layouts_of(prepared: PreparedCase) -> tuple[Layout, ...]:
    """Layouts to try: each input with two or more dims, and the upstream gradients, in every
    arrangement.
    """
    tensors = {
        name: value for name, value in prepared.inputs.items() if isinstance(value, torch.Tensor)
    }
    if prepared.case.is_backward:
        gradients = {
            f"grad_{name}"
            for name in differentiated_names(prepared.spec, prepared.case, prepared.inputs)
        }
        outputs = [each for name, each in prepared.expected.items() if name not in gradients]
        tensors[UPSTREAM] = max(outputs, key=lambda output: output.ndim)
    return tuple(
        Layout(tensor=name, arrangement=arrangement)
        for name, tensor in tensors.items()
        for arrangement in Arrangement
        if tensor.ndim >= 2 and min(tensor.shape[-2:]) > 1 and tensor.numel()
    )


def in_layout(prepared: PreparedCase, layout: Layout) -> PreparedCase:
    """The case with one tensor in another layout."""
    if layout.tensor == UPSTREAM:
        return replace(
            prepared, lay_out_upstream=lambda tensor: rearranged(tensor, layout.arrangement)
        )
    tensor = prepared.inputs[layout.tensor]
    moved = rearranged(tensor.detach(), layout.arrangement).requires_grad_(tensor.requires_grad)
    return replace(prepared, inputs={**prepared.inputs, layout.tensor: moved})


def rearranged(tensor: torch.Tensor, arrangement: Arrangement) -> torch.Tensor:
    """Copy a tensor into another arrangement; with fewer than two dims it is returned as it is."""
    if tensor.ndim < 2:
        return tensor
    *leading, n_rows, n_cols = tensor.shape
    if arrangement is Arrangement.TRANSPOSED:
        return tensor.new_empty(*leading, n_cols, n_rows).mT.copy_(tensor)
    # The gap between rows holds the largest number, which shows in a result that uses it. NaN would
    # also fail kernels that read the gap and multiply it by zero, as torch's bfloat16 matmul does
    # on a CPU.
    kind = tensor.dtype
    largest = (
        1
        if kind == torch.bool
        else (torch.finfo if kind.is_floating_point else torch.iinfo)(kind).max
    )
    wider = tensor.new_full((*leading, n_rows, n_cols + 1), largest)
    return wider.narrow(-1, 1, n_cols).copy_(tensor)


def check_case(
    spec: KernelSpec,
    case: Case,
    implementation: Implementation,
    cache: CheckCache,
    *,
    launch: Callable[..., Any] | None = None,
    device: str = "cpu",
    layout: Layout | None = None,
) -> CheckReport:
    """Compare the outputs and gradients of exactly this case, or of it in another layout, with the
    float64 reference.

    `launch` replaces that of the implementation, for example by its compiled form.

    Raises:
        Exception: whatever the implementation, the reference or the input maker raises, unless it
        refuses a layout.
    """
    prepared = cache.prepare(spec, case, device)
    baseline = cache.baseline(prepared, implementation)
    if layout is not None:
        prepared = in_layout(prepared, layout)
    # Triton's interpreter runs programs one after another, so a second run is always equal
    is_interpreted = implementation.language is Language.TRITON and device == "cpu"
    outcome, message = Outcome.OK, None
    tensors: tuple[TensorReport, ...] = ()
    watch = MemoryWatch()
    try:
        with GUARD.watching(watch):
            actual = run_once(prepared, implementation, launch)
        tensors = compare_with_reference(prepared, actual, baseline)
        message = worst_message(tensors)
        if (
            message is None
            and implementation.is_deterministic
            and layout is None
            and not is_interpreted
        ):
            require_same_bits(actual, run_once(prepared, implementation, launch))
    except IncorrectResultError as error:
        message = str(error)
    except Exception as error:
        if watch.faults:
            message = f"then {type(error).__name__}: {error}"
        elif layout is None or not _is_refusal(error, implementation):
            raise
        else:
            outcome, message = _refused(error)
    if watch.faults:
        # the cause of everything else that is wrong
        message = "; ".join(filter(None, (watch.faults[0].message, message)))
    return CheckReport(
        case_id=case.id,
        implementation=implementation.name,
        executor="interpreter" if is_interpreted else "device",
        layout=layout,
        outcome=Outcome.INCORRECT if outcome is Outcome.OK and message is not None else outcome,
        message=message,
        baseline_missing=baseline.missing,
        tensors=tensors,
        faults=watch.faults,
    )


def _is_refusal(error: Exception, implementation: Implementation) -> bool:
    """Whether an implementation refused a layout rather than failed; torch refuses with a
    RuntimeError.
    """
    if isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
        return False
    return isinstance(error, _REFUSALS) or (
        implementation.language is Language.TORCH and type(error) is RuntimeError
    )


def _refused(error: Exception) -> tuple[Outcome, str]:
    if not str(error).strip():
        return (
            Outcome.INCORRECT,
            f"refuses with {type(error).__name__} without a message; say what to call instead",
        )
    return Outcome.UNSUPPORTED, f"refuses: {str(error)[:_MAX_REFUSAL_CHARACTERS]}"
