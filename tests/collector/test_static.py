"""Facts of kernels compiled for GPUs that are not here; each test's suite is a file, as Triton reads source."""

import hashlib
import importlib.util
import sys
from pathlib import Path

import pytest

from collector.binary import machine_code
from collector.record import Outcome, StaticFacts
from collector.static import compile_case
from collector.targets import DEFAULT_TARGETS, TargetError, parse_target

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
CUDA = '''
from roofwatch import CudaKernel

SOURCE = """
__global__ void mirror(const float* x, float* y, long long n) {
  __shared__ float tile[256];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[255 - threadIdx.x];
}
"""

def launch(x):
    y = torch.empty_like(x)
    CudaKernel(SOURCE, "mirror").launch(1, 256, (x, y, x.numel()), shared_bytes=64)
    return y

kernel = declare(launch, "cuda")
'''


def facts_of(folder: Path, body: str, targets: tuple[str, ...] = ("sm_90",), name: str = "suite") -> list[StaticFacts]:
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


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("ROOFWATCH_CACHE_DIR", str(tmp_path / "cuda"))


def test_a_kernel_compiles_for_all_six_targets_without_any_gpu(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, COPY, DEFAULT_TARGETS)
    assert [fact.target for fact in facts] == ["sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950"]
    for fact in facts:
        assert fact.outcome is Outcome.OK, fact.message
        assert fact.function == "_copy_kernel"
        assert fact.configuration["BLOCK"] == 256
        assert fact.configuration["num_warps"] == 4
        assert fact.registers is not None
        assert 0 < fact.registers < 64
        assert fact.local_bytes == 0
        assert fact.code_bytes
    assert [fact.spilled_registers for fact in facts] == [None, None, None, None, 0, 0]


def test_a_tile_too_large_for_its_warps_spills_on_some_targets(tmp_path: Path) -> None:
    targets = ("sm_90", "sm_100")
    small = facts_of(tmp_path, GEMM.format(m=64, n=64), targets, "small")
    large = facts_of(tmp_path, GEMM.format(m=128, n=256), targets, "large")
    assert [fact.local_bytes for fact in small] == [0, 0]
    # sm_100 keeps the accumulator in tensor memory, sm_90 in registers, of which a thread has 255
    assert large[0].local_bytes
    assert large[0].registers == 255
    assert large[1].local_bytes == 0
    assert (large[0].shared_bytes or 0) > (small[0].shared_bytes or 0)


def test_comments_names_and_moves_leave_the_machine_code_hash_equal_and_arithmetic_does_not(tmp_path: Path) -> None:
    (before,) = facts_of(tmp_path, COPY, name="before")
    moved = "\n# moved down by a comment\n\n" + COPY.replace("offsets", "where").replace("_copy_kernel", "_renamed")
    (same,) = facts_of(tmp_path, moved, name="same")
    (other,) = facts_of(tmp_path, COPY.replace("tl.load(x_ptr + offsets, mask=offsets < count)", "1.0"), name="other")
    assert same.code_hash == before.code_hash
    assert other.code_hash != before.code_hash


def test_arguments_are_specialised_as_at_run_time(tmp_path: Path) -> None:
    """4096 elements are divisible by 16, 63 * 63 are not: the code that would run is another."""
    (divisible,) = facts_of(tmp_path, COPY, name="divisible")
    (odd,) = facts_of(tmp_path, COPY.replace("declare(launch)", "declare(launch, n=63)"), name="odd")
    assert divisible.code_hash != odd.code_hash


def test_a_function_compiled_in_two_ways_is_two_entries(tmp_path: Path) -> None:
    twice = COPY.replace(
        "    return y\n",
        "    _copy_kernel[(1,)](x, y, x.numel(), BLOCK=512)\n    _copy_kernel[(2,)](x, y, 1, BLOCK=512)\n"
        "    return y\n",
    )
    assert [fact.function for fact in facts_of(tmp_path, twice)] == ["_copy_kernel", "_copy_kernel#2", "_copy_kernel#3"]


def test_an_autotuned_kernel_is_compiled_without_timing_anything(tmp_path: Path) -> None:
    tuned = COPY.replace(
        "@triton.jit",
        "@triton.autotune(\n"
        "    [triton.Config({'BLOCK': 128}, num_warps=2), triton.Config({'BLOCK': 1024})], key=['count'])\n"
        "@triton.jit",
    ).replace(", BLOCK=256", "")
    (fact,) = facts_of(tmp_path, tuned)
    assert fact.outcome is Outcome.OK, fact.message
    assert (fact.configuration["BLOCK"], fact.configuration["num_warps"]) == (128, 2)


def test_what_does_not_compile_is_an_outcome_of_its_target(tmp_path: Path) -> None:
    (fact,) = facts_of(tmp_path, COPY.replace("offsets = ", "tl.static_assert(False, 'never')\n    offsets = "))
    assert fact.outcome is Outcome.COMPILE_ERROR
    assert "never" in (fact.message or "")
    assert fact.code_hash is None


def test_a_launcher_that_launches_nothing_says_so(tmp_path: Path) -> None:
    (fact,) = facts_of(tmp_path, "kernel = declare(lambda x: x)")
    assert (fact.outcome, fact.message) == (Outcome.UNSUPPORTED, "launches no Triton kernel")


def test_machine_code_is_the_text_section_of_an_elf_file(tmp_path: Path) -> None:
    (fact,) = facts_of(tmp_path, COPY)
    (cubin,) = (tmp_path / "triton").rglob("*.cubin")
    code = machine_code(cubin.read_bytes())
    assert hashlib.sha256(code).hexdigest() == fact.code_hash
    assert len(code) == fact.code_bytes
    with pytest.raises(ValueError, match="not a 64-bit"):
        machine_code(b"MZ" + bytes(100))


@pytest.mark.parametrize(("name", "warp_size"), [("sm_90", 32), ("gfx942", 64), ("gfx1100", 32)])
def test_a_target_has_its_vendors_warp_size(name: str, warp_size: int) -> None:
    assert parse_target(name).warp_size == warp_size


@pytest.mark.parametrize("name", ["", "sm90", "h100", "gfx", "sm_90; rm -rf"])
def test_an_unknown_target_is_refused_with_examples(name: str) -> None:
    with pytest.raises(TargetError, match="sm_80, sm_90"):
        parse_target(name)


def test_cuda_cpp_is_compiled_for_nvidia_s_targets_and_launched_on_none(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, CUDA, DEFAULT_TARGETS)

    assert [fact.outcome for fact in facts] == [Outcome.OK] * 4 + [Outcome.UNSUPPORTED] * 2
    for fact in facts[:4]:
        assert fact.function == "mirror"
        assert fact.configuration["num_warps"] == 8
        assert fact.shared_bytes == 256 * 4 + 64
        assert fact.registers
        assert fact.local_bytes == 0
        assert fact.code_bytes
    assert "does not compile for gfx942" in (facts[4].message or "")


def test_cuda_cpp_that_does_not_compile_says_where_and_why(tmp_path: Path) -> None:
    (fact,) = facts_of(tmp_path, CUDA.replace("tile[255", "tiles[255"))

    assert fact.outcome is Outcome.COMPILE_ERROR
    assert 'mirror.cu(6): error: identifier "tiles" is undefined' in (fact.message or "")


def test_cuda_cpp_for_which_nothing_is_installed_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    (fact,) = facts_of(tmp_path, CUDA)

    assert fact.outcome is Outcome.UNSUPPORTED
    assert "pip install cuda-bindings nvidia-cuda-nvrtc" in (fact.message or "")
