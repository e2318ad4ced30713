"""Matrix product of 16-bit activations and 4-bit weights (W4A16), forward.

Each group of 128 rows of weights has a scale and a zero point per column. Weights are packed eight
to a word and unpacked in registers to offset + level (formats.py).

With few rows, as in decoding, the product is bound by reading the weights. The tensor cores
multiply the numbers with their offset, and scale and zero point are applied to the sum of a group:

    sum of x (level - zero) scale = scale * (sum of x (offset + level) - (offset + zero) * sum of x)

With more rows, as in prefill, it is bound by the tensor cores: weights are scaled in registers
before the product.

With few tiles, K is split over programs, and a second kernel adds the partial sums in a fixed
order.

Source: Lin et al., AWQ: Activation-aware Weight Quantization, 2023 (arXiv 2306.00978).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import (
    NIBBLE_COLUMNS,
    as_floats,
    columns_joined,
    low_half,
    pack_int4,
    unpack_int4,
    unpacked,
)
from roofwatch.kernels.building_blocks.operands import (
    require_contiguous,
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.operators import operator
from roofwatch.kernels.building_blocks.shapes import (
    model_cases,
    only,
    projections,
    small_cases,
    with_choice,
)
from roofwatch.kernels.building_blocks.target import (
    IS_INTERPRETED,
    DeviceTarget,
    current_target,
    multiprocessor_count,
)
from roofwatch.kernels.building_blocks.tiles import (
    dot,
    groups_per_split,
    store_product,
    sum_shares,
    tile_of_program,
)

GROUP_SIZE = 128
"""Rows of weights per scale and zero point."""
_GROUP_SIZE = tl.constexpr(GROUP_SIZE)
MAX_FEW_ROWS = 16
"""Up to so many rows of x, a product is bound by reading the weights."""
_BLOCK_K = 64
_PROGRAMS_PER_MULTIPROCESSOR = 4


@triton.jit
def _add_group(acc, x, x_sum, weight, zero, scale):
    """Add the product with one group of weights to `acc`.

    Weights and zeros have the same offset.
    """
    raw = dot(x, weight, tl.zeros(acc.shape, tl.float32))
    return acc + (raw - x_sum * zero.to(tl.float32)[None, :]) * scale.to(tl.float32)[None, :]


@triton.jit
def _add_pair(even, odd, x, x_sum, words, zero_words, scale_ptrs, mask, POSITION: tl.constexpr):
    """Add the product with columns 8 j + 2 POSITION of words j to `even`, and with the next columns
    to `odd`.
    """
    weights = as_floats(words >> (4 * POSITION), x.dtype)
    zeros = as_floats(zero_words >> (4 * POSITION), x.dtype)
    even_scale = tl.load(scale_ptrs + 2 * POSITION, mask=mask, other=0.0)  # [N_WORDS]
    odd_scale = tl.load(scale_ptrs + 2 * POSITION + 1, mask=mask, other=0.0)  # [N_WORDS]
    even = _add_group(even, x, x_sum, _level(weights, x.dtype), _level(zeros, x.dtype), even_scale)
    odd = _add_group(
        odd, x, x_sum, _level(weights >> 16, x.dtype), _level(zeros >> 16, x.dtype), odd_scale
    )
    return even, odd


@triton.jit
def _level(words, DTYPE: tl.constexpr):
    """Return the level in the low half, with an offset in bfloat16.

    The offset of float16 is eight times as large. Times an outlier of x it would cost too much
    precision of the float32 sum, so it is subtracted.
    """
    level = low_half(words, DTYPE)
    if DTYPE.is_fp16():
        level -= 1024.0
    return level


@triton.jit
def _w4a16_few_rows_kernel(
    x_ptr,
    packed_ptr,
    scale_ptr,
    packed_zero_ptr,
    share_ptr,
    M,
    n_words,
    n_groups,
    x_row_stride,
    groups_per_split,
    BLOCK_M: tl.constexpr,
    N_WORDS: tl.constexpr,
):
    first_word = tl.program_id(0) * N_WORDS
    split = tl.program_id(1)
    first_group = split * groups_per_split
    end_group = tl.minimum(first_group + groups_per_split, n_groups)
    offs_m = tl.arange(0, BLOCK_M)
    offs_k = first_group * _GROUP_SIZE + tl.arange(0, _GROUP_SIZE)
    offs_word = first_word + tl.arange(0, N_WORDS)
    mask_word = offs_word < n_words
    # rows past the end wrap around and are not stored
    x_ptrs = x_ptr + (offs_m % M).to(tl.int64)[:, None] * x_row_stride + offs_k[None, :]
    packed_ptrs = packed_ptr + offs_k.to(tl.int64)[:, None] * n_words + offs_word[None, :]
    zero_ptrs = packed_zero_ptr + first_group * n_words + offs_word
    scale_ptrs = scale_ptr + 8 * (first_group * n_words + offs_word)
    ones = tl.full((_GROUP_SIZE, N_WORDS), 1.0, tl.float32).to(x_ptr.dtype.element_ty)
    acc0 = tl.zeros((BLOCK_M, N_WORDS), tl.float32)
    acc1, acc2, acc3, acc4, acc5, acc6, acc7 = acc0, acc0, acc0, acc0, acc0, acc0, acc0
    for _ in range(first_group, end_group):
        zeros = tl.load(zero_ptrs, mask=mask_word, other=0)  # [N_WORDS]
        x = tl.load(x_ptrs)  # [BLOCK_M, GROUP_SIZE]
        words = tl.load(packed_ptrs, mask=mask_word[None, :], other=0)  # [GROUP_SIZE, N_WORDS]
        # a product with ones gives the row sums in every column
        x_sum = dot(x, ones, tl.zeros((BLOCK_M, N_WORDS), tl.float32))  # [BLOCK_M, N_WORDS]
        acc0, acc1 = _add_pair(acc0, acc1, x, x_sum, words, zeros, scale_ptrs, mask_word, 0)
        acc2, acc3 = _add_pair(acc2, acc3, x, x_sum, words, zeros, scale_ptrs, mask_word, 1)
        acc4, acc5 = _add_pair(acc4, acc5, x, x_sum, words, zeros, scale_ptrs, mask_word, 2)
        acc6, acc7 = _add_pair(acc6, acc7, x, x_sum, words, zeros, scale_ptrs, mask_word, 3)
        x_ptrs += _GROUP_SIZE
        packed_ptrs += _GROUP_SIZE * n_words
        zero_ptrs += n_words
        scale_ptrs += 8 * n_words
    share = columns_joined(acc0, acc1, acc2, acc3, acc4, acc5, acc6, acc7, BLOCK_M, N_WORDS)
    offs_n = 8 * first_word + tl.arange(0, 8 * N_WORDS)
    N = 8 * n_words
    store_product(share_ptr + split.to(tl.int64) * M * N, share, offs_m, offs_n, M, N, N)


@triton.jit
def _weights(level, zero, scale):
    """Dequantise; level and zero have the same offset, so their difference is exact."""
    if IS_INTERPRETED:  # the interpreter would compute with bit patterns of bfloat16
        weights = (level.to(tl.float32) - zero.to(tl.float32)) * scale.to(tl.float32)
    else:
        weights = (level - zero) * scale
    return weights


@triton.jit
def _w4a16_tiles_kernel(
    x_ptr,
    packed_ptr,
    scale_ptr,
    packed_zero_ptr,
    share_ptr,
    M,
    n_words,
    n_groups,
    x_row_stride,
    groups_per_split,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    N_WORDS: tl.constexpr,
    N_CHIPLETS: tl.constexpr,
):
    tile_m, tile_n = tile_of_program(M, n_words, BLOCK_M, N_WORDS, N_CHIPLETS)
    split = tl.program_id(1)
    first_k = split * groups_per_split * _GROUP_SIZE
    end_k = tl.minimum(first_k + groups_per_split * _GROUP_SIZE, n_groups * _GROUP_SIZE)
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = first_k + tl.arange(0, BLOCK_K)
    offs_word = tile_n * N_WORDS + tl.arange(0, N_WORDS)
    offs_n = tile_n * 8 * N_WORDS + tl.arange(0, 8 * N_WORDS)
    mask_word = offs_word < n_words
    mask_n = offs_n < 8 * n_words
    # rows past the end wrap around and are not stored
    x_ptrs = x_ptr + (offs_m % M).to(tl.int64)[:, None] * x_row_stride + offs_k[None, :]
    packed_ptrs = packed_ptr + offs_k.to(tl.int64)[:, None] * n_words + offs_word[None, :]
    acc = tl.zeros((BLOCK_M, 8 * N_WORDS), tl.float32)
    for start in range(first_k, end_k, BLOCK_K):
        group = start // _GROUP_SIZE
        x = tl.load(x_ptrs)  # [BLOCK_M, BLOCK_K]
        words = tl.load(packed_ptrs, mask=mask_word[None, :], other=0)  # [BLOCK_K, N_WORDS]
        zero_words = tl.load(
            packed_zero_ptr + group * n_words + offs_word, mask=mask_word, other=0
        )  # [N_WORDS]
        scale = tl.load(
            scale_ptr + group * 8 * n_words + offs_n, mask=mask_n, other=0.0
        )  # [8 * N_WORDS]
        level = unpacked(words, x.dtype, BLOCK_K, N_WORDS)
        zero = unpacked(zero_words[None, :], x.dtype, 1, N_WORDS)
        acc = dot(x, _weights(level, zero, scale[None, :]), acc)
        x_ptrs += BLOCK_K
        packed_ptrs += BLOCK_K * n_words
    N = 8 * n_words
    store_product(share_ptr + split.to(tl.int64) * M * N, acc, offs_m, offs_n, M, N, N)


def w4a16_matmul_config(M: int, target: DeviceTarget) -> dict[str, int]:
    """Choose narrow tiles for few rows, else larger ones. A word has eight columns."""
    is_amd = target.backend == "hip"
    if M <= MAX_FEW_ROWS:
        # AMD's warps are twice as wide
        return {
            "BLOCK_M": 16,
            "N_WORDS": 32,
            "num_warps": 2 if is_amd else 4,
            "num_stages": 2 if is_amd else 4,
        }
    block_m = min(triton.next_power_of_2(M), 128)
    num_warps = 8 if block_m == 128 else 4
    config = {
        "BLOCK_M": block_m,
        # of 64 rows, wider tiles take 43 % more instructions an element on sm_100
        "N_WORDS": 8 if target.arch == "sm_100" and block_m == 64 else 16,
        "num_warps": num_warps,
        "num_stages": 2 if is_amd else 3,
    }
    if target.arch == "sm_90" and block_m == 128:
        config["maxnreg"] = (
            128  # two blocks per multiprocessor: one multiplies while the other dequantises
        )
    return config


def _empty_out(x: Tensor, packed: Tensor, scale: Tensor, packed_zero: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], 8 * packed.shape[1])


@operator("w4a16_matmul", _empty_out)
def _w4a16_matmul_op(x, packed, scale, packed_zero, out):
    M, K = x.shape
    n_words = packed.shape[1]
    target = current_target()
    config = w4a16_matmul_config(M, target)
    n_groups = K // GROUP_SIZE
    n_tiles = triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(n_words, config["N_WORDS"])
    groups = groups_per_split(
        n_groups, n_tiles, multiprocessor_count(x), _PROGRAMS_PER_MULTIPROCESSOR
    )
    n_splits = triton.cdiv(n_groups, groups)
    # one split writes its product at once
    shares = out
    if n_splits > 1:
        shares = x.new_empty(n_splits, *out.shape, dtype=torch.float32)
    operands = (x, packed, scale, packed_zero, shares, M, n_words, n_groups, x.stride(0), groups)
    if M <= MAX_FEW_ROWS:
        _w4a16_few_rows_kernel[n_tiles, n_splits](*operands, **config)
    else:
        _w4a16_tiles_kernel[n_tiles, n_splits](
            *operands, BLOCK_K=_BLOCK_K, N_CHIPLETS=target.chiplet_count, **config
        )
    if n_splits > 1:
        sum_shares(shares, out)


def w4a16_matmul_reference(x: Tensor, packed: Tensor, scale: Tensor, packed_zero: Tensor) -> Tensor:
    """Compute `out = x @ ((level - zero) * scale)`,
    with zero and scale of row k in row k // 128.
    """

    def unpacked(words: Tensor) -> Tensor:
        levels = scale.new_empty(words.shape[0], 8 * words.shape[1])
        for nibble, column in enumerate(NIBBLE_COLUMNS):
            levels[:, column::8] = (words >> (4 * nibble)) & 15
        return levels

    centred = unpacked(packed) - unpacked(packed_zero).repeat_interleave(GROUP_SIZE, dim=0)
    return torch.einsum("mk,kn->mn", x, centred * scale.repeat_interleave(GROUP_SIZE, dim=0))


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    """Uniform levels, with zero points near the middle."""
    N, K = case["N"], case["K"]
    n_groups = K // GROUP_SIZE
    return {
        "x": make.terms(case["M"], K),
        "packed": make.integers(K, N // 8, low=-(2**31), high=2**31, dtype="int32"),
        "scale": make.uniform(n_groups, N, low=0.005, high=0.01),
        "packed_zero": pack_int4(make.integers(n_groups, N, low=6, high=10, dtype="int32")),
    }


def w4a16_matmul_flop_count(case: Case) -> float:
    """Count a multiplication and an addition per term, and a subtraction and a multiplication per
    weight.
    """
    return 2 * (case["M"] + 1) * case["N"] * case["K"]


def w4a16_matmul_memory_bytes(case: Case) -> float:
    """Reads x, half a byte per weight, and a scale and half a byte per group and column; writes the
    product.
    """
    M, N, K = case["M"], case["N"], case["K"]
    return (
        (M * K + M * N) * case.itemsize + N * K / 2 + N * (K // GROUP_SIZE) * (case.itemsize + 0.5)
    )


_DECODE = only(projections(), "decode")

w4a16_matmul_spec = KernelSpec(
    name="w4a16_matmul",
    family="low precision",
    inputs=_inputs,
    reference=w4a16_matmul_reference,
    cases=[
        *small_cases({"M": 16, "N": 1024, "K": 2048}, dtypes=["float16", "bfloat16"]),
        *model_cases(
            [*with_choice(_DECODE, M=1), *with_choice(_DECODE, M=16), *projections()],
            dtypes=["bfloat16"],
        ),
    ],
    edges=[
        # many and few rows, whole and partial tiles, one and several splits
        *cases(shapes=[{"M": 65, "N": 200, "K": 384}], dtypes=["float16", "bfloat16"]),
        *cases(
            shapes=[{"M": 20, "N": 136, "K": 256}, {"M": 1, "N": 264, "K": 128}],
            dtypes=["bfloat16"],
        ),
        *cases(
            shapes=[{"M": 3, "N": 8, "K": 640}, {"M": 0, "N": 64, "K": 128}], dtypes=["float16"]
        ),
    ],
    flop_count=w4a16_matmul_flop_count,
    memory_bytes=w4a16_matmul_memory_bytes,
    formula="out = x @ ((level - zero) * scale), scale and zero by groups of 128 rows",
    source="Lin et al., AWQ, 2023 (arXiv 2306.00978)",
    interpreted_shape={"M": 9, "N": 272, "K": 384},
)


@w4a16_matmul_spec.implementation("triton", directions=["fwd"], deterministic=True)
def w4a16_matmul(x: Tensor, packed: Tensor, scale: Tensor, packed_zero: Tensor) -> Tensor:
    """Compute `x @ ((level - zero) * scale)`, accumulated in float32.

    Args:
        x: [M, K] float16 or bfloat16, contiguous along its last dim, K a multiple of `GROUP_SIZE`.
        packed: [K, N / 8] int32, contiguous: levels packed by `formats.pack_int4` or AWQ.
        scale: [K / GROUP_SIZE, N] of x's dtype, contiguous.
        packed_zero: [K / GROUP_SIZE, N / 8] int32, contiguous: zero points, packed in the same way.

    Returns:
        [M, N] in x's dtype.
    """
    name = "w4a16_matmul"
    require_operands(name, dims=2, dtypes=(torch.float16, torch.bfloat16), x=x, scale=scale)
    require_integers(
        name, dtype=torch.int32, dims=2, like=x, packed=packed, packed_zero=packed_zero
    )
    require_equal(name, "the dtypes", x=x.dtype, scale=scale.dtype)
    require_equal(name, "x's columns and the rows of packed", x=x.shape[1], packed=packed.shape[0])
    if x.shape[1] % GROUP_SIZE:
        raise KernelError(
            f"{name}: x has {x.shape[1]} columns, no multiple of {GROUP_SIZE}; pad x and the "
            f"weights"
        )
    n_groups = x.shape[1] // GROUP_SIZE
    require_equal(
        name, "the shapes", packed_zero=tuple(packed_zero.shape), groups=(n_groups, packed.shape[1])
    )
    require_equal(
        name, "the shapes", scale=tuple(scale.shape), groups=(n_groups, 8 * packed.shape[1])
    )
    require_contiguous(name, scale=scale)
    return _w4a16_matmul_op(x, packed, scale, packed_zero)


@w4a16_matmul_spec.implementation("torch", directions=["fwd"], compile=True)
def _w4a16_matmul_torch(x: Tensor, packed: Tensor, scale: Tensor, packed_zero: Tensor) -> Tensor:
    zero = unpack_int4(packed_zero).repeat_interleave(GROUP_SIZE, dim=0)
    weight = (unpack_int4(packed) - zero) * scale.repeat_interleave(GROUP_SIZE, dim=0)
    return x @ weight
