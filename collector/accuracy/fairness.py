"""Whether a right kernel must pass at values that a spec does not draw, and how closely."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from roofwatch.collector.accuracy.evaluation import PreparedCase, evaluate
from roofwatch.model.check_report import Errors, TensorReport

Compare = Callable[[PreparedCase, Mapping[str, torch.Tensor]], tuple[TensorReport, ...]]

_MARGIN = 3.0
"""Right kernels may be less accurate than the reference by this factor."""
_FEW = 16
_MARGIN_OF_FEW = 12.0
"""The same for results of few elements, as their least limit: the reference's error may be small
by luck.
"""


class UnfairError(Exception):
    """A right kernel may fail at these values."""


def limits_of_few(
    prepared: PreparedCase,
    dtypes: Mapping[str, torch.dtype],
    compare: Compare,
) -> dict[str, Errors]:
    """Evaluate the reference in single precision, and derive the least limits of results of few
    elements from its error.

    Args:
        prepared: With the values in question.
        dtypes: Of the results of a right implementation, to which those of the reference are
            rounded.
        compare: Compares results with the reference in double precision.

    Raises:
        UnfairError: the error is too close to the limit.
    """
    single: dict[str, Any] = {}
    for name, value in prepared.inputs.items():
        single[name] = value
        if _is_low_precision(value):
            widened = value.detach().float()
            single[name] = widened.requires_grad_(value.requires_grad)
        elif name in prepared.spec.mutates:
            # the reference changes it, and the next comparison needs it unchanged
            single[name] = value.detach().clone()
    outputs = evaluate(
        launch=prepared.spec.reference,
        spec=prepared.spec,
        case=prepared.case,
        inputs=single,
        who="the reference",
        upstream=prepared.upstream,
    )
    rounded = {name: outputs[name].detach().to(dtype) for name, dtype in dtypes.items()}
    least_limits: dict[str, Errors] = {}
    for report in compare(prepared, rounded):
        errors = report.errors
        limits = report.limits
        is_few = rounded[report.tensor].numel() < _FEW
        # A loss is one number: leaving it out would hide a wrong one, so its limit gives way.
        margin = _MARGIN
        if is_few:
            margin = 1.0
        is_close = (
            margin * errors.elementwise > limits.elementwise
            or margin * errors.rmse_ratio > limits.rmse_ratio
        )
        if report.nonfinite_count or is_close:
            raise UnfairError(f"single precision is not accurate enough for {report.tensor}")
        if is_few:
            least_limits[report.tensor] = Errors(
                elementwise=_MARGIN_OF_FEW * errors.elementwise,
                rmse_ratio=_MARGIN_OF_FEW * errors.rmse_ratio,
            )
    return least_limits


def _is_low_precision(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize < 4
