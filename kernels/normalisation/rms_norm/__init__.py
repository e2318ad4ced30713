"""Root-mean-square normalisation of rows with a weight per column, forward and backward, in Triton and in CUDA C++.

A row is held in registers, so each operand is read once; of a longer row, what the registers do not hold is read twice.
In the backward pass a program, or block of threads, walks over several rows and sums their share of the weight's
gradient; the shares are added up afterwards in a fixed order, so the result is the same in every run.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv 1910.07467).
"""

from roofwatch.kernels.normalisation.rms_norm.cuda import rms_norm_cuda
from roofwatch.kernels.normalisation.rms_norm.spec import (
    rms_norm_flop_count,
    rms_norm_memory_bytes,
    rms_norm_reference,
    rms_norm_spec,
)
from roofwatch.kernels.normalisation.rms_norm.triton import rms_norm

__all__ = [
    "rms_norm",
    "rms_norm_cuda",
    "rms_norm_flop_count",
    "rms_norm_memory_bytes",
    "rms_norm_reference",
    "rms_norm_spec",
]
