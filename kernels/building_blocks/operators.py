"""Register launchers of kernels as operators of torch, with their gradients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from roofwatch.kernels.building_blocks.operands import refuse_gradients

Parameters = ParamSpec("Parameters")
Results = TypeVar("Results", bound=Tensor | tuple[Tensor, ...])
Launch = Callable[..., None]


@dataclass(frozen=True)
class Operator:
    """An operator of torch, and the names of its inputs and results."""

    call: Any  # torch.library.CustomOpDef
    inputs: tuple[str, ...]
    results: tuple[str, ...]


def operator(
    name: str,
    allocate: Callable[Parameters, Results],
    *,
    backward: Operator | None = None,
    same_gradient: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Launch], Callable[Parameters, Results]]:
    """Register a launcher as `roofwatch::<name>`.

    If the first result is empty, nothing is launched, since CUDA rejects an empty grid, and other
    results are zero.

    Args:
        name: Of the operator; messages name it as the kernel.
        allocate: Returns uninitialised results. Has the parameters of the operator.
        backward: Computes the gradients. Without it, inputs that require a gradient are rejected.
        same_gradient: An input, and another input or a result that has the same gradient.

    Returns:
        Decorator of a launcher, whose parameters are the inputs and the results to fill.
    """

    def register(launch: Launch) -> Callable[Parameters, Results]:
        forward = _register(name, allocate, launch)
        call: Callable[Parameters, Results] = forward.call
        if backward is not None:
            _set_gradient(forward, backward, same_gradient)
            return call

        def forward_only(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Results:
            named = zip(forward.inputs, args, strict=True)
            refuse_gradients(
                name, **{name: value for name, value in named if isinstance(value, Tensor)}
            )
            return call(*args, **kwargs)

        return forward_only

    return register


def backward_operator(name: str, allocate: Callable[..., Any]) -> Callable[[Launch], Operator]:
    """Register a launcher as `roofwatch::<name>_backward`.

    The names of its parameters say what they are: `x` is the forward input or result `x`, which is
    saved; `grad_out` is the gradient of the result `out`; the results `grad_x` and `grad_weight`
    are those of the inputs `x` and `weight`.
    """
    return lambda launch: _register(f"{name}_backward", allocate, launch)


def _register(name: str, allocate: Callable[..., Any], launch: Launch) -> Operator:
    def run(*args: Any) -> Any:
        results = allocate(*args)
        first, *further_results = _as_tuple(results)
        if first.numel():
            with torch.cuda.device_of(args[0]):
                launch(*args, first, *further_results)
        else:
            for further_result in further_results:
                further_result.zero_()
        return results

    schema = torch.library.infer_schema(allocate, mutates_args=())
    registered = torch.library.custom_op(f"roofwatch::{name}", run, mutates_args=(), schema=schema)
    registered.register_fake(allocate)
    inputs = tuple(signature(allocate).parameters)
    return Operator(registered, inputs, tuple(signature(launch).parameters)[len(inputs) :])


def _set_gradient(forward: Operator, backward: Operator, same_gradient: Mapping[str, str]) -> None:
    saved = [name for name in backward.inputs if name in {*forward.inputs, *forward.results}]

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = dict(zip(forward.results, _as_tuple(output), strict=True))
        ctx.mark_non_differentiable(
            *(value for name, value in results.items() if f"grad_{name}" not in backward.inputs)
        )
        values = {**dict(zip(forward.inputs, inputs, strict=True)), **results}
        ctx.tensors = [name for name in saved if isinstance(values[name], Tensor)]
        ctx.save_for_backward(*(values[name] for name in ctx.tensors))
        ctx.others = {name: values[name] for name in saved if name not in ctx.tensors}

    def differentiate(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_results = {
            f"grad_{name}": gradient
            for name, gradient in zip(forward.results, gradients, strict=True)
        }
        values = {
            **ctx.others,
            **dict(zip(ctx.tensors, ctx.saved_tensors, strict=True)),
            **of_results,
        }
        input_gradients = _as_tuple(backward.call(*(values[name] for name in backward.inputs)))
        computed = {**of_results, **dict(zip(backward.results, input_gradients, strict=True))}
        return tuple(
            computed.get(f"grad_{same_gradient.get(name, name)}") if is_needed else None
            for name, is_needed in zip(forward.inputs, ctx.needs_input_grad, strict=True)
        )

    forward.call.register_autograd(differentiate, setup_context=save)


def _as_tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)
