"""A program that launches jitted functions which no benchmark file declares."""

import sys

import torch
import triton
import triton.language as tl
from undeclared_kernels import add_kernel, copy_kernel

DEVICE = triton.runtime.driver.active.get_active_torch_device()
"""Asked for while the file is imported, as in Triton's tutorials."""


@triton.jit
def fill_kernel(x_ptr, value, FLAG: tl.constexpr):
    tl.store(x_ptr, value)


def launch_hidden_kernel(x):
    @triton.jit
    def hidden_kernel(x_ptr):
        tl.store(x_ptr, 1)

    hidden_kernel[(1,)](x)


if __name__ == "__main__":
    x, out = torch.ones(100, device=DEVICE), torch.empty(101, device=DEVICE)
    add_kernel[(1,)](x, x, out, 96, BLOCK=128, num_warps=1)
    add_kernel[(1,)](x, x, out[1:], 96, BLOCK=128, num_warps=1)
    add_kernel[(1,)](x, x, out, 96, BLOCK=128, num_warps=1)
    copy_kernel[(1,)](x, out, 64, DTYPE=tl.float16)
    fill_kernel[(1,)](x, 1, FLAG=None)
    launch_hidden_kernel(x)
    print(out[5].item(), sys.argv[1:])
    sys.exit(3)
