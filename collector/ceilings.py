"""Measure the ceilings of the device in the same run as the kernels: datasheets mislead (meta-pytorch/MSLK#513)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from collector.machine import Ceiling
from collector.sampling import SamplingPlan
from collector.timing import sample_launches

_DRAM_WORKING_SET_BYTES = 128 * 2**20
_CACHE_WORKING_SET_BYTES = (2**17, 2**20, 2**22)
_UNKNOWN_CACHE_BYTES = 32 * 2**20
_MATMUL_SIZE = {"cpu": 768, "cuda": 8192}
_MATMUL_DTYPES = ("float32", "float16", "bfloat16")


def measure_ceilings(device: str, dtypes: Sequence[str]) -> list[Ceiling]:
    """Measure bytes/s by copying and FLOP/s by the vendor's matmul, per dtype; the best of several tries each.

    Args:
        device: `cpu` or `cuda`.
        dtypes: Those of the suite; others are not measured. float32 always is: it also bounds what has no matmul.
    """
    kind = "cuda" if device.startswith("cuda") else "cpu"
    ceilings = [
        Ceiling(
            resource="memory",
            level="dram",
            per_s=_copy_bytes_per_s(device, _DRAM_WORKING_SET_BYTES),
            method=f"torch copy, {_DRAM_WORKING_SET_BYTES // 2**20} MiB read and written, best of 5",
        )
    ]
    if kind == "cpu":
        ceilings.append(
            Ceiling(
                resource="memory",
                level="cache",
                per_s=max(_copy_bytes_per_s(device, size) for size in _CACHE_WORKING_SET_BYTES),
                up_to_bytes=_last_level_cache_bytes(),
                method="torch copy of 128 KiB to 4 MiB read and written, the fastest, best of 5",
            )
        )
    size = _MATMUL_SIZE[kind]
    ceilings += [
        Ceiling(
            resource="compute",
            dtype=dtype,
            per_s=_matmul_flop_per_s(device, dtype, size),
            method=f"torch matmul {size}x{size}x{size}, best of 5",
        )
        for dtype in _MATMUL_DTYPES
        if dtype in {"float32", *dtypes}
    ]
    return ceilings


def _last_level_cache_bytes() -> int:
    """Of the largest cache that the first CPU sees. On a shared host it is an upper bound: neighbours use it too."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return max((int(size[:-1]) * units[size[-1]] for size in sizes), default=_UNKNOWN_CACHE_BYTES)


def _best_ns(device: str, launch: Callable[[], object]) -> float:
    plan = SamplingPlan(warmup_ms=5, budget_ms=20, min_samples=5, max_samples=50, relative_width=0.0)
    return min(sample_launches(launch, plan, device=device).samples_ns)


def _copy_bytes_per_s(device: str, working_set_bytes: int) -> float:
    source = torch.ones(working_set_bytes // 2, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return working_set_bytes / _best_ns(device, lambda: target.copy_(source)) * 1e9


def _matmul_flop_per_s(device: str, dtype: str, size: int) -> float:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator).to(device, getattr(torch, dtype)) for _ in range(2))
    product = torch.empty_like(left)
    return 2.0 * size**3 / _best_ns(device, lambda: torch.matmul(left, right, out=product)) * 1e9
