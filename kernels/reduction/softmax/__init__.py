"""Softmax over the last dim, forward and backward, in Triton and in CUDA C++.

A row that fits into registers is read once. Of a longer one, a vocabulary say, what does not fit is read twice: first
for the row's maximum and sum, then to write the result.

Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018 (arXiv 1805.02867).
"""

from roofwatch.kernels.reduction.softmax.cuda import softmax_cuda
from roofwatch.kernels.reduction.softmax.spec import (
    softmax_flop_count,
    softmax_memory_bytes,
    softmax_reference,
    softmax_spec,
)
from roofwatch.kernels.reduction.softmax.triton import softmax

__all__ = [
    "softmax",
    "softmax_cuda",
    "softmax_flop_count",
    "softmax_memory_bytes",
    "softmax_reference",
    "softmax_spec",
]
