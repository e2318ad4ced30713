"""Run a case once, and compare its outputs and gradients with the float64 reference."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from roofwatch.collector.accuracy.baseline import Baseline
from roofwatch.collector.accuracy.deviation import (
    count_different_bits,
    deviation,
    index_of,
    wrong_elements,
)
from roofwatch.collector.accuracy.error_pattern import describe_values, describe_where
from roofwatch.collector.accuracy.evaluation import (
    IncorrectResultError,
    PreparedCase,
)
from roofwatch.model.check_report import Errors, TensorReport, WrongElement
from roofwatch.spec import (
    BASELINE_FACTOR,
    Tolerance,
)


def compare_with_reference(
    prepared: PreparedCase,
    actual: Mapping[str, torch.Tensor],
    baseline: Baseline,
) -> tuple[TensorReport, ...]:
    """Compare all outputs and gradients with the reference, and explain what is wrong.

    Raises:
        IncorrectResultError: a tensor is missing or unexpected, or has another shape, device or
        dtype.
    """
    # a missing output would otherwise count as right
    if prepared.expected.keys() != actual.keys():
        names = ", ".join(prepared.expected)
        raise IncorrectResultError(f"returned {', '.join(actual)}; the reference returns {names}")
    # all forms first: a wrong form explains wrong values
    for name, expected in prepared.expected.items():
        _require_form(
            name=name,
            expected=expected,
            actual=actual[name],
            dtype=baseline.dtypes.get(name),
        )
        _require_no_accidental_float64(name, actual[name], prepared.inputs.values())
    results = []
    for name, expected in prepared.expected.items():
        tolerance = prepared.spec.tolerance(prepared.case, dtype_name(actual[name]))
        least_rms = prepared.least_rms.get(name, 0.0)
        results.append(
            _compare(
                name=name,
                expected=expected,
                actual=actual[name],
                tolerance=tolerance,
                baseline=baseline,
                least_rms=least_rms,
            )
        )
    return tuple(results)


def worst_message(results: tuple[TensorReport, ...]) -> str | None:
    """Message about the worst failed tensor; None if all passed."""
    failed = [result for result in results if not result.passed]
    worst = max(
        failed,
        key=lambda result: (result.nonfinite_count > 0, result.errors.rmse_ratio),
        default=None,
    )
    if worst is None:
        return None
    return worst.message


def require_same_bits(
    first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]
) -> None:
    """Verify that a second run of a deterministic implementation is equal.

    Raises:
        IncorrectResultError: it is not.
    """
    for name, tensor in first.items():
        count = count_different_bits(tensor, second[name])
        if count:
            raise IncorrectResultError(
                f"is declared deterministic, but a second run differs in {count} of "
                f"{tensor.numel()} elements of {name}"
            )


def dtype_name(tensor: torch.Tensor) -> str:
    return name_of(tensor.dtype)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _require_form(
    name: str,
    expected: torch.Tensor,
    actual: torch.Tensor,
    dtype: torch.dtype | None,
) -> None:
    """Require the shape, device and dtype of a result before its values are compared."""
    if actual.shape != expected.shape:
        raise IncorrectResultError(
            f"{name} has shape {tuple(actual.shape)}; the reference has {tuple(expected.shape)}"
        )
    if actual.device != expected.device:
        raise IncorrectResultError(
            f"{name} is on {actual.device}; the inputs are on {expected.device}"
        )
    # another dtype changes both the time and the accuracy
    if dtype is not None and actual.dtype != dtype:
        raise IncorrectResultError(
            f"{name} has dtype {actual.dtype}; the torch implementation has {dtype}"
        )
    if actual.is_floating_point() != expected.is_floating_point():
        raise IncorrectResultError(
            f"{name} has dtype {actual.dtype}; the reference has {expected.dtype}"
        )


def _require_no_accidental_float64(
    name: str,
    actual: torch.Tensor,
    inputs: Iterable[object],
) -> None:
    """A result in float64 of inputs in less is slower and larger than the caller expects.

    It is the one wrong dtype that can be told without a torch implementation: a result in float32
    of inputs in bfloat16 may be meant.
    """
    if actual.dtype is not torch.float64:
        return
    dtypes = {value.dtype for value in inputs if isinstance(value, torch.Tensor)}
    floating = {dtype for dtype in dtypes if dtype.is_floating_point}
    if floating and torch.float64 not in floating:
        names = ", ".join(sorted(map(str, floating)))
        raise IncorrectResultError(f"{name} has dtype {actual.dtype}; the inputs have {names}")


def _compare(
    name: str,
    expected: torch.Tensor,
    actual: torch.Tensor,
    tolerance: Tolerance,
    baseline: Baseline,
    least_rms: float,
) -> TensorReport:
    """Compare one output or gradient with the reference, and explain a difference."""
    difference = deviation(expected, actual, least_rms=least_rms)
    eager = baseline.errors.get(name)
    limits = _limits(tolerance, eager, baseline.least_limits.get(name))
    message = None
    explanation: dict[str, Any] = {}
    # before the errors, which are NaN too
    if difference.first_nonfinite is not None:
        message = (
            f"{name}: {difference.nonfinite_count} of {expected.numel()} elements "
            f"are NaN or infinite on one side only, "
            f"the first at {index_of(difference.first_nonfinite, expected.shape)}"
        )
    elif difference.is_all_zero:
        # the usual sign of a store that is missing
        message = f"{name} is zero everywhere"
    elif (
        difference.errors.rmse_ratio > limits.rmse_ratio
        or difference.errors.elementwise > limits.elementwise
    ):
        eager_rmse_ratio = None
        if eager:
            eager_rmse_ratio = eager.rmse_ratio
        eager_elementwise = None
        if eager:
            eager_elementwise = eager.elementwise
        message = (
            f"{name}: RMS error {difference.errors.rmse_ratio:.2e} relative to the reference's RMS "
            f"({_limit_text(limits.rmse_ratio, tolerance.rmse_ratio, eager_rmse_ratio)}), "
            f"largest relative error of an element {difference.errors.elementwise:.2e} "
            f"({_limit_text(limits.elementwise, tolerance.elementwise, eager_elementwise)})"
        )
        if baseline.missing:
            message += f"; only the caps apply because {baseline.missing}"
    if message is not None:
        explanation = _explain(
            expected=expected,
            actual=actual,
            limits=limits,
            least_rms=least_rms,
        )
    return TensorReport(
        tensor=name,
        dtype=dtype_name(actual),
        shape=tuple(actual.shape),
        passed=message is None,
        errors=difference.errors,
        limits=limits,
        baseline=eager,
        max_abs_error=difference.max_abs_error,
        nonfinite_count=difference.nonfinite_count,
        message=message,
        **explanation,
    )


def _explain(
    expected: torch.Tensor,
    actual: torch.Tensor,
    limits: Errors,
    least_rms: float,
) -> dict[str, Any]:
    """Say where the wrong elements are and what they have in common."""
    # if only the RMS is too large, elements beyond half of its limit count as wrong
    for threshold in (limits.elementwise, limits.rmse_ratio / 2, 0.0):
        mask, worst = wrong_elements(
            expected=expected,
            actual=actual,
            limit=threshold,
            least_rms=least_rms,
        )
        if worst:
            break
    flat_expected = expected.reshape(-1)
    flat_actual = actual.detach().reshape(-1)
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


def _limits(tolerance: Tolerance, baseline: Errors | None, least: Errors | None) -> Errors:
    """The spec's tolerance, tightened by what eager torch reaches in this dtype."""
    elementwise = tolerance.elementwise
    rmse_ratio = tolerance.rmse_ratio
    # eager torch shows how accurate this dtype can be
    if baseline is not None:
        elementwise = min(
            elementwise,
            BASELINE_FACTOR * baseline.elementwise + tolerance.elementwise_floor,
        )
        rmse_ratio = min(
            rmse_ratio,
            BASELINE_FACTOR * baseline.rmse_ratio + tolerance.rmse_floor,
        )
    # but never less than what the values of this case allow
    if least is not None:
        elementwise = max(elementwise, least.elementwise)
        rmse_ratio = max(rmse_ratio, least.rmse_ratio)
    return Errors(elementwise=elementwise, rmse_ratio=rmse_ratio)


def _limit_text(limit: float, cap: float, baseline: float | None) -> str:
    """Say where a limit comes from: the cap, or a multiple of torch's error."""
    # Results of few elements may have a limit above the cap, which torch's error does not explain.
    if baseline is None or limit > cap:
        return f"limit {limit:.1e}"
    if limit == cap:
        return f"limit {limit:.1e}, the cap; torch has {baseline:.1e}"
    floor = limit - BASELINE_FACTOR * baseline
    return f"limit {limit:.1e} = {BASELINE_FACTOR:g} x torch's {baseline:.1e} + {floor:.0e}"
