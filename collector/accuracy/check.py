"""Check one case of one implementation, as declared or in another memory layout."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from roofwatch.collector.accuracy.accuracy import (
    Baseline,
    CheckCache,
    compare_with_reference,
    require_same_bits,
    run_once,
    worst_message,
)
from roofwatch.collector.accuracy.deviation import root_mean_square
from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    PreparedCase,
    differentiated_names,
    prepare_inputs,
)
from roofwatch.collector.accuracy.fairness import why_unfair
from roofwatch.collector.accuracy.memory_guard import GUARD, MemoryWatch
from roofwatch.collector.accuracy.regimes import in_regime
from roofwatch.model.check_report import Arrangement, CheckReport, Layout, Regime, TensorReport
from roofwatch.model.machine import Outcome
from roofwatch.spec import Case, Implementation, KernelSpec, Language

UPSTREAM = "upstream"
"""Names the gradients that are passed to the backward pass."""

_STRIDED = (Arrangement.ROW_STRIDED, Arrangement.TRANSPOSED)
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
    layouts: list[Layout] = []
    for name, tensor in tensors.items():
        if tensor.ndim >= 2 and min(tensor.shape[-2:]) > 1 and tensor.numel():
            layouts += [Layout(tensor=name, arrangement=each) for each in _STRIDED]
        if _can_be_expanded(prepared, name, tensor):
            layouts.append(Layout(tensor=name, arrangement=Arrangement.EXPANDED))
    return tuple(layouts)


def _can_be_expanded(prepared: PreparedCase, name: str, tensor: torch.Tensor) -> bool:
    # indices must often differ from each other, and programs that change an input write to it
    is_value = tensor.is_floating_point() and name not in prepared.spec.mutates
    return is_value and tensor.ndim >= 2 and _expanded_dim(tensor) is not None


def in_layout(prepared: PreparedCase, layout: Layout) -> PreparedCase:
    """The case with one tensor in another layout; an expanded one has other values too."""
    if layout.arrangement is Arrangement.EXPANDED:
        return _expanded(prepared, layout.tensor)
    if layout.tensor == UPSTREAM:
        return replace(
            prepared, lay_out_upstream=lambda tensor: rearranged(tensor, layout.arrangement)
        )
    tensor = prepared.inputs[layout.tensor]
    moved = rearranged(tensor.detach(), layout.arrangement).requires_grad_(tensor.requires_grad)
    return replace(prepared, inputs={**prepared.inputs, layout.tensor: moved})


def _expanded(prepared: PreparedCase, name: str) -> PreparedCase:
    inputs = dict(prepared.inputs)
    lay_out_upstream = prepared.lay_out_upstream
    if name == UPSTREAM:
        lay_out_upstream = _as_of_a_sum
    else:
        tensor = prepared.inputs[name]
        inputs[name] = _repeated(tensor.detach()).requires_grad_(tensor.requires_grad)
    case = prepared.case
    expanded = prepare_inputs(prepared.spec, case, prepared.device, inputs, lay_out_upstream)
    # gradients of a sum may be zero but for rounding, as those of a softmax
    least_rms = {name: root_mean_square(each) for name, each in prepared.expected.items()}
    return replace(expanded, least_rms=least_rms)


def _as_of_a_sum(upstream: torch.Tensor) -> torch.Tensor:
    """The gradient that `out.sum()` passes back: one number for all elements."""
    return upstream.new_ones(()).expand(upstream.shape)


def _repeated(tensor: torch.Tensor) -> torch.Tensor:
    """The first slice in place of all, along the first dim that is longer than one."""
    dim = _expanded_dim(tensor)
    assert dim is not None
    return tensor.narrow(dim, 0, 1).clone().expand(tensor.shape)


def _expanded_dim(tensor: torch.Tensor) -> int | None:
    dims = (dim for dim, length in enumerate(tensor.shape) if length > 1)
    return next(dims, None) if tensor.numel() else None


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
    regime: Regime | None = None,
) -> CheckReport:
    """Compare the outputs and gradients of exactly this case, or of it in another layout or with
    other values, with the float64 reference.

    `launch` replaces that of the implementation, for example by its compiled form.

    Raises:
        Exception: whatever the implementation, the reference or the input maker raises, unless it
        refuses a layout.
    """
    prepared = cache.prepare(spec, case, device)
    # Triton's interpreter runs programs one after another, so a second run is always equal
    is_interpreted = implementation.language is Language.TRITON and device == "cpu"
    empty = CheckReport(
        case_id=case.id,
        implementation=implementation.name,
        executor="interpreter" if is_interpreted else "device",
        layout=layout,
        regime=regime,
        outcome=Outcome.OK,
    )
    if regime is not None:
        try:
            varied, baseline = cache.vary(
                prepared, implementation, partial(in_regime, regime=regime), regime
            )
            reason = _why_unfair(varied, baseline)
        except Exception as error:  # noqa: BLE001  a reference that does not allow these values
            reason = f"the reference: {type(error).__name__}: {error}"
        if reason is not None:
            message = f"not tried: {reason}"[:_MAX_REFUSAL_CHARACTERS]
            return empty.model_copy(update={"outcome": Outcome.UNSUPPORTED, "message": message})
        prepared = varied
    elif layout is not None and layout.arrangement is Arrangement.EXPANDED:
        name = f"{layout.tensor} expanded"
        prepared, baseline = cache.vary(
            prepared, implementation, partial(in_layout, layout=layout), name
        )
    else:
        baseline = cache.baseline(prepared, implementation)
        prepared = prepared if layout is None else in_layout(prepared, layout)
    outcome, message = Outcome.OK, None
    tensors: tuple[TensorReport, ...] = ()
    watch = MemoryWatch()
    try:
        with GUARD.watching(watch):
            actual = run_once(prepared, implementation, launch)
        tensors = compare_with_reference(prepared, actual, baseline)
        message = worst_message(tensors)
        is_repeated = implementation.is_deterministic and not is_interpreted
        if message is None and is_repeated and layout is None and regime is None:
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
    if outcome is Outcome.OK and message is not None:
        outcome = Outcome.INCORRECT
    return empty.model_copy(
        update={
            "outcome": outcome,
            "message": message,
            "baseline_missing": baseline.missing,
            "tensors": tensors,
            "faults": watch.faults,
            "unknown_pointer_count": watch.unknown_pointer_count,
        }
    )


def _why_unfair(prepared: PreparedCase, baseline: Baseline) -> str | None:
    """Why a right implementation may fail at the values of a regime."""
    floating = getattr(torch, prepared.case.dtype)
    dtypes: dict[str, torch.dtype] = {}
    for name, expected in prepared.expected.items():
        if bool(expected.isnan().any()):
            return f"{name} of the reference has NaN"
        plain = floating if expected.is_floating_point() else expected.dtype
        dtypes[name] = baseline.dtypes.get(name, plain)
        errors = baseline.errors.get(name)
        limit = prepared.spec.tolerance(prepared.case, str(dtypes[name]).removeprefix("torch."))
        if errors is not None and (
            errors.elementwise > limit.elementwise or errors.rmse_ratio > limit.rmse_ratio
        ):
            return f"the torch implementation is not accurate enough for {name}"
    if baseline.dtypes and baseline.errors.keys() != prepared.expected.keys():
        return "the torch implementation has NaN or infinity where the reference has none"
    return why_unfair(
        prepared, dtypes, lambda case, outputs: compare_with_reference(case, outputs, baseline)
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
