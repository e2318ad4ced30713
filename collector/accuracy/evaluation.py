"""Evaluate the outputs and gradients of a case."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from roofwatch.model.check_report import REFERENCE_FAILED
from roofwatch.spec import Case, InputMaker, KernelSpec, Role, SpecError
from roofwatch.spec.seeded_numbers import normal_numbers


class IncorrectResultError(Exception):
    """A result that cannot be compared with the reference."""


def _identity(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@dataclass(frozen=True)
class UpstreamGradients:
    """Seeded random gradients for the differentiable outputs of a case.

    Each is drawn once, in the case's dtype: the reference gets the same rounded numbers.
    """

    case: Case
    lay_out: Callable[[torch.Tensor], torch.Tensor] = _identity
    """Changes their memory layout."""
    _drawn: dict[tuple[int, torch.Size], torch.Tensor] = field(default_factory=dict)

    def of(self, outputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Copies in the dtypes of the outputs, so that nothing can change what was drawn.

        Raises:
            IncorrectResultError: an output cannot be differentiated.
        """
        gradients: list[torch.Tensor] = []
        for position, output in enumerate(differentiable(outputs)):
            # an output of a wrong shape is compared, and reported, later
            key = (position, output.shape)
            if key not in self._drawn:
                self._drawn[key] = self._draw(position, output)
            gradient = self._drawn[key].to(output.dtype, copy=True)
            gradients.append(self.lay_out(gradient))
        return gradients

    def _draw(self, position: int, output: torch.Tensor) -> torch.Tensor:
        dtype = getattr(torch, self.case.dtype)
        if not dtype.is_floating_point or dtype.itemsize == 1:
            dtype = torch.float32
        return normal_numbers(
            shape=tuple(output.shape),
            # seeds of inputs count down from the case's
            seed=self.case.seed + 1 + position,
            device=str(output.device),
            dtype=dtype,
        )


@dataclass(frozen=True)
class PreparedCase:
    """A case on a device, with the reference's results."""

    spec: KernelSpec
    case: Case
    device: str
    inputs: Mapping[str, Any]
    originals: Mapping[str, torch.Tensor]
    expected: Mapping[str, torch.Tensor]
    """Outputs and gradients of the reference, in float64."""
    upstream: UpstreamGradients
    least_rms: Mapping[str, float] = field(default_factory=dict)
    """Least RMS that errors are relative to, for results that are zero but for rounding."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Of the inputs that have one."""


def prepare(spec: KernelSpec, case: Case, device: str) -> PreparedCase:
    """Make a case's inputs, and evaluate the reference in float64 on the same numbers."""
    maker = InputMaker(case, device)
    inputs = inputs_of(spec, case, maker)
    prepared = prepare_inputs(
        spec=spec,
        case=case,
        device=device,
        inputs=inputs,
    )
    return replace(prepared, roles=maker.roles_of(inputs))


def prepare_inputs(
    spec: KernelSpec,
    case: Case,
    device: str,
    inputs: Mapping[str, Any],
    upstream: UpstreamGradients | None = None,
) -> PreparedCase:
    """Evaluate the reference in float64 on given inputs, under given upstream gradients or those of
    the case.
    """
    upstream = upstream or UpstreamGradients(case)
    originals = _copies_of(inputs)
    wide = {name: _widen(value) for name, value in inputs.items()}
    try:
        expected = evaluate(
            launch=spec.reference,
            spec=spec,
            case=case,
            inputs=wide,
            who="the reference",
            upstream=upstream,
        )
    except Exception as error:
        # no implementation is at fault
        error.add_note(REFERENCE_FAILED)
        raise
    return PreparedCase(
        spec=spec,
        case=case,
        device=device,
        inputs=inputs,
        originals=originals,
        expected={name: tensor.detach() for name, tensor in expected.items()},
        upstream=upstream,
    )


def prepare_without_reference(spec: KernelSpec, case: Case, device: str) -> PreparedCase:
    """Make a case's inputs alone, for a spec whose reference is not written yet."""
    inputs = inputs_of(spec, case, InputMaker(case, device))
    return PreparedCase(
        spec=spec,
        case=case,
        device=device,
        inputs=inputs,
        originals=_copies_of(inputs),
        expected={},
        upstream=UpstreamGradients(case),
    )


def _copies_of(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {
        name: value.detach().clone()
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor)
    }


def make_inputs(
    spec: KernelSpec,
    case: Case,
    device: str,
    *,
    only_integers: bool = False,
) -> dict[str, Any]:
    """Make the case's seeded inputs by name; in the `bwd` direction with `requires_grad`.

    With `only_integers`, floating-point tensors are allocated and not filled.

    Raises:
        SpecError: `inputs` does not return a dict, or `gradients` names something that cannot be
        differentiated.
    """
    maker = InputMaker(case, device, only_integers=only_integers)
    return inputs_of(spec, case, maker)


def inputs_of(spec: KernelSpec, case: Case, maker: InputMaker) -> dict[str, Any]:
    """Make the case's inputs with a maker.

    Raises:
        SpecError: as `make_inputs`.
    """
    inputs = spec.inputs(case, maker)
    if not isinstance(inputs, dict):
        raise SpecError(
            f"{spec.name}: inputs(case, make) returned {type(inputs).__name__}; return a dict of "
            f"arguments by name"
        )
    for name in differentiated_names(spec, case, inputs):
        inputs[name].requires_grad_(True)
    return inputs


def differentiated_names(
    spec: KernelSpec,
    case: Case,
    inputs: Mapping[str, Any],
) -> tuple[str, ...]:
    """Names of the inputs to differentiate; none in the `fwd` direction."""
    if not case.is_backward:
        return ()
    floating = tuple(
        name
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    )
    # without a list, all that can be differentiated is
    chosen = floating
    if spec.gradients is not None:
        chosen = spec.gradients
    unknown = set(chosen) - set(floating)
    if unknown or not chosen:
        raise SpecError(
            f"{spec.name}: cannot differentiate {', '.join(sorted(unknown)) or 'nothing'}; "
            f"the floating-point inputs are {', '.join(floating) or 'none'}"
        )
    return tuple(chosen)


def evaluate(
    launch: Callable[..., Any],
    spec: KernelSpec,
    case: Case,
    inputs: Mapping[str, Any],
    *,
    who: str,
    upstream: UpstreamGradients,
) -> dict[str, torch.Tensor]:
    """Call once, and return the outputs, in the `bwd` direction with every gradient under random
    upstream gradients.

    A forward pass runs without a graph, as it is timed; torch.compile would compile it again
    otherwise. An error about a missing gradient names `who`.

    Raises:
        IncorrectResultError: the result is not made of tensors, or cannot be differentiated.
    """
    with nullcontext() if case.is_backward else torch.no_grad():
        outputs = outputs_by_name(launch(**inputs))
    names = differentiated_names(spec, case, inputs)
    if not names:
        return outputs
    gradients = torch.autograd.grad(
        differentiable(outputs),
        [inputs[name] for name in names],
        upstream.of(outputs),
        allow_unused=True,
    )
    for name, gradient in zip(names, gradients, strict=True):
        # autograd gives None for an input that the outputs do not depend on
        if gradient is None:
            raise IncorrectResultError(
                f"{who} has no gradient for {name}; leave it out of gradients="
            )
        outputs[f"grad_{name}"] = gradient
    return outputs


def outputs_by_name(result: Any) -> dict[str, torch.Tensor]:
    """Name one output `out`, and several `out0`, `out1`, ….

    Raises:
        IncorrectResultError: the result is not a tensor and not a tuple or list of tensors.
    """
    if isinstance(result, torch.Tensor):
        return {"out": result}
    if (
        isinstance(result, (tuple, list))
        and result
        and all(isinstance(item, torch.Tensor) for item in result)
    ):
        return {f"out{position}": item for position, item in enumerate(result)}
    raise IncorrectResultError(
        f"returned {type(result).__name__}; return a tensor or a tuple of tensors"
    )


def differentiable(outputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """The floating-point outputs.

    Raises:
        IncorrectResultError: one of them has no autograd graph.
    """
    floating = {name: output for name, output in outputs.items() if output.is_floating_point()}
    for name, output in floating.items():
        if not output.requires_grad:
            raise IncorrectResultError(
                f"{name} cannot be differentiated; use torch.autograd.Function, or give "
                f"directions=('fwd',)"
            )
    return list(floating.values())


def _widen(value: Any) -> Any:
    """A float64 copy of a floating-point tensor; integers keep their dtype."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_floating_point():
        wide = value.detach().to(torch.float64)
    else:
        wide = value.detach().clone()
    return wide.requires_grad_(value.requires_grad)
