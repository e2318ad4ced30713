"""Attention as operators that torch can trace and differentiate, and the launcher in front of them."""

from typing import Any

import torch

from kernels.attention.backward import launch_backward
from kernels.attention.forward import launch_forward
from kernels.attention.spec import attention_spec
from kernels.attention.tiling import MAX_HEAD_DIM
from kernels.errors import KernelError
from kernels.operands import require_equal, require_operands


@torch.library.custom_op("roofwatch::attention", mutates_args=())
def _attention_op(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, window: int
) -> tuple[torch.Tensor, torch.Tensor]:
    out = q.new_empty(q.shape)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    if not k.numel():  # no key: no weight
        out.zero_()
        lse.fill_(-torch.inf)
    elif out.numel():  # a grid of no programs cannot be launched
        launch_forward(q, k, v, out, lse, is_causal=is_causal, window=window)
    return out, lse


@torch.library.custom_op("roofwatch::attention_backward", mutates_args=())
def _attention_backward_op(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad_out: torch.Tensor,
    is_causal: bool,
    window: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grad_out = grad_out.contiguous()  # autograd may hand over an expanded scalar
    gradients = tuple(operand.new_empty(operand.shape) for operand in (q, k, v))
    if q.numel() and k.numel():
        launch_backward(q, k, v, out, lse, grad_out, *gradients, is_causal=is_causal, window=window)
    else:
        for gradient in gradients:
            gradient.zero_()
    return gradients[0], gradients[1], gradients[2]


@_attention_op.register_fake
def _attention_fake(
    q: torch.Tensor,
    k: torch.Tensor,  # noqa: ARG001  the op's signature
    v: torch.Tensor,  # noqa: ARG001
    is_causal: bool,  # noqa: ARG001
    window: int,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@_attention_backward_op.register_fake
def _attention_backward_fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_others: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, ctx.is_causal, ctx.window = inputs
    out, lse = output
    ctx.save_for_backward(q, k, v, out, lse)
    ctx.mark_non_differentiable(lse)


def _backward(ctx: Any, grad_out: torch.Tensor, _grad_lse: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return *_attention_backward_op(*ctx.saved_tensors, grad_out, ctx.is_causal, ctx.window), None, None


_attention_op.register_autograd(_backward, setup_context=_save_for_backward)


@attention_spec.implementation("triton", deterministic=True)
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = True, window: int = 0
) -> torch.Tensor:
    """`softmax(q kᵀ / sqrt(D)) v` over the keys that a query sees, accumulated in float32.

    Args:
        q: [B, H, T, D], contiguous along its last dim, D at most `MAX_HEAD_DIM`.
        k: [B, H_KV, S, D] of q's dtype; each of its heads serves `H / H_KV` heads of q, one behind another.
        v: [B, H_KV, S, D] of q's dtype.
        is_causal: Query t sees keys 0 to t, and S is T.
        window: How many keys a causal query sees at most, itself included; 0 for all.

    Returns:
        [B, H, T, D] in q's dtype, contiguous.

    Raises:
        KernelError: an operand has another layout, shape or dtype, or the window none before it.
    """
    require_operands("attention", dims=4, q=q, k=k, v=v)
    require_equal("attention", "the shapes", k=tuple(k.shape), v=tuple(v.shape))
    require_equal("attention", "batch and head dim", q=(q.shape[0], q.shape[3]), k=(k.shape[0], k.shape[3]))
    require_equal("attention", "the dtypes", q=q.dtype, k=k.dtype, v=v.dtype)
    if is_causal:
        require_equal("attention", "the lengths under a causal mask", q=q.shape[2], k=k.shape[2])
    require_heads("attention", q.shape[1], k.shape[1], q.shape[3])
    if window < 0 or (window and not is_causal):
        raise KernelError(
            f"attention: window={window} with is_causal={is_causal}; a window of 1 or more keys, or 0 for all, "
            "reaches back from a causal query: pass is_causal=True"
        )
    out: torch.Tensor = _attention_op(q, k, v, is_causal, window)[0]
    return out


def require_heads(kernel: str, n_heads: int, n_kv_heads: int, head_dim: int) -> None:
    """Refuse heads that the kernels have no place for.

    Raises:
        KernelError: heads of queries cannot be dealt out to those of keys, or a head has too many dims.
    """
    if n_heads and (n_kv_heads == 0 or n_heads % n_kv_heads):
        raise KernelError(
            f"{kernel}: {n_heads} heads of q are no multiple of k's {n_kv_heads}; "
            "call k.repeat_interleave(n, dim=1) with as many repeats as make it one"
        )
    if head_dim > MAX_HEAD_DIM:
        raise KernelError(
            f"{kernel}: a head has {head_dim} dims, at most {MAX_HEAD_DIM} stay in registers; "
            "call torch.nn.functional.scaled_dot_product_attention"
        )
