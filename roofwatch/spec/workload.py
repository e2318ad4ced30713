"""A workload: a whole step of a model, declared and measured like a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from roofwatch.spec.case import Case
from roofwatch.spec.input_maker import InputMaker
from roofwatch.spec.kernel_spec import KernelSpec
from roofwatch.spec.tolerance import Tolerance

if TYPE_CHECKING:
    import torch

WORKLOADS = "workloads"
"""Family of all workloads."""
GRADIENT = "grad_out"
"""Input of a training step: the gradient of its output."""

Inputs = Callable[[Case, InputMaker], dict[str, Any]]
Then = Callable[["torch.Tensor"], None]


def counted_flop_count(forward: Callable[..., Any], inputs: Inputs) -> Callable[[Case], float]:
    """Count the FLOP of a step in matrix products, attention and convolutions, by running the model
    on tensors without data, once for each case.

    A backward pass counts as two forward passes, without what it recomputes.

    Source: Chowdhery et al., PaLM, 2022 (arXiv 2204.02311), appendix B.
    """

    @cache
    def flop_count(case: Case) -> float:
        from torch.utils.flop_counter import FlopCounterMode

        arguments = _without_data(case, inputs)
        # One for the forward pass, two for the gradients of inputs and of weights.
        pass_count = 3 if GRADIENT in arguments else 1
        arguments.pop(GRADIENT, None)
        with FlopCounterMode(display=False) as counter:
            forward(**arguments)
        return float(pass_count * counter.get_total_flops())

    return flop_count


def counted_memory_bytes(step: Callable[..., Any], inputs: Inputs) -> Callable[[Case], float]:
    """Count each input of a step read once and each output written once, by running it on tensors
    without data, once for each case.
    """

    @cache
    def memory_bytes(case: Case) -> float:
        from torch.utils._pytree import tree_leaves

        arguments = _without_data(case, inputs)
        # Modules return tuples and dictionaries, too.
        leaves = tree_leaves([arguments, step(**arguments)])
        return float(sum(leaf.nbytes for leaf in leaves if hasattr(leaf, "nbytes")))

    return memory_bytes


def _without_data(case: Case, inputs: Inputs) -> dict[str, Any]:
    # The meta device has shapes and no data, so that a large model costs nothing here.
    return inputs(case, InputMaker(case, "meta", only_integers=True))


def training_step(forward: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Turn a forward pass into one with a backward pass, without an optimizer.

    Args:
        forward: Calls `then` with its output while the model has its parameters: activation
            checkpointing reads them in the backward pass.

    Returns:
        A step that takes the arguments of the forward pass and the gradient `grad_out` of its
        output. It returns the output, and the gradients of all floating-point tensors among the
        arguments.
    """

    def step(grad_out: torch.Tensor, **arguments: Any) -> tuple[torch.Tensor, ...]:
        import torch

        with torch.enable_grad():
            leaves = dict(arguments)
            for name, value in arguments.items():
                if _is_floating(value):
                    leaves[name] = value.detach().requires_grad_()
            # The FLOP counter fails in autograd.grad.
            out = forward(**leaves, then=lambda out: out.backward(grad_out))
        differentiable = [value for value in leaves.values() if _is_floating(value)]
        return (
            out.detach(),
            *(
                # A parameter that the output does not depend on has no gradient.
                torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
                for leaf in differentiable
            ),
        )

    return step


def compiled_step(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The forward pass through torch.compile, which is loaded at the first call."""

    @cache
    def compiled() -> Callable[..., torch.Tensor]:
        import torch

        form: Callable[..., torch.Tensor] = torch.compile(forward, dynamic=False)
        return form

    def launch(then: Then | None = None, **arguments: Any) -> torch.Tensor:
        out = compiled()(**arguments)
        if then is not None:  # compiled graphs hold the parameters
            then(out)
        return out

    return launch


def workload(
    name: str,
    *,
    module: Callable[[Case], torch.nn.Module],
    inputs: Inputs,
    cases: Sequence[Case],
    token_count: Callable[[Case], float] | None = None,
    training: bool = False,
    variants: Mapping[str, Callable[[Case], torch.nn.Module]] | None = None,
    flop_count: Callable[[Case], float] | None = None,
    memory_bytes: Callable[[Case], float] | None = None,
    mutates: tuple[str, ...] = (),
    interpreted_shape: Mapping[str, int] | None = None,
    tolerances: Mapping[str, Tolerance] | None = None,
) -> KernelSpec:
    """Declare a step of a model: inference, or forward and backward without an optimizer.

    It is measured eagerly and through torch.compile, and checked against the module in float64.

    Args:
        name: Identifier, part of every series' key.
        module: Makes the model of a case, with its usual initialisation; it returns one tensor.
        inputs: Keyword arguments of the model's `forward`, as of `KernelSpec`.
        cases: From `roofwatch.cases(...)`.
        token_count: Tokens of one step, for tokens per second.
        training: Measure forward and backward together.
        variants: The same model with kernels of another language, by language (`triton`, `cuda`);
            its parameters have the same names.
        flop_count: As of `KernelSpec`. Default: counted by torch, for which the model must run on
            tensors without data.
            Counting takes seconds, because torch imports its compiler for tensors without data.
        memory_bytes: Likewise. Default: the arguments and results.
        mutates: As of `KernelSpec`.
        interpreted_shape: As of `KernelSpec`.
        tolerances: As of `KernelSpec`.
    """
    import torch

    def forward_of(make_module: Callable[[Case], torch.nn.Module]) -> Callable[..., torch.Tensor]:
        @cache
        def skeleton(case: Case) -> torch.nn.Module:
            with torch.device("meta"):
                return make_module(case)

        def forward(case: Case, then: Then | None = None, **arguments: Any) -> torch.Tensor:
            model = skeleton(case)
            state = {key: arguments.pop(_argument(key)) for key in model.state_dict()}
            with ExitStack() as stack:
                if then is not None:
                    hook = model.register_forward_hook(lambda _model, _inputs, out: then(out))
                    stack.callback(hook.remove)
                out: torch.Tensor = torch.func.functional_call(model, state, kwargs=arguments)
            return out

        return forward

    def all_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
        arguments = {"case": case, **inputs(case, make)}
        with (
            torch.random.fork_rng(devices=[]),
            torch.device("meta" if make.only_integers else "cpu"),
        ):
            torch.manual_seed(case.seed)
            state = module(case).state_dict()
        for key, value in state.items():
            dtype = value.dtype
            if value.is_floating_point():
                dtype = getattr(torch, case.dtype)
            if make.only_integers:
                arguments[_argument(key)] = torch.empty(
                    value.shape,
                    device=make.device,
                    dtype=dtype,
                )
            else:
                arguments[_argument(key)] = value.to(device=make.device, dtype=dtype, copy=True)
        if training:
            # without data: only the shape of the output is needed
            on_meta = dict(arguments)
            for key, value in arguments.items():
                if hasattr(value, "device"):
                    on_meta[key] = value.to("meta")
            arguments[GRADIENT] = make.normal(*forward(**on_meta).shape)
        return arguments

    forward = forward_of(module)
    compiled = compiled_step(forward)

    def step(forward: Callable[..., Any]) -> Callable[..., Any]:
        return training_step(forward) if training else forward

    spec = KernelSpec(
        name=name,
        family=WORKLOADS,
        inputs=all_inputs,
        reference=step(forward),
        cases=cases,
        flop_count=flop_count or counted_flop_count(forward, all_inputs),
        memory_bytes=memory_bytes or counted_memory_bytes(step(forward), all_inputs),
        token_count=token_count,
        mutates=mutates,
        interpreted_shape=interpreted_shape or {},
        tolerances=tolerances or {},
    )
    spec.implementation("torch", directions=["fwd"])(step(forward_of(module)))
    spec.implementation("torch", name="compile", directions=["fwd"])(step(compiled))
    for language, make_variant in (variants or {}).items():
        spec.implementation(language, directions=["fwd"])(step(forward_of(make_variant)))
    return spec


def _argument(key: str) -> str:
    """Name of a parameter as an argument."""
    return key.replace(".", "__")


def _is_floating(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and bool(value.is_floating_point())
