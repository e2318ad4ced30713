"""The full check of one case: as declared and in other memory layouts, with an explanation of each failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch

from roofwatch.collector.accuracy.accuracy import (
    CheckCache,
    TensorResult,
    compare_with_reference,
    dtype_name,
    require_same_bits,
    run_once,
    worst_message,
)
from roofwatch.collector.accuracy.check_report import Arrangement, CheckReport, Layout, TensorReport, WrongElement
from roofwatch.collector.accuracy.deviation import index_of, wrong_elements
from roofwatch.collector.accuracy.evaluation import IncorrectResultError, PreparedCase, differentiated_names
from roofwatch.collector.accuracy.mismatch import describe_values, describe_where
from roofwatch.collector.record.machine import Outcome
from roofwatch.spec import Case, Implementation, KernelSpec, Language

UPSTREAM = "upstream"
"""Names the gradients that are passed to the backward pass."""

_REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError)
_MAX_REFUSAL_CHARACTERS = 300


def layouts_of(prepared: PreparedCase) -> tuple[Layout, ...]:
    """Layouts to try: each input with two or more dims, and the upstream gradients, in every arrangement."""
    tensors = {name: value for name, value in prepared.inputs.items() if isinstance(value, torch.Tensor)}
    if prepared.case.is_backward:
        gradients = {f"grad_{name}" for name in differentiated_names(prepared.spec, prepared.case, prepared.inputs)}
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
        return replace(prepared, lay_out_upstream=lambda tensor: rearranged(tensor, layout.arrangement))
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
    # The gap between rows holds the largest number, which shows in a result that uses it. NaN would also fail kernels
    # that read the gap and multiply it by zero, as torch's bfloat16 matmul does on a CPU.
    kind = tensor.dtype
    largest = 1 if kind == torch.bool else (torch.finfo if kind.is_floating_point else torch.iinfo)(kind).max
    wider = tensor.new_full((*leading, n_rows, n_cols + 1), largest)
    return wider.narrow(-1, 1, n_cols).copy_(tensor)


def check_fully(
    spec: KernelSpec,
    case: Case,
    implementation: Implementation,
    cache: CheckCache,
    *,
    launch: Callable[..., Any],
    device: str,
    executor: Literal["device", "interpreter"],
    layout: Layout | None = None,
) -> CheckReport:
    """Check exactly this case, in the interpreter too.

    Raises:
        Exception: whatever the implementation, the reference or the input maker raises, unless it refuses a layout.
    """
    prepared = cache.prepare(spec, case, device)
    baseline = cache.baseline(prepared, implementation)
    if layout is not None:
        prepared = in_layout(prepared, layout)
    outcome, message = Outcome.OK, None
    tensors: tuple[TensorReport, ...] = ()
    try:
        actual = run_once(prepared, implementation, launch)
        results = compare_with_reference(prepared, actual, baseline)
        tensors = tuple(_report(each, prepared.expected[each.tensor], actual[each.tensor]) for each in results)
        message = worst_message(results)
        if message is None and implementation.is_deterministic and layout is None:
            require_same_bits(actual, run_once(prepared, implementation, launch))
    except IncorrectResultError as error:
        message = str(error)
    except Exception as error:
        if layout is None or not _is_refusal(error, implementation):
            raise
        outcome, message = _refused(error)
    return CheckReport(
        case_id=case.id,
        implementation=implementation.name,
        executor=executor,
        layout=layout,
        outcome=Outcome.INCORRECT if outcome is Outcome.OK and message is not None else outcome,
        message=message,
        baseline_missing=baseline.missing,
        tensors=tensors,
    )


def _is_refusal(error: Exception, implementation: Implementation) -> bool:
    """Whether an implementation refused a layout rather than failed; torch refuses with a RuntimeError."""
    if isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
        return False
    return isinstance(error, _REFUSALS) or (implementation.language is Language.TORCH and type(error) is RuntimeError)


def _refused(error: Exception) -> tuple[Outcome, str]:
    if not str(error).strip():
        return Outcome.INCORRECT, f"refuses with {type(error).__name__} without a message; say what to call instead"
    return Outcome.UNSUPPORTED, f"refuses: {str(error)[:_MAX_REFUSAL_CHARACTERS]}"


def _report(result: TensorResult, expected: torch.Tensor, actual: torch.Tensor) -> TensorReport:
    return TensorReport(
        tensor=result.tensor,
        dtype=dtype_name(actual),
        shape=tuple(actual.shape),
        passed=result.message is None,
        errors=result.deviation.errors,
        limits=result.limits,
        baseline=result.baseline,
        max_abs_error=result.deviation.max_abs_error,
        nonfinite_count=result.deviation.nonfinite_count,
        message=result.message,
        **({} if result.message is None else _explain(result, expected, actual)),
    )


def _explain(result: TensorResult, expected: torch.Tensor, actual: torch.Tensor) -> Mapping[str, Any]:
    """Describe the wrong elements of a failed tensor."""
    # if only the RMS is too large, elements beyond half of its limit count as wrong
    limits = (result.limits.elementwise, result.limits.rmse_ratio / 2, 0.0)
    mask, worst = next(found for limit in limits if (found := wrong_elements(expected, actual, limit))[1])
    flat_expected, flat_actual = expected.reshape(-1), actual.detach().reshape(-1)
    return {
        "wrong_count": int(mask.sum()),
        "where": describe_where(mask),
        "values": describe_values(expected, actual, mask),
        "worst": tuple(
            WrongElement(
                index=index_of(position, expected.shape),
                expected=float(flat_expected[position]),
                got=float(flat_actual[position]),
            )
            for position in worst
        ),
    }
