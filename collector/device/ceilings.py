"""Measure the ceilings of the device in the same run as the kernels; datasheets mislead
(meta-pytorch/MSLK#513).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from roofwatch.collector.device.datasheets import datasheet_ceilings
from roofwatch.collector.device.roofline import TF32, WIDER_DTYPES
from roofwatch.collector.timing.memory import last_level_cache_bytes
from roofwatch.collector.timing.timing import sample_launches
from roofwatch.model.errors import TimerError
from roofwatch.model.machine import Ceiling
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.timing_method import SamplingPlan, TimingMethod, possible_methods

_BLOCK = 4096
_WARPS = 8
_ITEM_BYTES = 4

_CPU_WORKING_SET_BYTES = 128 * 2**20
_GPU_WORKING_SET_BYTES = 4 * 2**30
"""Exceeds any cache, including AMD's Infinity Cache of 256 MiB. Source: triton_kernels/roofline.py.
"""
_CACHE_WORKING_SET_BYTES = (2**17, 2**20, 2**22)
_UNKNOWN_CACHE_BYTES = 32 * 2**20
_L2_FRACTIONS = (8, 4)
"""Working sets of 1/8 and 1/4 of the L2: each half of a divided L2 can hold a copy of shared data.
"""
_ROUNDS = 64
"""The first round reads from memory: one or two per cent of the time."""
_COPIES = 20
_MATMUL_SIZES = {"cpu": (192, 768), "cuda": (8192,)}
"""Not powers of two on a CPU, whose columns would map to few cache sets."""
_MAX_MATMUL_NS = 100e6
"""On a CPU without instructions for a dtype, a large matmul takes seconds and is not faster than a
small one.
"""
_CPU_DTYPES: tuple[str, ...] = ("float32", "float16", "bfloat16", "int8")
_GPU_DTYPES: tuple[str, ...] = (
    "float64",
    "float32",
    TF32,
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "int8",
)
_MATMUL_NAMES = {"int8": "_int_mm", "float8_e4m3fn": "_scaled_mm", TF32: "matmul with TF32 allowed"}


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
        # a different block each round, bypassing the L1 cache
        start = (tl.program_id(0) + turn) % block_count * BLOCK
        values = tl.load(source_ptr + start + offs, cache_modifier=".cg")  # [BLOCK]
        tl.store(target_ptr + start + offs, values, cache_modifier=".cg")  # [BLOCK]


def copy_in_rounds(source: torch.Tensor, target: torch.Tensor, *, rounds: int) -> None:
    """Copy `source` to `target`, float32 of shape [n], several times in one launch; n is a multiple
    of `_BLOCK`.
    """
    block_count = source.numel() // _BLOCK
    _copy_rounds_kernel[(block_count,)](
        source,
        target,
        block_count,
        ROUNDS=rounds,
        BLOCK=_BLOCK,
        num_warps=_WARPS,
    )


def whole_blocks(item_count: int) -> int:
    """Round down to a number of items that the copy kernel can handle; at least one block."""
    return max(1, item_count // _BLOCK) * _BLOCK


@dataclass(frozen=True)
class _Bench:
    device: str
    method: TimingMethod

    @property
    def is_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def best_ns(self, launch: Callable[[], object]) -> float:
        """The fastest of at least five launches, in ns."""
        plan = SamplingPlan(
            warmup_ms=5,
            budget_ms=20,
            min_samples=5,
            max_samples=50,
            relative_width=0.0,  # never precise enough to end early,
        )
        timed = sample_launches(
            launch=launch,
            plan=plan,
            device=self.device,
            method=self.method,
        )
        return min(timed.block.samples_ns)

    def copy_bytes_per_s(self, working_set_bytes: int, repeats: int = 1) -> float:
        """Best rate of a torch copy that reads and writes half of the working set each."""
        source = torch.ones(
            working_set_bytes // 2,
            dtype=torch.int8,
            device=self.device,
        )
        target = torch.empty_like(source)

        def copy() -> None:
            for _ in range(repeats):
                target.copy_(source)

        return repeats * working_set_bytes / self.best_ns(copy) * 1e9

    def l2_bytes_per_s(self, working_set_bytes: int) -> float:
        """Best rate of copies within the L2 cache, past the L1 cache."""
        count = whole_blocks(working_set_bytes // 2 // _ITEM_BYTES)
        source = torch.ones(count, dtype=torch.float32, device=self.device)
        target = torch.empty_like(source)
        moved_bytes = 2 * count * _ITEM_BYTES * _ROUNDS
        best_ns = self.best_ns(lambda: copy_in_rounds(source, target, rounds=_ROUNDS))
        return moved_bytes / best_ns * 1e9


def measure_ceilings(device: str, dtypes: Sequence[str], timer: Timer) -> Iterator[Ceiling]:
    """Measure bytes/s by copying and FLOP/s by the vendor's matmul, each as the best of several
    launches.

    float32 and wider dtypes that can replace one of the suite's are measured too. The timer is that
    of the run, because one with more overhead would lower the roof.

    Yields:
        Each ceiling as soon as it is measured, then the datasheet's. Dtypes without a matmul are
        left out.
    """
    bench = _Bench(device, ceiling_method(device, timer))
    if bench.is_gpu:
        device_dtypes = _GPU_DTYPES
        yield from _gpu_memory(bench)
    else:
        device_dtypes = _CPU_DTYPES
        yield from _cpu_memory(bench)
    needed_dtypes = _dtypes_of_roofs(dtypes)
    matmul_dtypes = [dtype for dtype in device_dtypes if dtype in needed_dtypes]
    for dtype in matmul_dtypes:
        ceiling = _matmul_ceiling(bench, dtype)
        if ceiling is not None:
            yield ceiling
    if bench.is_gpu:
        device_name = torch.cuda.get_device_properties(device).name
        yield from datasheet_ceilings(device_name, matmul_dtypes)
        torch.cuda.empty_cache()  # return gigabytes before the kernels are timed


def _dtypes_of_roofs(dtypes: Sequence[str]) -> set[str]:
    """The dtypes whose rate may be the roof of one of the suite's."""
    needed = {"float32", TF32}
    for dtype in dtypes:
        # both formats have the same rate, and torch multiplies only this one
        if dtype == "float8_e5m2":
            needed.add("float8_e4m3fn")
        else:
            needed.add(dtype)
        needed.update(WIDER_DTYPES.get(dtype, ()))
    return needed


def ceiling_method(device: str, timer: Timer) -> TimingMethod:
    """Timing method for ceilings: the run's timer, without rotation."""
    usual = possible_methods(device, timer)[0]
    if usual.cache is CacheState.ROTATED:
        return replace(usual, cache=CacheState.HOT)
    return usual


def _cpu_memory(bench: _Bench) -> Iterator[Ceiling]:
    """Ceilings of main memory and of the caches together."""
    yield Ceiling(
        resource="memory",
        level="dram",
        per_s=bench.copy_bytes_per_s(_CPU_WORKING_SET_BYTES),
        method=f"torch copy, {_CPU_WORKING_SET_BYTES // 2**20} MiB read and written, best of 5",
    )
    yield Ceiling(
        resource="memory",
        level="cache",
        per_s=max(bench.copy_bytes_per_s(size) for size in _CACHE_WORKING_SET_BYTES),
        up_to_bytes=_last_level_cache_bytes(bench.device),
        method="torch copy, 128 KiB to 4 MiB read and written, fastest size, best of 5",
    )


def _gpu_memory(bench: _Bench) -> Iterator[Ceiling]:
    """The fastest of copying, reading and filling: which one it is differs by device, and no kernel
    may exceed it.
    """
    free_bytes, _ = torch.cuda.mem_get_info(bench.device)
    size = min(_GPU_WORKING_SET_BYTES, free_bytes // 4) // 8 * 8
    rates = {"copy": bench.copy_bytes_per_s(size)}
    items = torch.ones(
        size // _ITEM_BYTES,
        dtype=torch.float32,
        device=bench.device,
    )
    rates |= {
        "sum": size / bench.best_ns(items.sum) * 1e9,
        "fill": size / bench.best_ns(items.zero_) * 1e9,
    }
    del items
    fastest = max(rates, key=lambda name: rates[name])
    rate_texts = [f"{name} {rate / 1e12:.3g} TB/s" for name, rate in rates.items()]
    yield Ceiling(
        resource="memory",
        level="dram",
        per_s=rates[fastest],
        method=(
            f"torch {fastest} of {size / 2**30:.2g} GiB, best of 5 each: {', '.join(rate_texts)}"
        ),
    )
    cache_bytes = _last_level_cache_bytes(bench.device)
    if torch.version.hip:
        # AMD's L2 is divided among chiplets, so its memory-side Infinity Cache is measured
        cache_per_s = bench.copy_bytes_per_s(cache_bytes // 4, _COPIES)
        method = (
            f"torch copy, {cache_bytes // 4 // 2**20} MiB read and written {_COPIES} times "
            f"in a row, best of 5"
        )
    else:
        cache_per_s = max(
            bench.l2_bytes_per_s(cache_bytes // fraction) for fraction in _L2_FRACTIONS
        )
        fractions = " and ".join(f"1/{fraction}" for fraction in _L2_FRACTIONS)
        method = f"copy of {fractions} of the L2, {_ROUNDS} rounds in one launch, best"
    yield Ceiling(
        resource="memory",
        level="cache",
        per_s=cache_per_s,
        up_to_bytes=cache_bytes,
        method=method,
    )


def _last_level_cache_bytes(device: str) -> int:
    try:
        return last_level_cache_bytes(device)
    except TimerError:
        return _UNKNOWN_CACHE_BYTES


def _matmul_ceiling(bench: _Bench, dtype: str) -> Ceiling | None:
    """Rate of the vendor's matmul; None if the device or torch has none for the dtype."""
    is_tf32_allowed = torch.backends.cuda.matmul.allow_tf32
    sizes = _MATMUL_SIZES["cpu"]
    if bench.is_gpu:
        sizes = _MATMUL_SIZES["cuda"]
    try:
        rates = dict(_matmul_rates(bench, dtype, sizes))
    except (RuntimeError, ValueError):  # raised by torch if it has no kernel
        if dtype == "float32":
            raise
        return None
    finally:
        # the worker times the suite next, with what the suite has chosen
        torch.backends.cuda.matmul.allow_tf32 = is_tf32_allowed
    size = max(rates, key=lambda size: rates[size])
    name = _MATMUL_NAMES.get(dtype, "matmul")
    return Ceiling(
        resource="compute",
        dtype=dtype,
        per_s=rates[size],
        method=f"torch {name} {size}x{size}x{size}, best of 5",
    )


def _matmul_rates(
    bench: _Bench,
    dtype: str,
    sizes: Sequence[int],
) -> Iterator[tuple[int, float]]:
    """FLOP/s by size, smallest first; stops before a matmul that would take too long."""
    expected_ns = 0.0
    for size, next_size in zip(sizes, [*sizes[1:], 0], strict=True):
        if expected_ns > _MAX_MATMUL_NS:
            return
        best_ns = bench.best_ns(_matmul(bench.device, dtype, size))
        yield size, 2.0 * size**3 / best_ns * 1e9
        expected_ns = best_ns * (next_size / size) ** 3


def _matmul(device: str, dtype: str, size: int) -> Callable[[], object]:
    """A matmul of random numbers; zeros draw less power and would be faster
    (NVIDIA/cutlass#2004).
    """
    generator = torch.Generator(device=device).manual_seed(0)
    # integers have their own function in torch
    if dtype == "int8":

        def random_integers() -> torch.Tensor:
            return torch.randint(
                -128,
                128,
                (size, size),
                generator=generator,
                device=device,
                dtype=torch.int8,
            )

        a = random_integers()
        b = random_integers()
        return lambda: torch._int_mm(a, b.t())
    if dtype == TF32:
        storage_dtype = torch.float32
    else:
        storage_dtype = getattr(torch, dtype)
    if dtype == TF32:
        torch.backends.cuda.matmul.allow_tf32 = True
    a = torch.randn(size, size, generator=generator, device=device).to(storage_dtype)
    b = torch.randn(size, size, generator=generator, device=device).to(storage_dtype)
    # eight-bit products need scales
    if dtype == "float8_e4m3fn":
        scale = torch.ones((), device=device)
        return lambda: torch._scaled_mm(
            a,
            b.t(),
            scale,
            scale,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
    product = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=product)
