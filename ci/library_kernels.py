"""Kernels that libraries choose by themselves, told by their names. Pure."""

from __future__ import annotations

import re
from enum import StrEnum


class Library(StrEnum):
    """Libraries of which one takes the place of another: by the same call, a kernel of one may come for one of the
    other.
    """

    DENSE = "dense"
    """Matrix products and convolutions: cuBLAS, cuDNN, CUTLASS, rocBLAS and hipBLASLt with Tensile, MIOpen, CK."""
    COLLECTIVES = "collectives"
    """NCCL and RCCL, whose kernels are named by algorithm and protocol."""
    SPARSE = "sparse"
    FFT = "fft"


_INDUCTOR = re.compile(r"triton_(poi|red|per|tem|mm|foreach)_")
"""Of torch.compile, after the operators that it put together; one may be called as a library: `cudnn_batch_norm`."""
_GENERATION = r"(kepler|maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell|sm\d{2,3})_"
_NAMES = (
    (Library.COLLECTIVES, re.compile(r"nccl\w*Kernel|rccl\w*Kernel|msccl", re.IGNORECASE)),
    (
        Library.DENSE,
        re.compile(
            rf"cublas|cudnn|cutlass|cask|nvjet|xmma|{_GENERATION}\w*(gemm|conv)"
            r"|(implicit|explicit|precomputed)_convolve_\w*gemm|conv2d_grouped_direct_kernel"
            r"|rocblas|hipblas|miopen|Cijk_|\bck(_tile)?::|_ZN\w*?(2ck\d|7ck_tile)|igemm_(fwd|bwd|wrw)_gtc",
            re.IGNORECASE,
        ),
    ),
    (Library.SPARSE, re.compile(r"cusparse|rocsparse|hipsparse", re.IGNORECASE)),
    (Library.FFT, re.compile(r"\b(vector|regular)_fft<|cufft|rocfft|fft_rtc_|fft2d_[cr]2[cr]_", re.IGNORECASE)),
)
"""cuDNN's convolutions by FFT name cuDNN too, and are told as its."""


def library_of(name: str) -> Library | None:
    """Whose kernel it is, by its name as a profiler has it; None for one of nobody that is known here."""
    if _INDUCTOR.match(name):
        return None
    return next((library for library, names in _NAMES if names.search(name)), None)
