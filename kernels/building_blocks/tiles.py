"""Tiles of a matrix product: order, loads, products, stores, and sums over splits of K."""

import triton
import triton.language as tl
from torch import Tensor

from roofwatch.kernels.building_blocks.formats import from_e4m3, halved_in_e4m3fnuz
from roofwatch.kernels.building_blocks.target import IS_INTERPRETED


@triton.jit
def tile_of(program, n_tiles_m, n_tiles_n, GROUP_M: tl.constexpr = 8):
    """Return row and column of a program's tile, in groups of `GROUP_M` rows to reuse b in the L2
    cache.
    """
    group_size = GROUP_M * n_tiles_n
    first_tile_m = program // group_size * GROUP_M
    rows = tl.minimum(n_tiles_m - first_tile_m, GROUP_M)  # the last group may have fewer
    in_group = program % group_size
    return first_tile_m + in_group % rows, in_group // rows


@triton.jit
def by_chiplet(program, n_programs, N_CHIPLETS: tl.constexpr):
    """Renumber programs to make those of one chiplet adjacent, so they share its L2 cache.

    The hardware assigns programs to chiplets round-robin.
    """
    if N_CHIPLETS == 1:
        return program
    chiplet = program % N_CHIPLETS
    share = n_programs // N_CHIPLETS
    with_one_more = n_programs % N_CHIPLETS
    return chiplet * share + tl.minimum(chiplet, with_one_more) + program // N_CHIPLETS


@triton.jit
def tile_of_program(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, N_CHIPLETS: tl.constexpr):
    """Return row and column of this program's tile of an M x N result,
    with one program per tile.
    """
    program = by_chiplet(tl.program_id(0), tl.num_programs(0), N_CHIPLETS)
    return tile_of(program, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N))


@triton.jit
def load_factors(a_ptrs, b_ptrs, n_left, K_IS_EVEN: tl.constexpr):
    """Load tiles [BLOCK_M, BLOCK_K] of a and [BLOCK_K, BLOCK_N] of b with `n_left` terms of K left,
    padded with zeros.

    `K_IS_EVEN` means that BLOCK_K divides K, so no mask is needed.
    """
    if K_IS_EVEN:
        a = tl.load(a_ptrs)  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptrs)  # [BLOCK_K, BLOCK_N]
    else:
        mask_k = tl.arange(0, b_ptrs.shape[0]) < n_left
        a = tl.load(a_ptrs, mask=mask_k[None, :], other=0.0)  # [BLOCK_M, BLOCK_K]
        b = tl.load(b_ptrs, mask=mask_k[:, None], other=0.0)  # [BLOCK_K, BLOCK_N]
    return a, b


@triton.jit
def product_of(
    a_ptr,
    b_ptr,
    offs_m,
    offs_n,
    first_k,
    end_k,
    M,
    N,
    K,
    a_row_stride,
    b_row_stride,
    B_IS_TRANSPOSED: tl.constexpr,
    K_IS_EVEN: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Sum `a[m, k] b[k, n]` over k from `first_k` up to `end_k`, for a tile of an M x N result.

    Rows and columns past the end wrap around, which is cheaper than masked loads; they must not be
    stored.
    """
    offs_k = first_k + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_m % M).to(tl.int64)[:, None] * a_row_stride + offs_k[None, :]
    if B_IS_TRANSPOSED:
        b_ptrs = b_ptr + offs_k[:, None] + (offs_n % N).to(tl.int64)[None, :] * b_row_stride
        b_step = BLOCK_K
    else:
        b_ptrs = b_ptr + offs_k.to(tl.int64)[:, None] * b_row_stride + (offs_n % N)[None, :]
        b_step = tl.cast(b_row_stride, tl.int64) * BLOCK_K
    acc = tl.zeros((offs_m.shape[0], offs_n.shape[0]), tl.float32)
    for start in range(first_k, end_k, BLOCK_K):
        a, b = load_factors(
            a_ptrs, b_ptrs, K - start, K_IS_EVEN
        )  # [BLOCK_M, BLOCK_K], [BLOCK_K, BLOCK_N]
        acc = dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += b_step
    return acc


@triton.jit
def store_product(out_ptr, product, offs_m, offs_n, M, N, row_stride):
    """Store a tile of an M x N result in the result's dtype."""
    out_ptrs = out_ptr + offs_m.to(tl.int64)[:, None] * row_stride + offs_n[None, :]
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    tl.store(out_ptrs, product.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK_M, BLOCK_N]


@triton.jit
def dot(a, b, acc):
    """Compute `a @ b + acc` with a float32 accumulator.

    Triton's default on NVIDIA rounds float32 operands to TF32. Three TF32 products keep float32
    precision; AMD multiplies float32 directly.
    """
    if IS_INTERPRETED:
        # the interpreter stores bfloat16 as bit patterns and would multiply them as integers
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    elif a.dtype == tl.float32 and tl.target_info.is_cuda():
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    else:
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


@triton.jit
def dot_8_bit(a, b, acc):
    """Compute `a @ b + acc` of int8 with an int32 accumulator, or of e4m3 with a float32 one.

    uint8 operands hold e4m3 on targets without it: CDNA 3 multiplies them as e4m3fnuz, others as
        float16. Hopper's
    tensor cores accumulate fp8 with about 14 bits, so every 128 products are added to acc outside
    of them. Source: DeepSeek-V3 Technical Report, 2024 (arXiv 2412.19437), section 3.3.2.
    """
    if a.dtype == tl.int8:
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    elif a.dtype == tl.uint8 and not IS_INTERPRETED and tl.target_info.is_hip_cdna3():
        halved_a = halved_in_e4m3fnuz(a).to(tl.float8e4b8, bitcast=True)
        halved_b = halved_in_e4m3fnuz(b).to(tl.float8e4b8, bitcast=True)
        acc += tl.dot(halved_a, halved_b) * 4.0
    elif a.dtype == tl.uint8:
        acc = dot(from_e4m3(a), from_e4m3(b), acc)
    else:
        n_imprecise: tl.constexpr = min(a.shape[1], 128)
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=n_imprecise)
    return acc


_BLOCK = 1024
_FEW_ELEMENTS = 2**17
"""Below, programs of `_BLOCK` elements would leave multiprocessors of a large GPU idle."""


@triton.jit
def _sum_of_shares_kernel(
    share_ptr, out_ptr, n_elements, N_SHARES: tl.constexpr, BLOCK: tl.constexpr
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_elements
    total = tl.zeros((BLOCK,), tl.float32)
    for share in tl.static_range(N_SHARES):
        share_ptrs = share_ptr + share * n_elements.to(tl.int64) + offs
        total += tl.load(share_ptrs, mask=mask, other=0.0)  # [BLOCK]
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


def sum_shares(shares: Tensor, out: Tensor) -> None:
    """Sum the first dim of `shares`, float32 and contiguous, into `out`, in a fixed order."""
    block = _BLOCK if out.numel() > _FEW_ELEMENTS else _BLOCK // 8
    grid = (triton.cdiv(out.numel(), block),)
    _sum_of_shares_kernel[grid](shares, out, out.numel(), N_SHARES=shares.shape[0], BLOCK=block)


def groups_per_split(
    n_groups: int, n_tiles: int, n_multiprocessors: int, programs_per_multiprocessor: int
) -> int:
    """Groups along the split dim per program, to have `programs_per_multiprocessor` programs."""
    n_splits = max(programs_per_multiprocessor * n_multiprocessors // n_tiles, 1)
    return -(-n_groups // min(n_splits, n_groups))
