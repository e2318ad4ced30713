"""Softmax as an operator that torch can trace and differentiate, whichever implementation of ours it calls."""

from collections.abc import Callable
from typing import Any

import torch


def softmax_operator(
    name: str,
    forward: Callable[[torch.Tensor], torch.Tensor],
    backward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Register `roofwatch::<name>` and `roofwatch::<name>_backward`.

    Args:
        name: Of the operator.
        forward: The softmax of x's rows.
        backward: x's gradient, from the softmax and its gradient.
    """
    operator = torch.library.custom_op(f"roofwatch::{name}", forward, mutates_args=())
    backward_operator = torch.library.custom_op(f"roofwatch::{name}_backward", backward, mutates_args=())

    @operator.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape)

    @backward_operator.register_fake
    def _(out: torch.Tensor, grad_out: torch.Tensor) -> torch.Tensor:  # noqa: ARG001  the operator's signature
        return torch.empty_like(out)

    def save_for_backward(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:  # noqa: ARG001  torch's signature
        ctx.save_for_backward(output)

    def differentiate(ctx: Any, grad_out: torch.Tensor) -> torch.Tensor:
        (out,) = ctx.saved_tensors
        grad_x: torch.Tensor = backward_operator(out, grad_out)
        return grad_x

    operator.register_autograd(differentiate, setup_context=save_for_backward)
    return operator
