"""Check an implementation against the float64 reference, forward and every gradient, before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from roofwatch.collector.accuracy.deviation import (
    Deviation,
    Errors,
    deviation,
    different_bytes,
    has_same_bytes,
    index_of,
)
from roofwatch.collector.accuracy.evaluation import IncorrectResultError, PreparedCase, References, evaluate
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import Accuracy, TensorError
from roofwatch.spec import BASELINE_FACTOR, Case, Implementation, KernelSpec, Language, Tolerance


@contextmanager
def poisoned_buffers() -> Iterator[None]:
    """Within it every tensor that is allocated and not filled (`torch.empty` and its kin), outputs and workspaces
    alike, starts as NaN, or as the largest number of an integer dtype.

    Source: torch.utils.deterministic.fill_uninitialized_memory, on by default in torch's deterministic mode.
    """
    was_on = torch.are_deterministic_algorithms_enabled()
    was_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    # cuBLAS and others without a deterministic way may stay as they are, so warn only
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=was_warn_only)


BASELINE_NAME = "eager"
"""The torch implementation of this name is what others are held against."""


@dataclass(frozen=True)
class Baseline:
    """What the eager implementation makes of a case in the same precision, on the same inputs and device."""

    missing: str | None = None
    """Why there is none, so that the caps alone decide."""
    errors: Mapping[str, Errors] = field(default_factory=dict)
    """By output and gradient; what is NaN or infinite where the reference is not is left out."""
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)


class Baselines:
    """The baselines of a process: measured once for a case and device, however many implementations are checked."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Baseline] = {}

    def of(self, prepared: PreparedCase, implementation: Implementation) -> Baseline:
        """The baseline to hold an implementation against."""
        eager = prepared.spec.implementations.get(BASELINE_NAME)
        if eager is None or eager.language is not Language.TORCH or eager.is_compiled:
            return Baseline(missing="there is no eager implementation")
        if implementation.name == eager.name:
            return Baseline(missing="it is the eager baseline itself")
        if prepared.case.direction not in eager.directions:
            return Baseline(missing=f"the eager implementation has no {prepared.case.direction}")
        key = (prepared.case.id, prepared.device)
        if key not in self._known:
            self._known[key] = _measure_baseline(prepared, eager)
        return self._known[key]


@dataclass(frozen=True)
class Judged:
    """One output or gradient: what was measured, what is allowed."""

    tensor: str
    deviation: Deviation
    limits: Errors
    baseline: Errors | None
    message: str | None
    """What is wrong; None if it passed."""


def check_accuracy(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    *,
    launch: Callable[..., Any] | None = None,
    device: str = "cpu",
    executor: Literal["device", "interpreter"] = "device",
    baselines: Baselines | None = None,
    references: References | None = None,
) -> Accuracy:
    """Run one case of one implementation and compare all that it returns, and in the `bwd` direction every gradient,
    with the reference in float64 on the same numbers.

    Args:
        spec: The kernel.
        implementation: What to check.
        case: In the interpreter its small stand-in is checked (`spec.interpreted_case`).
        launch: What to call in place of `implementation.launch`, for example its compiled form.
        device: Where the implementation runs; the reference and the baseline run there too.
        executor: Stored with the result.
        baselines: Of earlier checks of the same suite.
        references: The same.

    Raises:
        Exception: whatever the implementation, the reference or the input maker raises.
    """
    checked_case = spec.interpreted_case(case) if executor == "interpreter" else case
    prepared = (references or References()).prepare(spec, checked_case, device)
    baseline = (baselines or Baselines()).of(prepared, implementation)
    judged: tuple[Judged, ...] = ()
    try:
        actual = run_once(prepared, implementation, launch)
        judged = judge(prepared, actual, baseline)
        message = next((each.message for each in worst_first(judged) if each.message), None)
        # Triton's interpreter runs one program after another: a second run would tell nothing
        is_interpreted = implementation.language is Language.TRITON and device == "cpu"
        if message is None and implementation.is_deterministic and not is_interpreted:
            require_same_bits(actual, run_once(prepared, implementation, launch))
    except IncorrectResultError as error:
        message = str(error)
    return Accuracy(
        case_id=case.id,
        implementation=implementation.name,
        executor=executor,
        outcome=Outcome.OK if message is None else Outcome.INCORRECT,
        message=message,
        tensors=tuple(_tensor_error(each) for each in judged if each.deviation.unlike_count == 0),
    )


def run_once(
    prepared: PreparedCase, implementation: Implementation, launch: Callable[..., Any] | None = None
) -> dict[str, torch.Tensor]:
    """Run a case once, into poisoned buffers if the implementation is no torch code.

    Raises:
        IncorrectResultError: an input was changed, which is undone, or what came back cannot be compared.
        Exception: whatever the implementation raises.
    """
    with nullcontext() if implementation.language is Language.TORCH else poisoned_buffers():
        actual = evaluate(
            launch or implementation.launch,
            prepared.spec,
            prepared.case,
            prepared.inputs,
            who=implementation.name,
            lay_out_upstream=prepared.lay_out_upstream,
        )
    if prepared.spec.mutates:
        # what came back is the input that was changed, which is undone now
        actual = {name: output.clone() for name, output in actual.items()}
    changed = []
    for name, original in prepared.originals.items():
        if not has_same_bytes(original, prepared.inputs[name]):
            if name not in prepared.spec.mutates:
                changed.append(name)
            with torch.no_grad():
                prepared.inputs[name].copy_(original)
    if changed:
        raise IncorrectResultError(f"changes its input {', '.join(changed)}; work on a copy or return a new tensor")
    return actual


def judge(prepared: PreparedCase, actual: Mapping[str, torch.Tensor], baseline: Baseline) -> tuple[Judged, ...]:
    """Compare all that a run returned with the reference.

    Raises:
        IncorrectResultError: there are more or fewer tensors, or one has another shape or dtype.
    """
    if prepared.expected.keys() != actual.keys():
        names = ", ".join(prepared.expected)
        raise IncorrectResultError(f"returned {', '.join(actual)}; the reference returns {names}")
    for name, expected in prepared.expected.items():
        _require_form(name, expected, actual[name], baseline.dtypes.get(name))
    return tuple(
        _judge_one(
            name,
            expected,
            actual[name],
            prepared.spec.tolerance(prepared.case, dtype_name(actual[name])),
            baseline,
        )
        for name, expected in prepared.expected.items()
    )


def worst_first(judged: tuple[Judged, ...]) -> list[Judged]:
    return sorted(
        judged, key=lambda each: (each.deviation.unlike_count > 0, each.deviation.errors.rmse_ratio), reverse=True
    )


def require_same_bits(first: Mapping[str, torch.Tensor], again: Mapping[str, torch.Tensor]) -> None:
    """Hold an implementation that is declared deterministic to it.

    Raises:
        IncorrectResultError: a second run gave other bits.
    """
    for name, tensor in first.items():
        if not has_same_bytes(tensor, again[name]):
            count = int(different_bytes(tensor, again[name]).sum())
            raise IncorrectResultError(
                f"is declared deterministic, and a second run gave other bits in {count} of {tensor.numel()} elements "
                f"of {name}"
            )


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _measure_baseline(prepared: PreparedCase, eager: Implementation) -> Baseline:
    try:
        results = run_once(prepared, eager)
    except Exception as error:  # noqa: BLE001  a user's code; without a baseline the caps decide, and it is said
        return Baseline(missing=f"the eager implementation failed: {type(error).__name__}: {error}")
    if {name: each.shape for name, each in results.items()} != {
        name: each.shape for name, each in prepared.expected.items()
    }:
        return Baseline(missing="the eager implementation returns other tensors than the reference")
    deviations = {name: deviation(expected, results[name]) for name, expected in prepared.expected.items()}
    return Baseline(
        errors={name: each.errors for name, each in deviations.items() if each.unlike_count == 0},
        dtypes={name: result.dtype for name, result in results.items()},
    )


def _require_form(name: str, expected: torch.Tensor, actual: torch.Tensor, dtype: torch.dtype | None) -> None:
    if actual.shape != expected.shape:
        raise IncorrectResultError(f"{name} has shape {tuple(actual.shape)}; the reference has {tuple(expected.shape)}")
    if actual.device != expected.device:
        raise IncorrectResultError(f"{name} is on {actual.device}; the inputs are on {expected.device}")
    if dtype is not None and actual.dtype != dtype:
        raise IncorrectResultError(f"{name} has dtype {actual.dtype}; the eager implementation gives {dtype}")
    if actual.is_floating_point() != expected.is_floating_point():
        raise IncorrectResultError(f"{name} has dtype {actual.dtype}; the reference has {expected.dtype}")


def _judge_one(
    name: str, expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance, baseline: Baseline
) -> Judged:
    found = deviation(expected, actual)
    usual = baseline.errors.get(name)
    limits = _limits(tolerance, usual)
    message = None
    if found.first_unlike is not None:
        message = (
            f"{name} has {found.unlike_count} elements of {found.element_count} that are NaN or infinite in it or in "
            f"the reference, and not in both; the first at {index_of(found.first_unlike, expected.shape)}"
        )
    elif found.is_all_zero:
        message = f"{name} is zero everywhere: error 1.00e+00 of the reference's RMS"
    elif found.errors.rmse_ratio > limits.rmse_ratio or found.errors.elementwise > limits.elementwise:
        message = (
            f"{name}: error {found.errors.rmse_ratio:.2e} of the reference's RMS "
            f"({_in_words(limits.rmse_ratio, tolerance.rmse_ratio, usual.rmse_ratio if usual else None)}), "
            f"largest error {found.errors.elementwise:.2e} of an element and the RMS "
            f"({_in_words(limits.elementwise, tolerance.elementwise, usual.elementwise if usual else None)})"
        )
        if baseline.missing:
            message += f"; the caps decide alone, since {baseline.missing}"
    return Judged(name, found, limits, usual, message)


def _limits(tolerance: Tolerance, baseline: Errors | None) -> Errors:
    if baseline is None:
        return Errors(tolerance.elementwise, tolerance.rmse_ratio)
    return Errors(
        elementwise=min(tolerance.elementwise, BASELINE_FACTOR * baseline.elementwise + tolerance.elementwise_floor),
        rmse_ratio=min(tolerance.rmse_ratio, BASELINE_FACTOR * baseline.rmse_ratio + tolerance.rmse_floor),
    )


def _in_words(limit: float, cap: float, baseline: float | None) -> str:
    if baseline is None:
        return f"limit {limit:.1e}"
    if limit == cap:
        return f"limit {limit:.1e}, the cap; eager has {baseline:.1e}"
    floor = limit - BASELINE_FACTOR * baseline
    return f"limit {limit:.1e} = {BASELINE_FACTOR:g} x eager's {baseline:.1e} + {floor:.0e}"


def _tensor_error(judged: Judged) -> TensorError:
    return TensorError(
        tensor=judged.tensor,
        max_abs_error=judged.deviation.max_abs_error,
        rmse_ratio=judged.deviation.errors.rmse_ratio,
        baseline_rmse_ratio=None if judged.baseline is None else judged.baseline.rmse_ratio,
        passed=judged.message is None,
    )
