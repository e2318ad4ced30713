"""CUDA C++ kernels: compiled by NVRTC for any NVIDIA target on any machine, launched on torch's
current stream.

NVRTC and the driver are used through `cuda-bindings`, which is imported on first use.

    kernel = CudaKernel(Path(__file__).with_name("scale.cu"), "scale_kernel", template=(x.dtype, 8))
    kernel.launch(grid=n_rows, block=256, args=(x, out, n_cols, 0.5))
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import json
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofwatch.model.files import cache_dir
from roofwatch.spec import UnsupportedError

if TYPE_CHECKING:
    import torch

INSTALL = "pip install cuda-bindings nvidia-cuda-nvrtc"
# As CUDA's headers for half precision name them; torch's names come from `str(dtype)`.
_CPP_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
}
_DEFAULT_MAX_SHARED_BYTES = 48 * 1024
"""More dynamic shared memory needs an opt-in: CUDA C++ Programming Guide, compute capability 7.x
and newer.
"""
# A major version times 1,000 plus a minor times 10, in `cuda.h`.
_CUDA_VERSION = re.compile(r"^#define CUDA_VERSION (\d+)", re.MULTILINE)
_FIRST_SPECIFIC = 90
"""Compute capability from which on there are instructions that later ones lack. Source: CUDA C++
Programming Guide, architecture-specific features.
"""
_QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class CudaCompileError(RuntimeError):
    """NVRTC rejected a source; the message contains its log."""


class CudaDriverError(RuntimeError):
    """The driver failed to load or launch a kernel."""


@dataclass(frozen=True)
class Cubin:
    """A kernel compiled for one target.

    Args:
        image: The ELF file that a driver loads.
        symbol: The kernel's mangled name in it.
        compile_ns: Time in NVRTC; None if it came from the cache.
    """

    image: bytes
    symbol: str
    compile_ns: int | None = field(default=None, compare=False)


class CudaKernel:
    """One `__global__` function of a CUDA C++ source, or one instance of a function template.

    The source can include CUDA's device headers such as `cuda_fp16.h`, which Triton ships, and
    `"files.cuh"` from its own folder.

    Args:
        source: A `.cu` file, which is read on first use, or source text.
        name: Name of the function, with its namespace.
        template: Template arguments: integers, C++ text, or floating-point dtypes of torch.
        options: Further NVRTC options, such as `--use_fast_math`.
    """

    def __init__(
        self,
        source: str | Path,
        name: str,
        *,
        template: Sequence[torch.dtype | int | str] = (),
        options: Sequence[str] = (),
    ) -> None:
        self.source = source
        self.name = name
        names = [str(argument).removeprefix("torch.") for argument in template]
        self.template = ", ".join(_CPP_TYPES.get(argument, argument) for argument in names)
        self.options = tuple(options)
        # One kernel is compiled once per target and loaded once per device of this process.
        self._cubins: dict[str, Cubin] = {}
        self._functions: dict[int, Any] = {}

    @property
    def expression(self) -> str:
        """The function as C++ names it, for example `softmax_kernel<__nv_bfloat16, 8>`."""
        if self.template:
            return f"{self.name}<{self.template}>"
        return self.name

    def compile(self, target: str) -> Cubin:
        """Compile for a target such as `sm_90`; needs neither a GPU nor a driver.

        Cubins are cached in `$ROOFWATCH_CACHE_DIR`, default `roofwatch` in `$XDG_CACHE_HOME` or
        `~/.cache`. The key contains the source, files that it includes in quotes, options, and the
        versions of NVRTC and CUDA headers.

        Raises:
            CudaCompileError: NVRTC rejects the source.
            UnsupportedError: the target is not NVIDIA's, or NVRTC is not installed.
        """
        if target not in self._cubins:
            self._cubins[target] = self._compile(target)
        return self._cubins[target]

    def launch(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[torch.Tensor | int | float | ctypes._SimpleCData[Any]],
        *,
        shared_bytes: int = 0,
        device: torch.device | None = None,
    ) -> None:
        """Enqueue on the current stream of a device.

        Args:
            grid: Blocks, in up to three dimensions; none may be 0.
            block: Threads of a block, in up to three dimensions.
            args: A tensor for a pointer, an int for `long long`, a float for `float`, ctypes values
                for other types.
            shared_bytes: Dynamic shared memory per block.
            device: Default that of the first tensor.

        Raises:
            CudaCompileError: NVRTC rejects the source.
            CudaDriverError: the driver reports an error.
            UnsupportedError: the device is no NVIDIA GPU, or `cuda-bindings` or NVRTC is not
            installed.
        """
        import torch

        if device is None:
            on_device = [arg.device for arg in args if isinstance(arg, torch.Tensor)]
            device = on_device[0] if on_device else torch.device("cuda")
        # A build of torch for ROCm calls its devices "cuda" too.
        if device.type != "cuda" or torch.version.cuda is None:
            raise UnsupportedError(
                f"{self.name} is CUDA C++ and needs an NVIDIA GPU, got tensors on {device}"
            )
        with torch.cuda.device(device):
            driver = _bindings("driver")
            function = self._function(driver, torch.cuda.current_device(), shared_bytes)
            values = [_c_value(arg) for arg in args]
            # The driver takes addresses of arguments, and copies the values at the launch.
            addresses = [ctypes.addressof(value) for value in values]
            pointers = (ctypes.c_void_p * len(values))(*addresses)
            stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
            dims = (*_three(grid), *_three(block))
            _driver_call(
                driver.cuLaunchKernel,
                function,
                *dims,
                shared_bytes,
                stream,
                ctypes.addressof(pointers),
                0,
            )

    def _function(self, driver: Any, device_index: int, shared_bytes: int) -> Any:
        import torch

        # a module is loaded once for each device
        if device_index not in self._functions:
            major, minor = torch.cuda.get_device_capability(device_index)
            cubin = self.compile(f"sm_{major}{minor}")
            (module,) = _driver_call(driver.cuModuleLoadData, cubin.image)
            name = cubin.symbol.encode()
            (function,) = _driver_call(driver.cuModuleGetFunction, module, name)
            self._functions[device_index] = function
        function = self._functions[device_index]
        # more than the default must be asked for
        if shared_bytes > _DEFAULT_MAX_SHARED_BYTES:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _driver_call(driver.cuFuncSetAttribute, function, attribute, shared_bytes)
        return function

    def _compile(self, target: str) -> Cubin:
        if not target.startswith("sm_"):
            raise UnsupportedError(
                f"{self.name} is CUDA C++, which NVRTC does not compile for {target}"
            )
        nvrtc = _bindings("nvrtc")
        texts = self._texts()
        headers = _cuda_headers()
        _, *version = nvrtc.nvrtcVersion()
        # The headers are those of Triton's CUDA, which need not be the version of NVRTC.
        versions: list[list[int] | list[str] | None] = [version, None]
        if headers is not None:
            versions[1] = _CUDA_VERSION.findall((headers / "cuda.h").read_text())
        architecture = target
        # with the instructions of this architecture alone, such as wgmma; as Triton compiles
        if int(target.removeprefix("sm_")) >= _FIRST_SPECIFIC:
            architecture = f"{target}a"
        inputs = json.dumps([texts, self.expression, self.options, architecture, versions])
        key = hashlib.sha256(inputs.encode()).hexdigest()
        cached = cache_dir() / f"{key}.cubin"
        # The mangled name is the first line of a cached file, as a cubin has several symbols.
        if cached.is_file():
            symbol, _, image = cached.read_bytes().partition(b"\n")
            return Cubin(image, symbol.decode())
        folders: list[Path] = []
        if isinstance(self.source, Path):
            folders.append(self.source.parent)
        if headers is not None:
            folders.append(headers)
        includes = [f"--include-path={folder}" for folder in folders]
        options = [f"--gpu-architecture={architecture}", "--std=c++17", *self.options, *includes]
        cubin = _run_nvrtc(
            nvrtc=nvrtc,
            named_source=next(iter(texts.items())),
            expression=self.expression,
            options=options,
        )
        write_to_cache(cached, cubin.symbol.encode() + b"\n" + cubin.image)
        return cubin

    def _texts(self) -> dict[str, str]:
        """Read the source and, recursively, the files that it includes in quotes."""
        if isinstance(self.source, str):
            return {f"{self.name}.cu": self.source}
        texts: dict[Path, str] = {}
        waiting = [self.source]
        while waiting:
            file = waiting.pop()
            if file not in texts:
                texts[file] = file.read_text()
                names = _QUOTED_INCLUDE.findall(texts[file])
                included = [(file.parent / name).resolve() for name in names]
                # Another one may come from CUDA's folder, whose version is in the key.
                waiting += [path for path in included if path.is_file()]
        return {file.name: text for file, text in texts.items()}


def _run_nvrtc(
    nvrtc: Any,
    named_source: tuple[str, str],
    expression: str,
    options: list[str],
) -> Cubin:
    name, source = named_source

    def call(function: Any, *arguments: Any) -> Any:
        status, *values = function(*arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CudaCompileError(f"{function.__name__}: {status.name}")
        return values[0] if values else None

    program = call(nvrtc.nvrtcCreateProgram, source.encode(), name.encode(), 0, [], [])
    try:
        # A template is instantiated only if its expression is named before.
        call(nvrtc.nvrtcAddNameExpression, program, expression.encode())
        started_ns = time.perf_counter_ns()
        try:
            call(
                nvrtc.nvrtcCompileProgram,
                program,
                len(options),
                [option.encode() for option in options],
            )
        except CudaCompileError as error:
            # The functions of the binding fill a buffer that the caller makes.
            log = bytes(call(nvrtc.nvrtcGetProgramLogSize, program))
            call(nvrtc.nvrtcGetProgramLog, program, log)
            text = log.rstrip(b"\0").decode(errors="replace").strip()
            raise CudaCompileError(
                f"{expression} of {name} with {' '.join(options)}:\n{text or error}"
            ) from None
        compile_ns = time.perf_counter_ns() - started_ns
        symbol = call(nvrtc.nvrtcGetLoweredName, program, expression.encode())
        image = bytes(call(nvrtc.nvrtcGetCUBINSize, program))
        call(nvrtc.nvrtcGetCUBIN, program, image)
        return Cubin(image, symbol.decode(), compile_ns)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _driver_call(function: Any, *arguments: Any) -> tuple[Any, ...]:
    status, *values = function(*arguments)
    if int(status) != 0:
        raise CudaDriverError(f"{function.__name__}: {status.name}")
    return tuple(values)


def _bindings(module: str) -> Any:
    try:
        loaded = importlib.import_module(f"cuda.bindings.{module}")
        if module == "nvrtc":
            loaded.nvrtcVersion()  # loads the library itself
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"CUDA C++ needs NVRTC and its bindings; {INSTALL} ({error})"
        ) from error
    return loaded


def _cuda_headers() -> Path | None:
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "backends" / "nvidia" / "include"
    return folder if folder.is_dir() else None


def write_to_cache(file: Path, content: bytes) -> None:
    """Write a file atomically; ignore failures, since a cache is optional."""
    with contextlib.suppress(OSError):
        # Another process may write the same cubin at the same time.
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as written:
            written.write(content)
        Path(written.name).replace(file)


def _c_value(arg: Any) -> ctypes._SimpleCData[Any]:
    if isinstance(arg, ctypes._SimpleCData):
        return arg
    # A Python int has no width: kernels take `long long` unless a ctypes value is passed.
    if isinstance(arg, (bool, int)):
        return ctypes.c_longlong(arg)
    if isinstance(arg, float):
        return ctypes.c_float(arg)
    return ctypes.c_void_p(arg.data_ptr())


def _three(dims: int | tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(dims, int):
        return (dims, 1, 1)
    extents = tuple(dims)
    return (*extents, *(1,) * (3 - len(extents)))
