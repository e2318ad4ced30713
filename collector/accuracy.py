"""Check an implementation against the float64 reference, forward and every gradient, before it is timed.

An element passes within `Tolerance.elementwise`, a tensor also within `Tolerance.rmse_ratio` (roofwatch/spec.py has
the rule and its source). NaN, Inf, a wrong shape, a changed input and a result that autograd cannot differentiate
are `incorrect`, each with its own message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from collector.record import Accuracy, Outcome, TensorError
from roofwatch.spec import Case, Implementation, InputMaker, KernelSpec, SpecError, Tolerance

_TINY = 1e-30


class IncorrectResultError(Exception):
    """A result that cannot be compared with the reference at all; the message says why."""


def check_accuracy(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    *,
    launch: Callable[..., Any] | None = None,
    device: str = "cpu",
    executor: Literal["device", "interpreter"] = "device",
) -> Accuracy:
    """Run one case of one implementation and compare all that it returns, and in the `bwd` direction every gradient,
    with the reference in float64 on the same numbers.

    Args:
        spec: The kernel.
        implementation: What to check.
        case: In the interpreter its small stand-in is checked (`spec.interpreted_case`).
        launch: What to call in place of `implementation.launch`, for example its compiled form.
        device: Where the implementation runs; the reference runs there too.
        executor: Stored with the result.

    Raises:
        Exception: whatever the implementation, the reference or the input maker raises.
    """
    checked_case = spec.interpreted_case(case) if executor == "interpreter" else case
    inputs = make_inputs(spec, checked_case, device)
    expected = _evaluate(
        spec.reference,
        spec,
        checked_case,
        {name: _widen(value) for name, value in inputs.items()},
        "the reference",
    )
    snapshot = {name: value.detach().clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    tensors: tuple[TensorError, ...] = ()
    message = None
    try:
        actual = _evaluate(launch or implementation.launch, spec, checked_case, inputs, implementation.name)
        tensors = _compare_all(expected, actual, spec.tolerance(checked_case))
        _check_unchanged(snapshot, inputs)
        failed = [tensor for tensor in tensors if not tensor.passed]
        if failed:
            worst = max(failed, key=lambda tensor: tensor.rmse_ratio)
            limit = spec.tolerance(checked_case)
            message = (
                f"{worst.tensor}: error {worst.rmse_ratio:.2e} of the reference's RMS (limit {limit.rmse_ratio:.0e}), "
                f"largest error {worst.max_abs_error:.2e} (limit {limit.elementwise:.0e} of an element and of the RMS)"
            )
    except IncorrectResultError as error:
        message = str(error)
    return Accuracy(
        case_id=case.id,
        implementation=implementation.name,
        executor=executor,
        outcome=Outcome.OK if message is None else Outcome.INCORRECT,
        message=message,
        tensors=tensors,
    )


def make_inputs(spec: KernelSpec, case: Case, device: str, *, only_integers: bool = False) -> dict[str, Any]:
    """The case's seeded inputs by name; those to differentiate require a gradient in the `bwd` direction. With
    `only_integers` the floating-point ones are allocated and not filled.

    Raises:
        SpecError: `inputs` gives no dict, or `gradients` names something that cannot be differentiated.
    """
    inputs = spec.inputs(case, InputMaker(case, device, only_integers=only_integers))
    if not isinstance(inputs, dict):
        raise SpecError(
            f"{spec.name}: inputs(case, make) gave {type(inputs).__name__}; return a dict of arguments by name"
        )
    for name in differentiated_names(spec, case, inputs):
        inputs[name].requires_grad_(True)
    return inputs


def differentiated_names(spec: KernelSpec, case: Case, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the inputs whose gradients the case asks for; none in the `fwd` direction."""
    if not case.is_backward:
        return ()
    floating = tuple(
        name for name, value in inputs.items() if isinstance(value, torch.Tensor) and value.is_floating_point()
    )
    chosen = floating if spec.gradients is None else spec.gradients
    unknown = set(chosen) - set(floating)
    if unknown or not chosen:
        raise SpecError(
            f"{spec.name}: gradients of {', '.join(sorted(unknown)) or 'nothing'} asked for; "
            f"the floating-point inputs are {', '.join(floating) or 'none'}"
        )
    return tuple(chosen)


def outputs_by_name(result: Any) -> dict[str, torch.Tensor]:
    """`out` for one tensor; `out0`, `out1`, … for several.

    Raises:
        IncorrectResultError: something else than a tensor or a tuple or list of tensors was returned.
    """
    if isinstance(result, torch.Tensor):
        return {"out": result}
    if isinstance(result, (tuple, list)) and result and all(isinstance(item, torch.Tensor) for item in result):
        return {f"out{position}": item for position, item in enumerate(result)}
    raise IncorrectResultError(f"returned {type(result).__name__}; return a tensor or a tuple of tensors")


def upstream_gradients(outputs: Mapping[str, torch.Tensor], case: Case) -> list[torch.Tensor]:
    """Seeded random gradients for the differentiable outputs, the same numbers for every implementation and dtype."""
    generator = torch.Generator(device="cpu").manual_seed(case.seed + 1)
    return [
        torch.randn(output.shape, generator=generator).to(device=output.device, dtype=output.dtype)
        for output in outputs.values()
        if output.is_floating_point()
    ]


def differentiable(outputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The outputs that gradients flow back from.

    Raises:
        IncorrectResultError: one of them has no graph.
    """
    floating = {name: output for name, output in outputs.items() if output.is_floating_point()}
    for name, output in floating.items():
        if not output.requires_grad:
            raise IncorrectResultError(
                f"{name} cannot be differentiated; use torch.autograd.Function, or give directions=('fwd',)"
            )
    return list(floating.values())


def _widen(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    wide = value.detach().to(torch.float64) if value.is_floating_point() else value.detach().clone()
    return wide.requires_grad_(value.requires_grad)


def _evaluate(
    launch: Callable[..., Any], spec: KernelSpec, case: Case, inputs: Mapping[str, Any], who: str
) -> dict[str, torch.Tensor]:
    outputs = outputs_by_name(launch(**inputs))
    names = differentiated_names(spec, case, inputs)
    if not names:
        return outputs
    gradients = torch.autograd.grad(
        differentiable(outputs),
        [inputs[name] for name in names],
        upstream_gradients(outputs, case),
        allow_unused=True,
    )
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is None:
            raise IncorrectResultError(f"{who} gives no gradient for {name}; leave it out of gradients=")
        outputs[f"grad_{name}"] = gradient
    return outputs


def _check_unchanged(before: Mapping[str, torch.Tensor], after: Mapping[str, Any]) -> None:
    for name, tensor in before.items():
        if not torch.equal(tensor, after[name]):
            raise IncorrectResultError(f"changes its input {name}; work on a copy or return a new tensor")


def _compare_all(
    expected: Mapping[str, torch.Tensor], actual: Mapping[str, torch.Tensor], tolerance: Tolerance
) -> tuple[TensorError, ...]:
    if expected.keys() != actual.keys():
        raise IncorrectResultError(f"returned {', '.join(actual)}; the reference returns {', '.join(expected)}")
    return tuple(_compare(name, reference, actual[name], tolerance) for name, reference in expected.items())


def _compare(name: str, expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> TensorError:
    if actual.shape != expected.shape:
        raise IncorrectResultError(f"{name} has shape {tuple(actual.shape)}; the reference has {tuple(expected.shape)}")
    if actual.is_floating_point() != expected.is_floating_point():
        raise IncorrectResultError(f"{name} has dtype {actual.dtype}; the reference has {expected.dtype}")
    reference = expected.detach().to(torch.float64)
    result = actual.detach().to(device=reference.device, dtype=torch.float64)
    bad = ~torch.isfinite(result) & torch.isfinite(reference)
    if bool(bad.any()):
        where = tuple(int(step) for step in bad.nonzero()[0])
        raise IncorrectResultError(
            f"{name} has {int(bad.sum())} elements of {result.numel()} that are NaN or infinite, the first at {where}"
        )
    if result.numel() == 0:
        return TensorError(tensor=name, max_abs_error=0.0, rmse_ratio=0.0, passed=True)
    # equal infinities subtract to NaN; they are equal
    error = torch.where(result == reference, torch.zeros_like(result), (result - reference).abs())
    rms = (
        float(reference[torch.isfinite(reference)].square().mean().sqrt())
        if bool(torch.isfinite(reference).any())
        else 0.0
    )
    rmse_ratio = float(error.square().mean().sqrt()) / max(rms, _TINY)
    within = error <= tolerance.elementwise * (reference.abs() + rms)
    passed = bool(within.all()) and rmse_ratio <= tolerance.rmse_ratio
    return TensorError(tensor=name, max_abs_error=float(error.max()), rmse_ratio=min(rmse_ratio, 1e30), passed=passed)
