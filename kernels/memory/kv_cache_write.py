"""Write new keys and values into a paged cache, in their own dtype or as scaled 8-bit floats.

Slot s is position `s % block_size` of block `s // block_size`. The cache is updated in place, so
the cost depends only on the number of new tokens.

Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with
PagedAttention, SOSP 2023 (arXiv 2309.06180).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import E4M3_MAX, as_kernel_operand, to_e4m3
from roofwatch.kernels.building_blocks.operands import (
    refuse_gradients,
    require_equal,
    require_integers,
    require_operands,
)
from roofwatch.kernels.building_blocks.shapes import cached_tokens, model_cases, small_cases

_TILE = 2048
_DTYPES = ("bfloat16", "float8_e4m3fn")
"""Of a cache."""


@triton.jit
def _kv_cache_write_kernel(
    key_ptr,
    value_ptr,
    key_cache_ptr,
    value_cache_ptr,
    slots_ptr,
    key_scale_ptr,
    value_scale_ptr,
    key_token_stride,
    value_token_stride,
    key_block_stride,
    value_block_stride,
    n_tokens,
    n_slots,
    n_cols,
    block_size,
    IS_SCALED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    n_tiles = tl.cdiv(n_cols, BLOCK_COLS)
    program = tl.program_id(0)
    tokens = program // n_tiles * BLOCK_T + tl.arange(0, BLOCK_T)
    offs = program % n_tiles * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    slots = tl.load(slots_ptr + tokens, mask=tokens < n_tokens, other=-1)  # [BLOCK_T]
    is_kept = (slots >= 0) & (slots < n_slots)
    mask = is_kept[:, None] & (offs < n_cols)[None, :]
    blocks, in_block = slots // block_size, slots % block_size
    tokens = tokens.to(tl.int64)
    key = tl.load(
        key_ptr + tokens[:, None] * key_token_stride + offs[None, :], mask=mask
    )  # [BLOCK_T, BLOCK_COLS]
    value = tl.load(
        value_ptr + tokens[:, None] * value_token_stride + offs[None, :], mask=mask
    )  # [BLOCK_T, BLOCK_COLS]
    if IS_SCALED:
        key = _as_e4m3(key.to(tl.float32) / tl.load(key_scale_ptr), key_cache_ptr.dtype.element_ty)
        value = _as_e4m3(
            value.to(tl.float32) / tl.load(value_scale_ptr), value_cache_ptr.dtype.element_ty
        )
    key_rows = key_cache_ptr + blocks * key_block_stride + in_block * n_cols
    value_rows = value_cache_ptr + blocks * value_block_stride + in_block * n_cols
    tl.store(key_rows[:, None] + offs[None, :], key, mask=mask)  # [BLOCK_T, BLOCK_COLS]
    tl.store(value_rows[:, None] + offs[None, :], value, mask=mask)  # [BLOCK_T, BLOCK_COLS]


@triton.jit
def _as_e4m3(x, element_type: tl.constexpr):
    return to_e4m3(x) if element_type == tl.uint8 else tl.clamp(x, -448.0, 448.0).to(element_type)


def kv_cache_write_config(n_cols: int) -> dict[str, int]:
    """Tiles of 2048 keys and 2048 values: four 16-byte loads per thread of an NVIDIA GPU in half
    precision.
    """
    block_cols = min(triton.next_power_of_2(n_cols), _TILE)
    return {"BLOCK_T": _TILE // block_cols, "BLOCK_COLS": block_cols, "num_warps": 4}


@torch.library.custom_op("roofwatch::kv_cache_write", mutates_args=("key_cache", "value_cache"))
def _kv_cache_write_op(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    key_scale: Tensor | None,
    value_scale: Tensor | None,
) -> None:
    n_tokens, n_heads, head_dim = key.shape
    n_blocks, block_size = key_cache.shape[:2]
    n_cols = n_heads * head_dim
    if not n_tokens or not n_cols:
        return  # CUDA rejects an empty grid
    config = kv_cache_write_config(n_cols)
    grid = (triton.cdiv(n_tokens, config["BLOCK_T"]) * triton.cdiv(n_cols, config["BLOCK_COLS"]),)
    is_scaled = key_scale is not None
    with torch.cuda.device_of(key):
        _kv_cache_write_kernel[grid](
            key,
            value,
            as_kernel_operand(key_cache) if is_scaled else key_cache,
            as_kernel_operand(value_cache) if is_scaled else value_cache,
            slots,
            key_scale,
            value_scale,
            key.stride(0),
            value.stride(0),
            key_cache.stride(0),
            value_cache.stride(0),
            n_tokens,
            n_blocks * block_size,
            n_cols,
            block_size,
            IS_SCALED=is_scaled,
            **config,
        )


@_kv_cache_write_op.register_fake
def _kv_cache_write_fake(*_operands: Tensor | None) -> None:
    return


def kv_cache_write_reference(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    key_scale: Tensor | None = None,
    value_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `cache[slots[t] // block_size, slots[t] % block_size] = new[t] / scale`,
    in a copy.
    """

    def written(new: Tensor, cache: Tensor, scale: Tensor | None) -> Tensor:
        if scale is not None:
            new = (new / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).to(cache.dtype)
        is_kept = slots >= 0
        block_size = cache.shape[1]
        return cache.index_put(
            (slots[is_kept] // block_size, slots[is_kept] % block_size), new[is_kept]
        )

    return written(key, key_cache, key_scale), written(value, value_cache, value_scale)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    n_tokens, n_blocks, block_size = case["T"], case["n_blocks"], case["block_size"]
    is_scaled = case.dtype == "float8_e4m3fn"
    new_shape = n_tokens, case["H_KV"], case["D"]
    cache_shape = n_blocks, block_size, case["H_KV"], case["D"]
    new_dtype = "bfloat16" if is_scaled else case.dtype
    blocks = make.permutation(n_blocks)
    if n_tokens <= n_blocks:  # decode: each token belongs to another sequence
        slots = blocks[:n_tokens] * block_size + make.integers(n_tokens, high=block_size)
    else:  # a prompt fills block after block
        slots = (
            blocks[:, None] * block_size + torch.arange(block_size, device=make.device)
        ).flatten()[:n_tokens]
    inputs = {
        "key": make.normal(*new_shape, dtype=new_dtype),
        "value": make.normal(*new_shape, dtype=new_dtype),
        "key_cache": make.normal(*cache_shape),
        "value_cache": make.normal(*cache_shape),
        "slots": slots,
    }
    if is_scaled:
        inputs["key_scale"] = make.uniform(1, low=0.01, high=0.02, dtype="float32")
        inputs["value_scale"] = make.uniform(1, low=0.01, high=0.02, dtype="float32")
    return inputs


def kv_cache_write_flop_count(case: Case) -> float:
    """One division per element for a cache of 8-bit floats, else none."""
    return (2 if case.dtype == "float8_e4m3fn" else 0) * case["T"] * case["H_KV"] * case["D"]


def kv_cache_write_memory_bytes(case: Case) -> float:
    """Reads new keys and values (bfloat16 for a cache of 8-bit floats) and 8 bytes of slot per
    token; writes.
    """
    new_itemsize = 2 if case.dtype == "float8_e4m3fn" else case.itemsize
    return case["T"] * (2 * case["H_KV"] * case["D"] * (new_itemsize + case.itemsize) + 8)


kv_cache_write_spec = KernelSpec(
    name="kv_cache_write",
    family="memory",
    inputs=_inputs,
    reference=kv_cache_write_reference,
    cases=[
        *small_cases(
            {"T": 512, "H_KV": 8, "D": 64, "block_size": 16, "n_blocks": 64}, dtypes=_DTYPES
        ),
        *model_cases(cached_tokens(), dtypes=_DTYPES),
    ],
    edges=[
        *cases(
            shapes=[
                {"T": 63, "H_KV": 3, "D": 96, "block_size": 7, "n_blocks": 9},
                {"T": 1, "H_KV": 1, "D": 63, "block_size": 1, "n_blocks": 2},
                {"T": 0, "H_KV": 1, "D": 63, "block_size": 2, "n_blocks": 2},
            ],
            dtypes=_DTYPES,
        ),
        # a row of more than one tile
        *cases(
            shapes=[{"T": 2, "H_KV": 20, "D": 128, "block_size": 2, "n_blocks": 3}],
            dtypes=["float16", "float32"],
        ),
    ],
    flop_count=kv_cache_write_flop_count,
    memory_bytes=kv_cache_write_memory_bytes,
    token_count=lambda case: case["T"],
    mutates=("key_cache", "value_cache"),
    formula="cache[slots[t] // block_size, slots[t] % block_size] = new[t] / scale",
    source="Kwon et al., Efficient Memory Management for Large Language Model Serving with "
    "PagedAttention, 2023 "
    "(arXiv 2309.06180)",
    interpreted_shape={"T": 11, "H_KV": 2, "block_size": 4, "n_blocks": 6},
)


@kv_cache_write_spec.implementation("triton", directions=["fwd"], deterministic=True)
def kv_cache_write(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    key_scale: Tensor | None = None,
    value_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Write each token's key and value into its slot of the caches, in place.

    Args:
        key: [T, H_KV, D], contiguous per token; the token stride is arbitrary, as in a slice of a
            joint projection.
        value: [T, H_KV, D] of key's dtype, contiguous per token.
        key_cache: [n_blocks, block_size, H_KV, D], contiguous per block, of key's dtype or
            float8_e4m3fn with scales.
        value_cache: Same shape and dtype as key_cache, contiguous per block.
        slots: [T] int64, distinct. Tokens with a slot out of range are skipped.
        key_scale: [1] float32 on the device. Keys are divided by it, clamped to ±448 and rounded to
            float8_e4m3fn.
        value_scale: [1] float32, the same for values.

    Returns:
        key_cache and value_cache.
    """
    _require_rows(key, value, key_cache, value_cache, slots)
    _require_scales(key, key_cache, key_scale=key_scale, value_scale=value_scale)
    _kv_cache_write_op(key, value, key_cache, value_cache, slots, key_scale, value_scale)
    return key_cache, value_cache


def _require_rows(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
) -> None:
    name = "kv_cache_write"
    require_operands(name, dims=3, key=key, value=value)
    require_equal(name, "the dtypes", key=key.dtype, value=value.dtype)
    require_equal(name, "the shapes", key=tuple(key.shape), value=tuple(value.shape))
    require_equal(
        name,
        "the caches' shapes",
        key_cache=tuple(key_cache.shape),
        value_cache=tuple(value_cache.shape),
    )
    require_equal(
        name, "the caches' dtypes", key_cache=key_cache.dtype, value_cache=value_cache.dtype
    )
    if key_cache.ndim != 4:
        raise KernelError(
            f"{name}: a cache must have 4 dims, got shape {tuple(key_cache.shape)}; call "
            f"reshape(...)"
        )
    require_equal(
        name, "heads and head dim", key=tuple(key.shape[1:]), key_cache=tuple(key_cache.shape[2:])
    )
    require_integers(name, dtype=torch.int64, dims=1, like=key, slots=slots)
    require_equal(name, "tokens and slots", key=key.shape[0], slots=slots.shape[0])
    require_equal(
        name,
        "the devices",
        key=key.device,
        key_cache=key_cache.device,
        value_cache=value_cache.device,
    )
    for operand, rows in {"key": key[:1], "value": value[:1]}.items():
        if not rows.is_contiguous():
            raise KernelError(
                f"{name}: {operand} must be contiguous per token; call {operand}.contiguous()"
            )
    for operand, block in {"key_cache": key_cache[:1], "value_cache": value_cache[:1]}.items():
        if not block.is_contiguous():
            raise KernelError(
                f"{name}: {operand} must be contiguous per block; allocate it as [n_blocks, "
                f"block_size, H_KV, D]"
            )
    refuse_gradients(name, key=key, value=value, key_cache=key_cache, value_cache=value_cache)


def _require_scales(new: Tensor, cache: Tensor, **scales: Tensor | None) -> None:
    is_scaled = cache.dtype == torch.float8_e4m3fn
    if not is_scaled:
        require_equal("kv_cache_write", "the dtypes", new=new.dtype, cache=cache.dtype)
    for name, scale in scales.items():
        if (scale is not None) != is_scaled:
            raise KernelError(
                f"kv_cache_write: a cache of {cache.dtype} {'needs' if is_scaled else 'takes no'} "
                f"{name}; " + (f"pass {name}=torch.ones(1)" if is_scaled else f"omit {name}")
            )
        if scale is not None and (
            scale.dtype != torch.float32 or scale.numel() != 1 or scale.device != cache.device
        ):
            raise KernelError(
                f"kv_cache_write: {name} must be one float32 on {cache.device}, got "
                f"{tuple(scale.shape)} of "
                f"{scale.dtype} on {scale.device}; call {name}.to({str(cache.device)!r}, "
                f"torch.float32)"
            )


@kv_cache_write_spec.implementation("torch", directions=["fwd"], compile=True)
def _kv_cache_write_torch(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    key_scale: Tensor | None = None,
    value_scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    for new, cache, scale in ((key, key_cache, key_scale), (value, value_cache, value_scale)):
        if scale is None:
            _write_rows(new, cache, slots)
        else:
            code = (new.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
            _write_rows(
                code.view(torch.uint8), cache.view(torch.uint8), slots
            )  # torch cannot index 8-bit floats
    return key_cache, value_cache


def _write_rows(new: Tensor, cache: Tensor, slots: Tensor) -> None:
    if not slots.numel():
        return
    # selecting the kept tokens would synchronise with the host: instead, a skipped token repeats
    # the write of the first kept one or, if there is none, rewrites slot 0
    is_kept = slots >= 0
    first = is_kept.int().argmax().reshape(1)
    slot = slots[first].clamp(min=0)
    block_size = cache.shape[1]
    row = torch.where(
        is_kept[first][:, None, None], new[first], cache[slot // block_size, slot % block_size]
    )
    targets = torch.where(is_kept, slots, slot)
    rows = torch.where(is_kept[:, None, None], new, row)
    cache[targets // block_size, targets % block_size] = rows
