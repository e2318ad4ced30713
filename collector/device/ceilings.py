"""Measure the ceilings of the device in the same run as the kernels: datasheets mislead (meta-pytorch/MSLK#513)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pynvml
import torch
import triton
import triton.language as tl

from roofwatch.collector.device.datasheets import datasheet_ceilings
from roofwatch.collector.device.roofline import HOLDERS, TF32
from roofwatch.collector.errors import TimerError
from roofwatch.collector.record.machine import Ceiling
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.caches import last_level_cache_bytes
from roofwatch.collector.timing.method import SamplingPlan, TimingMethod, default_method, possible_methods
from roofwatch.collector.timing.timing import sample_launches

_BLOCK = 4096
_WARPS = 8
ITEM_BYTES = 4


@triton.jit  # type: ignore[untyped-decorator]
def _copy_rounds_kernel(  # type: ignore[no-untyped-def]
    source_ptr,
    target_ptr,
    block_count,
    ROUNDS: tl.constexpr,  # noqa: N803  a constant of the compiler
    BLOCK: tl.constexpr,  # noqa: N803
):
    offs = tl.arange(0, BLOCK)
    for turn in range(ROUNDS):
        # another block each round, past the L1 that keeps what its own multiprocessor has read
        start = (tl.program_id(0) + turn) % block_count * BLOCK
        values = tl.load(source_ptr + start + offs, cache_modifier=".cg")  # [BLOCK]
        tl.store(target_ptr + start + offs, values, cache_modifier=".cg")  # [BLOCK]


def copy_in_rounds(source: torch.Tensor, target: torch.Tensor, *, rounds: int) -> None:
    """Copy `source` to `target`, all of it, as many times, in one launch.

    Args:
        source: float32 on a GPU, shape [n]; n is a multiple of `whole_blocks(1)`.
        target: Like it.
        rounds: Of which the first finds the cache as it is.
    """
    block_count = source.numel() // _BLOCK
    _copy_rounds_kernel[(block_count,)](source, target, block_count, ROUNDS=rounds, BLOCK=_BLOCK, num_warps=_WARPS)


def whole_blocks(item_count: int) -> int:
    """The most items up to a count that the kernel can copy; one block at least."""
    return max(1, item_count // _BLOCK) * _BLOCK


_CPU_WORKING_SET_BYTES = 128 * 2**20
_GPU_WORKING_SET_BYTES = 4 * 2**30
"""Far more than any cache, AMD's Infinity Cache of 256 MiB among them. Source: triton_kernels/roofline.py."""
_CACHE_WORKING_SET_BYTES = (2**17, 2**20, 2**22)
_UNKNOWN_CACHE_BYTES = 32 * 2**20
_SHARES_OF_L2 = (8, 4)
"""Small enough that each half of a divided L2 can hold its own copy of what both read."""
_ROUNDS = 64
"""The first one comes from memory: a percent or two of the time."""
_COPIES = 20
_MATMUL_SIZES = {"cpu": (192, 768), "cuda": (8192,)}
"""Those of a CPU are no powers of two, whose columns would all meet in a few places of its caches."""
_LONGEST_PRODUCT_NS = 100e6
"""Where a CPU has no instructions for a dtype, torch multiplies element by element: seconds for a large product, at a
rate that a small one reaches and often exceeds.
"""
_CPU_DTYPES = ("float32", "float16", "bfloat16", "int8")
_GPU_DTYPES = ("float64", "float32", TF32, "float16", "bfloat16", "float8_e4m3fn", "int8")
_ALIASES = {"float8_e5m2": "float8_e4m3fn"}
"""Multiplied at the same rate."""


@dataclass(frozen=True)
class _Timed:
    """A device, and how its launches are timed."""

    device: str
    method: TimingMethod

    @property
    def is_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def best_ns(self, launch: Callable[[], object]) -> float:
        """The fastest of five launches or more, in ns."""
        plan = SamplingPlan(warmup_ms=5, budget_ms=20, min_samples=5, max_samples=50, relative_width=0.0)
        return min(sample_launches(launch, plan, device=self.device, method=self.method).samples_ns)


def measure_ceilings(device: str, dtypes: Sequence[str], timer: Timer | None = None) -> Iterator[Ceiling]:
    """Measure bytes/s by copying and FLOP/s by the vendor's matmul, per dtype; the best of several tries each.

    Args:
        device: `cpu` or `cuda`.
        dtypes: Those of the suite, and with each those that its products may be computed in; others are not measured.
            float32 always is: it also bounds what has no matmul.
        timer: That of the run; what every device of its kind offers if left out. One that sees more than the kernel
            would lower the roof of those that another times.

    Yields:
        Each as soon as it is measured, then the datasheet's. A dtype that the device cannot multiply has none.
    """
    timed = _Timed(device, ceiling_method(device, timer))
    wanted = _wanted(dtypes, is_gpu=timed.is_gpu)
    yield from _gpu_memory(timed) if timed.is_gpu else _cpu_memory(timed)
    for dtype in wanted:
        ceiling = _matmul_ceiling(timed, dtype)
        if ceiling is not None:
            yield ceiling
    if timed.is_gpu:
        yield from datasheet_ceilings(torch.cuda.get_device_properties(device).name, wanted)
        torch.cuda.empty_cache()  # what is timed next shall not find gigabytes set aside


def ceiling_method(device: str, timer: Timer | None) -> TimingMethod:
    """How ceilings are timed: by the timer of the run, with its usual cache. They have no copies to take turns on, and
    need none: what they measure exceeds the cache, or is to lie in it.
    """
    usual = default_method(device) if timer is None else possible_methods(device, timer)[0]
    return replace(usual, cache=CacheState.HOT) if usual.cache is CacheState.ROTATED else usual


def _wanted(dtypes: Sequence[str], *, is_gpu: bool) -> list[str]:
    named = {_ALIASES.get(dtype, dtype) for dtype in dtypes}
    wanted = {"float32", TF32, *named, *(holder for dtype in named for holder in HOLDERS.get(dtype, ()))}
    return [dtype for dtype in (_GPU_DTYPES if is_gpu else _CPU_DTYPES) if dtype in wanted]


# --- memory


def _cpu_memory(timed: _Timed) -> Iterator[Ceiling]:
    yield Ceiling(
        resource="memory",
        level="dram",
        per_s=_copy_bytes_per_s(timed, _CPU_WORKING_SET_BYTES),
        method=f"torch copy, {_CPU_WORKING_SET_BYTES // 2**20} MiB read and written, best of 5",
    )
    yield Ceiling(
        resource="memory",
        level="cache",
        per_s=max(_copy_bytes_per_s(timed, size) for size in _CACHE_WORKING_SET_BYTES),
        up_to_bytes=_last_level_cache_bytes(timed.device),
        method="torch copy of 128 KiB to 4 MiB read and written, the fastest, best of 5",
    )


def _gpu_memory(timed: _Timed) -> Iterator[Ceiling]:
    """Of a GPU's memory the fastest of copying, reading and filling: which one is differs by device, and a roof must
    lie above all kernels, those that only read too.
    """
    free_bytes, _ = torch.cuda.mem_get_info(timed.device)
    size = min(_GPU_WORKING_SET_BYTES, free_bytes // 4) // 8 * 8
    ways = {
        "copy": _copy_bytes_per_s(timed, size),
        "sum": _sum_bytes_per_s(timed, size),
        "fill": _fill_bytes_per_s(timed, size),
    }
    fastest = max(ways, key=lambda way: ways[way])
    yield Ceiling(
        resource="memory",
        level="dram",
        per_s=ways[fastest],
        method=f"torch {fastest} of {size / 2**30:.2g} GiB, the fastest of {', '.join(ways)}, best of 5 each",
    )
    cache_bytes = _last_level_cache_bytes(timed.device)
    if torch.version.hip:
        yield _infinity_cache(timed, cache_bytes)
        return
    yield Ceiling(
        resource="memory",
        level="cache",
        per_s=max(_l2_bytes_per_s(timed, cache_bytes // share) for share in _SHARES_OF_L2),
        up_to_bytes=cache_bytes,
        method=f"copy of 1/{_SHARES_OF_L2[0]} and 1/{_SHARES_OF_L2[1]} of the L2, {_ROUNDS} rounds in one launch, best",
    )


def _infinity_cache(timed: _Timed, cache_bytes: int) -> Ceiling:
    """That of AMD's memory side. Its L2 is divided over chiplets, so that no kernel has it as one."""
    size = cache_bytes // 4
    source = torch.ones(size // 2, dtype=torch.int8, device=timed.device)
    target = torch.empty_like(source)

    def copy_again() -> None:
        for _ in range(_COPIES):
            target.copy_(source)

    return Ceiling(
        resource="memory",
        level="cache",
        per_s=_COPIES * size / timed.best_ns(copy_again) * 1e9,
        up_to_bytes=cache_bytes,
        method=f"torch copy, {size // 2**20} MiB read and written {_COPIES} times in a row, best of 5",
    )


def _last_level_cache_bytes(device: str) -> int:
    try:
        return last_level_cache_bytes(device)
    except TimerError:
        return _UNKNOWN_CACHE_BYTES


def _copy_bytes_per_s(timed: _Timed, working_set_bytes: int) -> float:
    source = torch.ones(working_set_bytes // 2, dtype=torch.int8, device=timed.device)
    target = torch.empty_like(source)
    return working_set_bytes / timed.best_ns(lambda: target.copy_(source)) * 1e9


def _sum_bytes_per_s(timed: _Timed, working_set_bytes: int) -> float:
    source = torch.ones(working_set_bytes // 4, dtype=torch.float32, device=timed.device)
    return working_set_bytes / timed.best_ns(source.sum) * 1e9


def _fill_bytes_per_s(timed: _Timed, working_set_bytes: int) -> float:
    target = torch.empty(working_set_bytes // 4, dtype=torch.float32, device=timed.device)
    return working_set_bytes / timed.best_ns(target.zero_) * 1e9


def _l2_bytes_per_s(timed: _Timed, working_set_bytes: int) -> float:
    source = torch.ones(whole_blocks(working_set_bytes // 2 // ITEM_BYTES), dtype=torch.float32, device=timed.device)
    target = torch.empty_like(source)
    moved = 2 * source.numel() * ITEM_BYTES * _ROUNDS
    return moved / timed.best_ns(lambda: copy_in_rounds(source, target, rounds=_ROUNDS)) * 1e9


# --- arithmetic


def _matmul_ceiling(timed: _Timed, dtype: str) -> Ceiling | None:
    """That of the vendor's matmul; None where the device or torch has none for the dtype."""
    sizes = _MATMUL_SIZES["cuda" if timed.is_gpu else "cpu"]
    try:
        rates = dict(_matmul_rates(timed, dtype, sizes))
    except (RuntimeError, ValueError):  # what torch raises where it has no kernel
        if dtype == "float32":
            raise
        return None
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    size = max(rates, key=lambda each: rates[each])
    return Ceiling(
        resource="compute",
        dtype=dtype,
        per_s=rates[size],
        method=f"torch {_NAMES.get(dtype, 'matmul')} {size}x{size}x{size}, best of 5{_clock_in_words(timed.device)}",
    )


def _matmul_rates(timed: _Timed, dtype: str, sizes: Sequence[int]) -> Iterator[tuple[int, float]]:
    """FLOP/s by size, the smallest first, as long as the next product is not too long to wait for."""
    expected_ns = 0.0
    for size, next_size in zip(sizes, [*sizes[1:], 0], strict=True):
        if expected_ns > _LONGEST_PRODUCT_NS:
            return
        best_ns = timed.best_ns(_matmul(timed.device, dtype, size))
        yield size, 2.0 * size**3 / best_ns * 1e9
        expected_ns = best_ns * (next_size / size) ** 3


_NAMES = {"int8": "_int_mm", "float8_e4m3fn": "_scaled_mm", TF32: "matmul with TF32 allowed"}


def _matmul(device: str, dtype: str, size: int) -> Callable[[], object]:
    """A product of matrices of random numbers: of zeros, a device that is held by its power would do more
    (NVIDIA/cutlass#2004).
    """
    generator = torch.Generator(device=device).manual_seed(0)
    if dtype == "int8":
        left, right = (
            torch.randint(-128, 128, (size, size), generator=generator, device=device, dtype=torch.int8)
            for _ in range(2)
        )
        return lambda: torch._int_mm(left, right.t())
    if dtype == TF32:
        torch.backends.cuda.matmul.allow_tf32 = True
    held = torch.float32 if dtype == TF32 else getattr(torch, dtype)
    left, right = (torch.randn(size, size, generator=generator, device=device).to(held) for _ in range(2))
    if dtype == "float8_e4m3fn":
        scale = torch.ones((), device=device)
        return lambda: torch._scaled_mm(left, right.t(), scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True)
    product = torch.empty_like(left)
    return lambda: torch.matmul(left, right, out=product)


def _clock_in_words(device: str) -> str:
    """What the multiprocessors run at right after a matmul; nothing where that cannot be asked."""
    if not device.startswith("cuda") or torch.version.hip:
        return ""
    try:
        return f", at {torch.cuda.clock_rate()} MHz"
    except (RuntimeError, pynvml.NVMLError):
        return ""
