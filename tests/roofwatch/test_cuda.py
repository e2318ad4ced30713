"""CUDA C++ kernels: compiled on any machine, launched on an NVIDIA GPU."""

import ctypes
import sys
from pathlib import Path

import pytest
import torch

import roofwatch.cuda
from roofwatch import CudaKernel, UnsupportedError
from roofwatch.cuda import CudaCompileError

SCALE = """
template <class T>
__global__ void scale(const T* x, T* out, long long count, float factor) {
  const long long at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = static_cast<T>(static_cast<float>(x[at]) * factor);
}
"""
HALVES = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" + SCALE


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOFWATCH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def refuse_to_compile(**_: object) -> None:
    raise AssertionError("compiled again")


@pytest.mark.parametrize("target", ["sm_80", "sm_120"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_template_is_compiled_without_a_gpu(dtype: torch.dtype, target: str) -> None:
    cubin = CudaKernel(HALVES, "scale", template=(dtype,)).compile(target)

    assert cubin.image.startswith(b"\x7fELF")
    assert cubin.symbol.startswith("_Z5scaleI")
    assert cubin.symbol.encode() in cubin.image


def test_template_arguments_are_written_in_cpp() -> None:
    assert (
        CudaKernel("", "softmax", template=(torch.bfloat16, 8)).expression
        == "softmax<__nv_bfloat16, 8>"
    )
    assert (
        CudaKernel("", "ours::copy", template=(torch.float16, "true")).expression
        == "ours::copy<__half, true>"
    )
    assert CudaKernel("", "fill").expression == "fill"


def test_a_compile_error_has_the_log(tmp_path: Path) -> None:
    file = tmp_path / "broken.cu"
    file.write_text("__global__ void broken(float* x) {\n  x[0] = undeclared;\n}\n")

    with pytest.raises(
        CudaCompileError, match=r'broken.cu\(2\): error: identifier "undeclared" is undefined'
    ):
        CudaKernel(file, "broken").compile("sm_90")


def test_instructions_of_one_architecture_alone_compile_for_it() -> None:
    fence = 'extern "C" __global__ void fence() { asm volatile("wgmma.fence.sync.aligned;"); }'

    assert CudaKernel(fence, "fence").compile("sm_90").image
    with pytest.raises(CudaCompileError):
        CudaKernel(fence, "fence").compile("sm_80")


def test_amd_targets_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="NVRTC does not compile for gfx942"):
        CudaKernel(SCALE, "scale<float>").compile("gfx942")


def test_compiled_code_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    first = CudaKernel(SCALE, "scale<float>").compile("sm_90")

    monkeypatch.setattr(roofwatch.cuda, "_run_nvrtc", refuse_to_compile)
    assert CudaKernel(SCALE, "scale<float>").compile("sm_90") == first


@pytest.mark.parametrize(
    "changed", ["source", "included", "included by the included", "options", "target", "template"]
)
def test_the_cache_key_has_all_inputs(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {name: tmp_path / name for name in ("kernel.cu", "first.cuh", "second.cuh")}
    files["kernel.cu"].write_text('#include "first.cuh"\n' + SCALE)
    files["first.cuh"].write_text('#include "second.cuh"\n')
    files["second.cuh"].write_text("// nothing yet\n")
    CudaKernel(files["kernel.cu"], "scale", template=("float",)).compile("sm_90")

    name = {
        "source": "kernel.cu",
        "included": "first.cuh",
        "included by the included": "second.cuh",
    }.get(changed)
    if name is not None:
        files[name].write_text(files[name].read_text() + "// and more\n")
    kernel = CudaKernel(
        files["kernel.cu"],
        "scale",
        template=("double" if changed == "template" else "float",),
        options=("--use_fast_math",) if changed == "options" else (),
    )
    monkeypatch.setattr(roofwatch.cuda, "_run_nvrtc", refuse_to_compile)
    with pytest.raises(AssertionError, match="compiled again"):
        kernel.compile("sm_80" if changed == "target" else "sm_90")


def test_an_unwritable_cache_is_ignored(cache: Path) -> None:
    cache.write_text("a file, where the folder should be")

    assert CudaKernel(SCALE, "scale<float>").compile("sm_90").image


def test_without_nvrtc_a_kernel_can_be_declared_but_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)

    kernel = CudaKernel(SCALE, "scale<float>")
    with pytest.raises(UnsupportedError, match="pip install cuda-bindings nvidia-cuda-nvrtc"):
        kernel.compile("sm_90")


def test_cpu_tensors_are_refused() -> None:
    x = torch.zeros(4)

    with pytest.raises(
        UnsupportedError,
        match=r"scale<float> is CUDA C\+\+ and needs an NVIDIA GPU, got tensors on cpu",
    ):
        CudaKernel(SCALE, "scale<float>").launch(1, 32, (x, x, 4, 2.0))


@pytest.fixture
def gpu() -> torch.device:
    if not torch.cuda.is_available() or torch.version.cuda is None:
        pytest.skip("no NVIDIA GPU that torch can use")
    pytest.importorskip(
        "cuda.bindings.nvrtc", reason="CUDA C++ needs pip install 'roofwatch[cuda]'"
    )
    return torch.device("cuda")


@pytest.mark.gpu
def test_a_launch_runs_on_the_current_stream(gpu: torch.device) -> None:
    x = torch.randn(100_000, device=gpu, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    kernel = CudaKernel(HALVES, "scale", template=(x.dtype,))

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)  # type: ignore[no-untyped-call]  # as above
        x.zero_().add_(3)
        kernel.launch(-(-x.numel() // 256), 256, (x, out, x.numel(), 0.5))
    stream.synchronize()

    assert torch.equal(out, torch.full_like(out, 1.5))


@pytest.mark.gpu
def test_large_dynamic_shared_memory_is_enabled(gpu: torch.device) -> None:
    source = """
    __global__ void reverse(int* x, int count) {
      extern __shared__ int values[];
      for (int at = threadIdx.x; at < count; at += blockDim.x) values[at] = x[at];
      __syncthreads();
      for (int at = threadIdx.x; at < count; at += blockDim.x) x[at] = values[count - 1 - at];
    }
    """
    x = torch.arange(16_000, device=gpu, dtype=torch.int32)

    CudaKernel(source, "reverse").launch(
        1, 256, (x, ctypes.c_int(x.numel())), shared_bytes=4 * x.numel()
    )

    assert torch.equal(x, torch.arange(16_000, device=gpu, dtype=torch.int32).flip(0))
