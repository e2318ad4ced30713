"""A kernel in Gluon, Triton's language with explicit layouts."""

import torch
import triton
from plus_one import declare
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def add_one_in_gluon(x_ptr, y_ptr, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    x = gl.load(x_ptr + offsets, mask=offsets < n)  # [BLOCK]
    gl.store(y_ptr + offsets, x + 1, mask=offsets < n)


def _add_one(x):
    y = torch.empty_like(x)
    add_one_in_gluon[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


gluon_add = declare("gluon_add", _add_one, language="triton", n=2**20)

if __name__ == "__main__":
    _add_one(torch.zeros(4096))
    _add_one(torch.zeros(4099))
