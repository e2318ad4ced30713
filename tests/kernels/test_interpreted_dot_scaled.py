"""Block-scaled products in the interpreter, of each format and way to pack it."""

import pytest
import torch
import triton
import triton.language as tl

from roofwatch.kernels.low_precision.block_scaled_matmul import unpack_e2m1

CODES = torch.arange(256, dtype=torch.uint8)
IDENTITY = torch.eye(32)


@triton.jit
def _scaled_kernel(x_ptr, scale_ptr, y_ptr, out_ptr, PACKS_K: tl.constexpr):
    """Multiply [16, 32] numbers of e2m1 by a scale per row, and by [32, 32] numbers of bfloat16."""
    rows = tl.arange(0, 16 if PACKS_K else 8)
    cols = tl.arange(0, 16 if PACKS_K else 32)
    n_cols: tl.constexpr = 16 if PACKS_K else 32
    offs_m = tl.arange(0, 16)
    offs_k = tl.arange(0, 32)
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :])
    scale = tl.load(scale_ptr + offs_m[:, None])  # [16, 1]
    y = tl.load(y_ptr + offs_k[:, None] * 32 + offs_k[None, :])  # [32, 32]
    out = tl.dot_scaled(x, scale, "e2m1", y, None, "bf16", lhs_k_pack=PACKS_K)
    tl.store(out_ptr + offs_m[:, None] * 32 + offs_k[None, :], out)


@pytest.mark.parametrize("packs_k", [True, False])
def test_every_e2m1_code_is_multiplied_by_its_power_of_two(packs_k: bool, device: str):
    if device != "cpu":
        pytest.skip("of the interpreter")
    exponents = torch.arange(119, 135, dtype=torch.uint8)
    numbers = unpack_e2m1(CODES.view(16, 16), torch.float32)  # [16, 32]
    if not packs_k:
        # a byte has numbers of two rows
        numbers = unpack_e2m1(CODES.view(8, 32), torch.float32).view(8, 32, 2)
        numbers = numbers.transpose(1, 2).reshape(16, 32)
    out = torch.empty(16, 32)
    _scaled_kernel[(1,)](CODES, exponents, IDENTITY.bfloat16(), out, PACKS_K=packs_k)
    assert torch.equal(out, numbers * torch.exp2(exponents - 127.0)[:, None])
