"""Static facts of small kernels."""

import ctypes
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import triton

from roofwatch.collector.compile import triton_launches
from roofwatch.collector.compile.launches import without_aslr
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.model.errors import ToolchainError
from roofwatch.model.machine import Outcome
from tests.collector.static_suite import COPY, facts_of, use_caches

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


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_caches(tmp_path, monkeypatch)


def test_all_tensor_memory_leaves_room_for_one_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = triton_launches._compiled_by_triton
    monkeypatch.setattr(
        triton_launches,
        "_compiled_by_triton",
        lambda *of: replace(original(*of), tensor_memory_columns=512),
    )

    (facts,) = facts_of(tmp_path, COPY, ("sm_100",))

    assert (facts.theoretical_occupancy, facts.occupancy_limits) == (4 / 64, ("blocks",))


TUNED = COPY.replace(
    "@triton.jit",
    "@triton.autotune([\n"
    "    triton.Config({'BLOCK': 128}, num_warps=2), triton.Config({'BLOCK': 7}), "
    "triton.Config({'BLOCK': 1024})],\n"
    "    key=['count'],\n"
    "    prune_configs_by={'early_config_prune': lambda configs, args, **more: configs[:2]})\n"
    "@triton.jit",
).replace(", BLOCK=256", "")


def test_every_configuration_that_pruning_leaves_is_compiled(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, TUNED)
    assert [fact.outcome for fact in facts] == [Outcome.OK, Outcome.COMPILE_ERROR]
    assert facts[0].function == "_copy_kernel[BLOCK=128,num_warps=2,num_ctas=1,num_stages=3]"
    assert (facts[0].configuration["BLOCK"], facts[0].thread_count) == (128, 64)
    assert "power of 2" in (facts[1].message or "")
    assert facts[1].code_hash is None


# What a package does that keeps compiled kernels, whatever their target: FlagGems' `LibEntry`.
KEPT = """
class Kept(triton.KernelInterface):
    def __init__(self, fn):
        self.fn, self.kernels = fn, {}

    def run(self, x, y, count, grid, warmup):
        if count not in self.kernels:
            self.kernels[count] = self.fn.run(x, y, count, grid=grid, warmup=warmup)
        else:
            self.kernels[count][grid](x, y, count, 1024)
"""
KEPT += TUNED.replace("@triton.autotune", "@Kept\n@triton.autotune")


def test_a_package_that_keeps_kernels_has_no_code_of_another_target(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, KEPT, ("sm_90", "gfx942"))

    functions = {
        target: [fact.function for fact in facts if fact.target == target]
        for target in ("sm_90", "gfx942")
    }
    assert len(functions["sm_90"]) == 2
    assert functions["gfx942"] == functions["sm_90"]
    assert facts[0].code_hash != facts[2].code_hash


# As Triton's tutorial of softmax launches.
LAUNCHED_AFTER_WARMUP = COPY.replace(
    "_copy_kernel[(1,)](x, y, x.numel(), BLOCK=256)",
    "compiled = _copy_kernel.warmup(x, y, x.numel(), BLOCK=256, grid=(1,))\n"
    "    compiled._init_handles()\n"
    "    compiled[(64 // compiled.n_regs, 1, 1)](x, y, x.numel(), 256)",
)


def test_a_launcher_that_compiles_before_it_launches_is_compiled(tmp_path: Path) -> None:
    (fact,) = facts_of(tmp_path, LAUNCHED_AFTER_WARMUP)

    assert (fact.function, fact.outcome) == ("_copy_kernel", Outcome.OK)


def test_the_facts_have_compilers_with_their_options(tmp_path: Path) -> None:
    (fact, amd) = facts_of(
        tmp_path, COPY.replace("BLOCK=256", "BLOCK=256, maxnreg=64"), ("sm_90", "gfx942")
    )
    assert (fact.function, fact.configuration["BLOCK"], fact.configuration["maxnreg"]) == (
        "_copy_kernel",
        256,
        64,
    )
    assert 0 < (fact.registers or 0) < 64
    assert fact.code_bytes
    assert (fact.local_bytes, fact.spilled_registers) == (0, None)
    assert set(fact.toolchain) == {"triton", "ptxas"}
    assert {"ttir", "ttgir", "llir", "ptx", "cubin"} <= set(fact.compile_ns)
    assert re.fullmatch(r"\d+\.\d+\.\d+", fact.toolchain["ptxas"])
    assert amd.outcome is Outcome.COMPILE_ERROR, (
        "AMD's back end has no such option, and a launch would say so"
    )
    assert "maxnreg" in (amd.message or "")
    (amd,) = facts_of(tmp_path, COPY, ("gfx942",), "amd")
    assert set(amd.toolchain) == {"triton"}
    assert amd.configuration["matrix_instr_nonkdim"] == 0
    assert (amd.accumulation_registers, amd.spilled_registers, amd.thread_count) == (0, 0, 256)
    assert amd.scalar_registers


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot_find() -> None:
        raise RuntimeError("Cannot find nvdisasm")

    monkeypatch.setattr(
        type(triton.knobs.nvidia).__dict__["nvdisasm"], "get", cannot_find, raising=False
    )
    with pytest.raises(
        ToolchainError,
        match=r"nvdisasm, which comes with Triton.*pip install.*TRITON_NVDISASM_PATH",
    ):
        facts_of(tmp_path, COPY.replace("BLOCK=256", "BLOCK=64"))


def test_cuda_cpp_is_compiled_for_nvidia_targets(tmp_path: Path) -> None:
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


def test_cuda_cpp_without_nvrtc_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    (fact,) = facts_of(tmp_path, CUDA)

    assert fact.outcome is Outcome.UNSUPPORTED
    assert "pip install cuda-bindings nvidia-cuda-nvrtc" in (fact.message or "")


def test_child_processes_have_the_same_addresses_every_time() -> None:
    """ptxas for Blackwell compiles one text to several codes otherwise."""
    command = [sys.executable, "-c", "print(id(object()), open('/proc/self/maps').readline())"]
    with without_aslr() as is_allowed:
        if not is_allowed:
            pytest.skip(
                "the system does not let a process leave out the randomisation of addresses"
            )
        layouts = {
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
            for _ in range(3)
        }
    assert len(layouts) == 1
    assert not ctypes.CDLL(None).personality(ctypes.c_ulong(0xFFFFFFFF)) & 0x0040000
