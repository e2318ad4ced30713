"""Small suites for tests of the static layer: files, as Triton reads source."""

import importlib.util
from pathlib import Path

import pytest

from roofwatch.collector.compile.static import compile_case
from roofwatch.model.results import StaticFacts

HEADER = """
import torch, triton, triton.language as tl
from roofwatch import KernelSpec, cases

def declare(launch, language="triton", **shape):
    spec = KernelSpec(
        name="kernel", inputs=lambda case, make: {"x": make.normal(case["n"], case["n"])}, reference=lambda x: x,
        cases=cases(shapes=[shape or {"n": 64}], dtypes=["float16"]),
        flop_count=lambda case: 1, memory_bytes=lambda case: 1,
    )
    spec.implementation(language)(launch)
    return spec
"""
COPY = """
@triton.jit
def _copy_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < count), mask=offsets < count)

def launch(x):
    y = torch.empty_like(x)
    _copy_kernel[(1,)](x, y, x.numel(), BLOCK=256)
    return y

kernel = declare(launch)
"""
GEMM = """
@triton.jit
def _gemm_kernel(x_ptr, y_ptr, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m, offs_n, offs_k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, 32)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, n, 32):
        a = tl.load(x_ptr + offs_m[:, None] * n + (start + offs_k)[None, :])
        b = tl.load(x_ptr + (start + offs_k)[:, None] * n + offs_n[None, :])
        accumulator = tl.dot(a, b, accumulator)
    tl.store(y_ptr + offs_m[:, None] * n + offs_n[None, :], accumulator.to(tl.float16))

def launch(x):
    y = torch.empty_like(x)
    _gemm_kernel[(1,)](x, y, x.shape[0], BLOCK_M={m}, BLOCK_N={n}, num_warps=4)
    return y

kernel = declare(launch, n=512)
"""


def use_caches(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Have compiled code cached in a folder."""
    patch.setenv("TRITON_CACHE_DIR", str(folder / "cache" / "triton"))
    patch.setenv("ROOFWATCH_CACHE_DIR", str(folder / "cache"))


def facts_of(
    folder: Path, body: str, targets: tuple[str, ...] = ("sm_90",), name: str = "suite"
) -> list[StaticFacts]:
    """Compile the one case of a suite that is made of the header and a body."""
    file = folder / f"{name}.py"
    file.write_text(HEADER + body)
    module_spec = importlib.util.spec_from_file_location(name, file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    kernel = module.kernel
    (implementation,) = kernel.implementations.values()
    return compile_case(kernel, implementation, kernel.cases[0], targets)
