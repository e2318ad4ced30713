"""Whether a right kernel must pass at values that a spec does not draw."""

from collections.abc import Callable, Mapping

import torch

from roofwatch.collector.accuracy.evaluation import PreparedCase, evaluate
from roofwatch.model.check_report import TensorReport

Compare = Callable[[PreparedCase, Mapping[str, torch.Tensor]], tuple[TensorReport, ...]]

_MARGIN = 3.0
"""Right kernels may be less accurate than the reference by this factor."""
_MARGIN_OF_FEW, _FEW = 12.0, 16
"""The same for results of few elements: the reference's error may be small by luck."""


def why_unfair(
    prepared: PreparedCase, dtypes: Mapping[str, torch.dtype], compare: Compare
) -> str | None:
    """Evaluate the reference in single precision, and say where its error is too close to the
    limit.

    Args:
        prepared: With the values in question.
        dtypes: Of the results of a right implementation, to which those of the reference are
            rounded.
        compare: Compares results with the reference in double precision.
    """
    single = {
        name: value.detach().float().requires_grad_(value.requires_grad)
        if _is_low_precision(value)
        else value
        for name, value in prepared.inputs.items()
    }
    outputs = evaluate(
        launch=prepared.spec.reference,
        spec=prepared.spec,
        case=prepared.case,
        inputs=single,
        who="the reference",
        lay_out_upstream=prepared.lay_out_upstream,
    )
    rounded = {name: outputs[name].detach().to(dtype) for name, dtype in dtypes.items()}
    for report in compare(prepared, rounded):
        errors = report.errors
        limits = report.limits
        margin = _MARGIN
        if rounded[report.tensor].numel() < _FEW:
            margin = _MARGIN_OF_FEW
        is_close = (
            margin * errors.elementwise > limits.elementwise
            or margin * errors.rmse_ratio > limits.rmse_ratio
        )
        if report.nonfinite_count or is_close:
            return f"single precision is not accurate enough for {report.tensor}"
    return None


def _is_low_precision(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize < 4
