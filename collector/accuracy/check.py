"""The full check of one case: as declared and with other memory layouts, with an explanation of each failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch

from roofwatch.collector.accuracy.accuracy import (
    Baselines,
    Judged,
    dtype_name,
    judge,
    require_same_bits,
    run_once,
    worst_first,
)
from roofwatch.collector.accuracy.check_report import Arrangement, CheckReport, Layout, TensorReport, WrongElement
from roofwatch.collector.accuracy.deviation import index_of, wrong_elements
from roofwatch.collector.accuracy.evaluation import IncorrectResultError, PreparedCase, differentiated_names, prepare
from roofwatch.collector.accuracy.mismatch import describe_values, describe_where
from roofwatch.collector.record.machine import Outcome
from roofwatch.spec import Case, Implementation, KernelSpec, Language

UPSTREAM = "upstream"
"""Stands for the gradients that are handed to the backward pass."""


def layouts_of(prepared: PreparedCase) -> tuple[Layout, ...]:
    """What there is to try: every input of two dims or more, and the upstream gradients, in every arrangement that
    changes their strides.
    """
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
    """The case with one of its tensors laid out anew."""
    if layout.tensor == UPSTREAM:
        return replace(prepared, lay_out_upstream=lambda tensor: rearranged(tensor, layout.arrangement))
    tensor = prepared.inputs[layout.tensor]
    moved = rearranged(tensor.detach(), layout.arrangement).requires_grad_(tensor.requires_grad)
    return replace(prepared, inputs={**prepared.inputs, layout.tensor: moved})


def rearranged(tensor: torch.Tensor, arrangement: Arrangement) -> torch.Tensor:
    """A copy of a tensor in another arrangement; one of fewer than two dims as it is."""
    if tensor.ndim < 2:
        return tensor
    *leading, n_rows, n_cols = tensor.shape
    if arrangement is Arrangement.TRANSPOSED:
        return tensor.new_empty(*leading, n_cols, n_rows).mT.copy_(tensor)
    # what lies between the rows shows in a result that uses it. No NaN: to read it and multiply it by zero, as torch's
    # bfloat16 product does on a CPU, is fine
    wider = tensor.new_full((*leading, n_rows, n_cols + 1), _largest(tensor.dtype))
    return wider.narrow(-1, 1, n_cols).copy_(tensor)


def _largest(dtype: torch.dtype) -> float:
    if dtype == torch.bool:
        return True
    return torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max


_REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError)
_MOST_REFUSAL_CHARACTERS = 300


class Checker:
    """Checks cases one after another. Keeps what the last one was made of, for the next implementation and layout."""

    def __init__(self) -> None:
        self._baselines = Baselines()
        self._last: PreparedCase | None = None

    def layouts(self, spec: KernelSpec, case: Case, device: str) -> tuple[Layout, ...]:
        """The layouts that a case can be checked in beside its own."""
        return layouts_of(self._prepared(spec, case, device))

    def check(
        self,
        spec: KernelSpec,
        case: Case,
        implementation: Implementation,
        *,
        launch: Callable[..., Any],
        device: str,
        executor: Literal["device", "interpreter"],
        layout: Layout | None = None,
    ) -> CheckReport:
        """Check one case, in the interpreter too exactly the one that is given.

        Raises:
            Exception: whatever the implementation, the reference or the input maker raises, unless it refuses a layout.
        """
        prepared = self._prepared(spec, case, device)
        baseline = self._baselines.of(prepared, implementation)
        if layout is not None:
            prepared = in_layout(prepared, layout)
        outcome, message = Outcome.OK, None
        tensors: tuple[TensorReport, ...] = ()
        try:
            actual = run_once(prepared, implementation, launch)
            judged = judge(prepared, actual, baseline)
            tensors = tuple(_report(each, prepared.expected[each.tensor], actual[each.tensor]) for each in judged)
            message = next((each.message for each in worst_first(judged) if each.message), None)
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

    def _prepared(self, spec: KernelSpec, case: Case, device: str) -> PreparedCase:
        if self._last is None or (self._last.case.id, self._last.device) != (case.id, device):
            self._last = None  # frees its memory before the next is made
            self._last = prepare(spec, case, device)
        return self._last


def _is_refusal(error: Exception, implementation: Implementation) -> bool:
    """Whether an implementation said no, rather than failed. Torch says no to a layout with a RuntimeError."""
    if isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
        return False
    return isinstance(error, _REFUSALS) or (implementation.language is Language.TORCH and type(error) is RuntimeError)


def _refused(error: Exception) -> tuple[Outcome, str]:
    if not str(error).strip():
        return Outcome.INCORRECT, f"refuses with {type(error).__name__} and no message; say what to call instead"
    return Outcome.UNSUPPORTED, f"refuses: {str(error)[:_MOST_REFUSAL_CHARACTERS]}"


def _report(judged: Judged, expected: torch.Tensor, actual: torch.Tensor) -> TensorReport:
    errors, limits, baseline = judged.deviation.errors, judged.limits, judged.baseline
    return TensorReport(
        tensor=judged.tensor,
        dtype=dtype_name(actual),
        shape=tuple(actual.shape),
        passed=judged.message is None,
        rmse_ratio=errors.rmse_ratio,
        rmse_limit=limits.rmse_ratio,
        baseline_rmse_ratio=None if baseline is None else baseline.rmse_ratio,
        elementwise=errors.elementwise,
        elementwise_limit=limits.elementwise,
        baseline_elementwise=None if baseline is None else baseline.elementwise,
        max_abs_error=judged.deviation.max_abs_error,
        unlike_count=judged.deviation.unlike_count,
        message=judged.message,
        **({} if judged.message is None else _explain(judged, expected, actual)),
    )


def _explain(judged: Judged, expected: torch.Tensor, actual: torch.Tensor) -> Mapping[str, Any]:
    """Which elements of a failed tensor are wrong, and what they are."""
    # where no element is beyond the limit of one and the whole is, some are beyond half of the whole's
    limits = (judged.limits.elementwise, judged.limits.rmse_ratio / 2, 0.0)
    found = (wrong_elements(expected, actual, limit) for limit in limits)
    wrong = next(each for each in found if each.worst)
    flat_expected, flat_actual = expected.reshape(-1), actual.detach().reshape(-1)
    return {
        "wrong_count": int(wrong.mask.sum()),
        "where": describe_where(wrong.mask),
        "values": describe_values(expected, actual, wrong.mask),
        "worst": tuple(
            WrongElement(
                index=index_of(position, expected.shape),
                expected=float(flat_expected[position]),
                got=float(flat_actual[position]),
            )
            for position in wrong.worst
        ),
    }
