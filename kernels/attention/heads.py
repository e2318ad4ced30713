"""Which heads the attention kernels take, and how those lie in tiles."""

import torch
import triton

from roofwatch.kernels.errors import KernelError

MAX_HEAD_DIM = 256
"""More would not leave the accumulators in registers."""


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


def padded_width(D: int) -> int:
    """Columns of a tile: a matrix product has at least 16 terms."""
    return max(16, int(triton.next_power_of_2(D)))


def is_aligned(*heads: torch.Tensor) -> bool:
    """Whether each row of heads starts at a multiple of 16 bytes, so that a thread may load that much at a time."""
    return all(
        tensor.data_ptr() % 16 == 0 and all(stride * tensor.element_size() % 16 == 0 for stride in tensor.stride()[:-1])
        for tensor in heads
    )
