"""Rms_norm as an operator that torch can trace and differentiate, whichever implementation of ours it calls."""

from collections.abc import Callable
from typing import Any

import torch


def rms_norm_operator(
    name: str,
    forward: Callable[[torch.Tensor, torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]],
    backward: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> Callable[[torch.Tensor, torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]:
    """Register `roofwatch::<name>` and `roofwatch::<name>_backward`.

    Args:
        name: Of the operator.
        forward: The result and 1/rms of each row, from x, weight and eps.
        backward: The gradients of x and weight, from x, weight, 1/rms and the result's gradient.
    """
    operator = torch.library.custom_op(f"roofwatch::{name}", forward, mutates_args=())
    backward_operator = torch.library.custom_op(f"roofwatch::{name}_backward", backward, mutates_args=())

    @operator.register_fake
    def _(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG001  the operator's signature
        return x.new_empty(x.shape), x.new_empty(x.shape[:1], dtype=torch.float32)

    @backward_operator.register_fake
    def _(
        x: torch.Tensor,
        weight: torch.Tensor,
        rstd: torch.Tensor,  # noqa: ARG001  the operator's signature
        grad_out: torch.Tensor,  # noqa: ARG001
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return x.new_empty(x.shape), weight.new_empty(weight.shape)

    def save_for_backward(
        ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor, float], output: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        x, weight, _ = inputs
        _, rstd = output
        ctx.mark_non_differentiable(rstd)
        ctx.save_for_backward(x, weight, rstd)

    def differentiate(ctx: Any, grad_out: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        grad_x, grad_weight = backward_operator(*ctx.saved_tensors, grad_out)
        return grad_x, grad_weight, None

    operator.register_autograd(differentiate, setup_context=save_for_backward)
    return operator
