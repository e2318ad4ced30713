"""Matrix product `a @ b` with a float32 accumulator, forward.

Programs are ordered to share operands in the L2 cache (building_blocks/tiles.py). With TMA, a
persistent kernel has one program per multiprocessor and loads the next tile while it stores the
current one. Otherwise each tile has its own program. b may be a transposed view, as a linear
layer's weight; it is not copied.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.operands import (
    is_stored_transposed,
    require_equal,
    require_operands,
    supports_tma,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import model_cases, only, projections, small_cases
from roofwatch.kernels.building_blocks.target import (
    DeviceTarget,
    current_target,
    multiprocessor_count,
    persistent_program_count,
)
from roofwatch.kernels.building_blocks.tiles import (
    dot,
    product_of,
    store_product,
    tile_of,
    tile_of_program,
)

_GROUP_M = tl.constexpr(16)
"""Of 132 programs: the fewest rows of a and columns of b from memory."""


@triton.jit
def _matmul_persistent_kernel(
    a_desc,
    b_desc,
    out_desc,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    B_IS_TRANSPOSED: tl.constexpr,
    STORES_HALVES: tl.constexpr,
    SPECIALISES_WARPS: tl.constexpr,
):
    n_tiles_m = tl.cdiv(M, BLOCK_M)
    n_tiles_n = tl.cdiv(N, BLOCK_N)
    n_programs = tl.num_programs(0)
    first_tile = tl.program_id(0)
    # counted separately: the flattened loop has advanced `tile` when this one is stored
    stored_tile = first_tile - n_programs
    for tile in tl.range(
        first_tile,
        n_tiles_m * n_tiles_n,
        n_programs,
        flatten=True,
        warp_specialize=SPECIALISES_WARPS,
    ):
        tile_m, tile_n = tile_of(tile, n_tiles_m, n_tiles_n, _GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([tile_m * BLOCK_M, step * BLOCK_K])  # [BLOCK_M, BLOCK_K]
            if B_IS_TRANSPOSED:
                b = b_desc.load([tile_n * BLOCK_N, step * BLOCK_K]).T  # [BLOCK_K, BLOCK_N]
            else:
                b = b_desc.load([step * BLOCK_K, tile_n * BLOCK_N])  # [BLOCK_K, BLOCK_N]
            acc = dot(a, b, acc)
        stored_tile += n_programs
        tile_m, tile_n = tile_of(stored_tile, n_tiles_m, n_tiles_n, _GROUP_M)
        if STORES_HALVES:  # needs half the shared memory, which allows one more stage
            halves = acc.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1)
            first_half, second_half = halves.split()
            out_desc.store(
                [tile_m * BLOCK_M, tile_n * BLOCK_N], first_half.to(out_desc.dtype)
            )  # [BLOCK_M, BLOCK_N / 2]
            middle = tile_n * BLOCK_N + BLOCK_N // 2
            out_desc.store(
                [tile_m * BLOCK_M, middle], second_half.to(out_desc.dtype)
            )  # [BLOCK_M, BLOCK_N / 2]
        else:
            out_desc.store(
                [tile_m * BLOCK_M, tile_n * BLOCK_N], acc.to(out_desc.dtype)
            )  # [BLOCK_M, BLOCK_N]


@triton.jit
def _matmul_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    a_row_stride,
    b_row_stride,
    out_row_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    B_IS_TRANSPOSED: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
    N_CHIPLETS: tl.constexpr,
):
    tile_m, tile_n = tile_of_program(M, N, BLOCK_M, BLOCK_N, N_CHIPLETS)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = product_of(
        a_ptr,
        b_ptr,
        offs_m,
        offs_n,
        0,
        K,
        M,
        N,
        K,
        a_row_stride,
        b_row_stride,
        B_IS_TRANSPOSED,
        K_IS_EVEN,
        BLOCK_K,
    )
    store_product(out_ptr, acc, offs_m, offs_n, M, N, out_row_stride)


class MatmulTiling(NamedTuple):
    """Tile sizes and launch options, and the estimated speed."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int
    rate: float
    """FLOP/s of a full tile relative to the best tiling, estimated: smaller tiles read operands
    more often.
    """
    matrix_instr_nonkdim: int = 0
    """Rows and columns of AMD's matrix instructions; 0 for Triton's choice."""

    def launch_options(self) -> dict[str, int]:
        options = {name: int(value) for name, value in self._asdict().items() if name != "rate"}
        if not self.matrix_instr_nonkdim:
            del options["matrix_instr_nonkdim"]
        return options


# The largest tiles without register spills that fit the target's shared memory, and smaller ones
# for small products. _COPIED is used with TMA; the tiles of sm_120 fit every other target.
_COPIED = {
    "sm_90": (
        MatmulTiling(128, 256, 64, 8, 4, 1.0),
        MatmulTiling(128, 128, 64, 8, 4, 0.9),
        MatmulTiling(64, 64, 128, 4, 5, 0.5),
    ),
    "sm_100": (
        MatmulTiling(128, 256, 64, 8, 4, 1.0),
        MatmulTiling(128, 128, 64, 8, 5, 0.8),
        MatmulTiling(128, 64, 64, 8, 6, 0.5),
    ),
    "sm_120": (MatmulTiling(128, 128, 64, 8, 3, 1.0), MatmulTiling(64, 64, 64, 4, 4, 0.6)),
    "interpreter": (MatmulTiling(64, 64, 32, 4, 2, 1.0),),
}
_LOADED = {
    "sm_80": (
        MatmulTiling(128, 256, 32, 8, 4, 1.0),
        MatmulTiling(128, 128, 32, 8, 4, 0.9),
        MatmulTiling(64, 64, 32, 4, 4, 0.5),
    ),
    "gfx942": (
        MatmulTiling(256, 256, 64, 8, 2, 1.0),
        MatmulTiling(128, 128, 64, 4, 2, 0.8),
        MatmulTiling(64, 64, 64, 4, 2, 0.4),
    ),
    "gfx950": (
        # since Triton 3.8, instructions of 32 rows and columns spill 48 registers
        MatmulTiling(256, 256, 32, 8, 4, 1.0, matrix_instr_nonkdim=16),
        MatmulTiling(128, 128, 64, 4, 3, 0.8),
        MatmulTiling(64, 64, 64, 4, 4, 0.4),
    ),
    "cuda": (MatmulTiling(128, 128, 32, 8, 4, 1.0), MatmulTiling(64, 64, 32, 4, 4, 0.5)),
    "interpreter": (MatmulTiling(64, 64, 32, 4, 2, 1.0),),
}
# a float32 product takes three TF32 products, so small tiles keep the tensor cores busy
_FLOAT32 = {
    "cuda": (MatmulTiling(128, 64, 32, 8, 3, 1.0), MatmulTiling(64, 64, 16, 8, 4, 0.8)),
    "hip": (MatmulTiling(128, 128, 32, 8, 2, 1.0), MatmulTiling(64, 64, 16, 8, 2, 0.6)),
    "interpreter": (MatmulTiling(64, 64, 16, 4, 2, 1.0),),
}


def matmul_config(
    M: int,
    N: int,
    itemsize: int,
    target: DeviceTarget,
    n_multiprocessors: int,
    *,
    is_copied: bool = False,
) -> MatmulTiling:
    """Choose the tiling with the lowest estimated time, in waves of one tile per multiprocessor."""
    if itemsize == 4:
        tilings = _FLOAT32[target.backend]
    elif is_copied:
        tilings = _COPIED.get(target.arch or target.backend, _COPIED["sm_120"])
    else:
        fallback = _LOADED["gfx942" if target.backend == "hip" else target.backend]
        tilings = _LOADED.get(target.arch, fallback)

    def rounds_time(tiling: MatmulTiling) -> float:
        n_tiles = triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N)
        return float(
            triton.cdiv(n_tiles, n_multiprocessors) * tiling.BLOCK_M * tiling.BLOCK_N / tiling.rate
        )

    return min(tilings, key=rounds_time)


def empty_product(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


@operator("matmul", empty_product)
def _matmul_op(a, b, out):
    M, K = a.shape
    N = b.shape[1]
    is_transposed = is_stored_transposed(b)
    stored_b = b.t() if is_transposed else b
    target = current_target()
    is_copied = (
        target.has_tma
        and a.element_size() == 2
        and all(supports_tma(matrix) for matrix in (a, stored_b, out))
    )
    tiling = matmul_config(
        M, N, a.element_size(), target, multiprocessor_count(a), is_copied=is_copied
    )
    n_tiles = triton.cdiv(M, tiling.BLOCK_M) * triton.cdiv(N, tiling.BLOCK_N)
    if is_copied:
        stores_halves = tiling.BLOCK_N > 128 or target.backend == "interpreter"
        b_tile = [tiling.BLOCK_K, tiling.BLOCK_N]
        _matmul_persistent_kernel[(persistent_program_count(a, n_tiles),)](
            TensorDescriptor.from_tensor(a, [tiling.BLOCK_M, tiling.BLOCK_K]),
            TensorDescriptor.from_tensor(stored_b, b_tile[::-1] if is_transposed else b_tile),
            TensorDescriptor.from_tensor(
                out, [tiling.BLOCK_M, tiling.BLOCK_N // (2 if stores_halves else 1)]
            ),
            M,
            N,
            K,
            B_IS_TRANSPOSED=is_transposed,
            STORES_HALVES=stores_halves,
            # separate warps for copies and products on data-centre Blackwell
            SPECIALISES_WARPS=target.arch == "sm_100",
            **tiling.launch_options(),
        )
    else:
        _matmul_kernel[(n_tiles,)](
            a,
            b,
            out,
            M,
            N,
            K,
            a.stride(0),
            stored_b.stride(0),
            out.stride(0),
            B_IS_TRANSPOSED=is_transposed,
            K_IS_EVEN=K % tiling.BLOCK_K == 0,
            N_CHIPLETS=target.chiplet_count,
            **tiling.launch_options(),
        )


def matmul_reference(a: Tensor, b: Tensor) -> Tensor:
    """Compute `out[m, n] = sum over k of a[m, k] * b[k, n]`."""
    return torch.einsum("mk,kn->mn", a, b)


def factors(case: Case, make: InputMaker) -> dict[str, Any]:
    """Generate a [M, K] and b [K, N]."""
    return {"a": make.terms(case["M"], case["K"]), "b": make.weights(case["K"], case["N"])}


def matmul_flop_count(case: Case) -> float:
    """Count a multiplication and an addition for each of M * N * K terms."""
    return 2 * case["M"] * case["N"] * case["K"]


def matmul_memory_bytes(case: Case) -> float:
    """Reads a and b once each and writes the product."""
    M, N, K = case["M"], case["N"], case["K"]
    return (M * K + K * N + M * N) * case.itemsize


matmul_spec = KernelSpec(
    name="matmul",
    family="GEMM",
    inputs=factors,
    reference=matmul_reference,
    cases=[
        *cases(
            shapes=[{"M": 1024, "N": 1024, "K": 1024}], dtypes=["float32"], tags=["small", "quick"]
        ),
        *small_cases({"M": 1024, "N": 1024, "K": 1024}, dtypes=["bfloat16"]),
        # 8192 x 8192 x 8192 is among them; matmul_split_k has the decode shapes
        *model_cases(only(projections(), "prefill")),
    ],
    edges=[
        *cases(shapes=[{"M": 63, "N": 1000, "K": 115}], dtypes=["float32", "bfloat16"]),
        # rows with and without 16-byte alignment
        *cases(
            shapes=[{"M": 1, "N": 63, "K": 33}, {"M": 72, "N": 200, "K": 40}], dtypes=["float16"]
        ),
        *cases(shapes=[{"M": 0, "N": 63, "K": 16}, {"M": 3, "N": 0, "K": 16}], dtypes=["bfloat16"]),
    ],
    flop_count=matmul_flop_count,
    memory_bytes=matmul_memory_bytes,
    formula="out = a @ b",
    source="Dongarra et al., A set of level 3 basic linear algebra subprograms, 1990 (doi "
    "10.1145/77626.79170)",
    interpreted_shape={"M": 200, "N": 152, "K": 136},
)


@matmul_spec.implementation("triton", directions=["fwd"], deterministic=True)
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b`, accumulated in float32.

    Args:
        a: [M, K], contiguous along its last dim.
        b: [K, N] of a's dtype, contiguous along one of its dims.

    Returns:
        [M, N] in a's dtype.
    """
    require_factors("matmul", a, b)
    return _matmul_op(a, b)


def require_factors(kernel: str, a: Tensor, b: Tensor) -> None:
    """Require two matrices of one dtype with equal K, without gradients."""
    require_operands(kernel, dims=2, a=a, b=b.t() if is_stored_transposed(b) else b)
    require_equal(kernel, "the dtypes", a=a.dtype, b=b.dtype)
    require_equal(kernel, "a's columns and b's rows", a=a.shape[1], b=b.shape[0])


@matmul_spec.implementation("torch", compile=True)
def _matmul_torch(a: Tensor, b: Tensor) -> Tensor:
    return a @ b
