"""Right, but for a mask that lets one element too many through at the end of each row."""

import torch
import triton
import triton.language as tl


@triton.jit
def _centre_kernel(x_ptr, y_ptr, scale, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)  # [BLOCK]
    mean = tl.sum(x, axis=0) / n_cols
    y = (x - mean) * (x - mean) * scale
    tl.store(y_ptr + row * n_cols + cols, y, mask=cols <= n_cols)


def candidate(x, scale):
    x = x.contiguous()
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    _centre_kernel[(n_rows,)](x, y, scale, n_cols, BLOCK=2 * triton.next_power_of_2(n_cols))
    return y
