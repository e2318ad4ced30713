"""Run a case in Triton's interpreter or on the device and evaluate its outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton.language as tl
from triton.runtime import interpreter

from roofwatch.collector.accuracy.deviation import has_same_bytes
from roofwatch.spec import Case, Draws, InputMaker, KernelSpec, SpecError

_TORCH_DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
}
_BIT_PATTERNS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}

_convert_in_triton = interpreter._convert_float


_patch_in_triton = interpreter._patch_builtin
_LANGUAGE = (tl, tl.core, tl.tensor, tl.math, tl.core.tensor_descriptor_base)
_to_interpret: dict[Any, list[str]] = {}


def round_as_a_gpu_does() -> None:
    """Let torch do the conversions that the interpreter does, from now on in this process, before it runs anything."""
    interpreter._convert_float = _convert
    for part in _LANGUAGE if not _to_interpret else ():
        _to_interpret[part] = [name for name, member in inspect.getmembers(part) if tl.core.is_builtin(member)]
    interpreter._patch_builtin = _patch_known


def _patch_known(part: Any, *how: Any) -> None:
    """Have the members of a part of the language interpreted that are not yet."""
    if part not in _to_interpret:
        _patch_in_triton(part, *how)
        return
    for name in _to_interpret[part]:
        member = getattr(part, name)
        if tl.core.is_builtin(member):
            interpreter._patch_attr(part, name, member, *how)


def _convert(data: Any, source: Any, target: Any, rounding_mode: Any) -> Any:
    """The bit patterns of `data`, an array of Triton's dtype `source`, in `target`: nearest, ties to even; to float8
    without overflow, as the conversion of NVIDIA's GPUs (PTX ISA, cvt.rn.satfinite) does.
    """
    given, wanted = _TORCH_DTYPES.get(source.name), _TORCH_DTYPES.get(target.name)
    if given is None or wanted is None or rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ:
        return _convert_in_triton(data, source, target, rounding_mode)
    values = torch.from_numpy(data.reshape(-1).copy()).view(given)
    if wanted.itemsize == 1:
        largest = torch.finfo(wanted).max
        values = values.to(torch.float32).clamp(-largest, largest)
    return values.to(wanted).view(_BIT_PATTERNS[wanted.itemsize]).numpy().reshape(data.shape)


class IncorrectResultError(Exception):
    """A result that cannot be compared with the reference at all; the message says why."""


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


_COMPARABLE = (int, float, bool, str, type(None))


@dataclass(frozen=True)
class PreparedCase:
    """A case on a device, with what the reference makes of it."""

    spec: KernelSpec
    case: Case
    device: str
    inputs: Mapping[str, Any]
    originals: Mapping[str, torch.Tensor]
    """Copies of the input tensors."""
    expected: Mapping[str, torch.Tensor]
    """The reference's outputs and gradients, in float64."""
    lay_out_upstream: Callable[[torch.Tensor], torch.Tensor] = _as_it_is
    """How the gradients that are handed to the backward pass lie in memory."""


def prepare(spec: KernelSpec, case: Case, device: str, draws: Draws | None = None) -> PreparedCase:
    """Make a case's inputs and evaluate the reference in float64 on the same numbers.

    Raises:
        Exception: whatever the input maker or the reference raises.
    """
    inputs = make_inputs(spec, case, device, draws=draws)
    originals = {name: value.detach().clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    wide = {name: _widen(value) for name, value in inputs.items()}
    expected = evaluate(spec.reference, spec, case, wide, who="the reference")
    return PreparedCase(spec, case, device, inputs, originals, {name: each.detach() for name, each in expected.items()})


class References:
    """Of a process: what the reference made of the case that was checked last, as a case's implementations are checked
    one after the other.

    Args:
        draws: Of the same process.
    """

    def __init__(self, draws: Draws | None = None) -> None:
        self._draws = draws
        self._last: PreparedCase | None = None

    def prepare(self, spec: KernelSpec, case: Case, device: str) -> PreparedCase:
        """As `prepare`, without evaluating the reference again on inputs that are the same to the bit.

        Raises:
            Exception: whatever the input maker or the reference raises.
        """
        if self._last is not None and (self._last.spec is not spec or self._last.case != case):
            self.forget()  # the device may not have room for two cases
        if self._last is not None and self._last.device == device:
            again = replace(self._last, inputs=make_inputs(spec, case, device, draws=self._draws))
            if _are_same(self._last, again):
                return again
        prepared = prepare(spec, case, device, self._draws)
        plain = {name: value for name, value in prepared.inputs.items() if not isinstance(value, torch.Tensor)}
        self._last = replace(prepared, inputs=plain)
        return prepared

    def forget(self) -> None:
        """Let go of the memory that it takes."""
        self._last = None


def _are_same(last: PreparedCase, again: PreparedCase) -> bool:
    """Whether the inputs are those that the reference was evaluated on."""
    tensors = {name: value for name, value in again.inputs.items() if isinstance(value, torch.Tensor)}
    plain = {name: value for name, value in again.inputs.items() if name not in tensors}
    return (
        tensors.keys() == last.originals.keys()
        and plain.keys() == last.inputs.keys()
        and all(type(value) in _COMPARABLE and value == last.inputs[name] for name, value in plain.items())
        and all(_is_same(original, tensors[name]) for name, original in last.originals.items())
    )


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and has_same_bytes(one, other)


def make_inputs(
    spec: KernelSpec, case: Case, device: str, *, only_integers: bool = False, draws: Draws | None = None
) -> dict[str, Any]:
    """The case's seeded inputs by name; those to differentiate require a gradient in the `bwd` direction. With
    `only_integers` the floating-point ones are allocated and not filled.

    Raises:
        SpecError: `inputs` gives no dict, or `gradients` names something that cannot be differentiated.
    """
    inputs = spec.inputs(case, InputMaker(case, device, only_integers=only_integers, draws=draws))
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


def evaluate(
    launch: Callable[..., Any],
    spec: KernelSpec,
    case: Case,
    inputs: Mapping[str, Any],
    *,
    who: str,
    lay_out_upstream: Callable[[torch.Tensor], torch.Tensor] = _as_it_is,
) -> dict[str, torch.Tensor]:
    """Call once; the outputs, and in the `bwd` direction every gradient under random upstream gradients. A forward pass
    is evaluated as it is timed, without a graph: torch.compile would make another form for each.

    Args:
        launch: An implementation or the reference.
        spec: The kernel.
        case: The case that the inputs belong to.
        inputs: By name.
        who: Named where a gradient is missing.
        lay_out_upstream: Puts each upstream gradient into memory as it shall lie there.

    Raises:
        IncorrectResultError: what came back are no tensors, or autograd cannot differentiate them.
        Exception: whatever the call raises.
    """
    with nullcontext() if case.is_backward else torch.no_grad():
        outputs = outputs_by_name(launch(**inputs))
    names = differentiated_names(spec, case, inputs)
    if not names:
        return outputs
    gradients = torch.autograd.grad(
        differentiable(outputs),
        [inputs[name] for name in names],
        [lay_out_upstream(upstream) for upstream in upstream_gradients(outputs, case)],
        allow_unused=True,
    )
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is None:
            raise IncorrectResultError(f"{who} gives no gradient for {name}; leave it out of gradients=")
        outputs[f"grad_{name}"] = gradient
    return outputs


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
    """Seeded random gradients for the differentiable outputs. They are rounded to the case's dtype first, so that the
    reference in float64 is given the same numbers.
    """
    generator = torch.Generator(device="cpu").manual_seed(case.seed + 1)
    drawn_in = getattr(torch, case.dtype)
    if not drawn_in.is_floating_point or drawn_in.itemsize == 1:
        drawn_in = torch.float32
    return [
        torch.randn(output.shape, generator=generator).to(drawn_in).to(device=output.device, dtype=output.dtype)
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
