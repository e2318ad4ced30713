"""CUDA C++ kernels: compiled by NVRTC for any NVIDIA target on any machine, launched on torch's current stream.

NVRTC and the driver are reached through `cuda-bindings`, which is loaded on first use: a suite with CUDA C++ in it
loads and is listed where neither is installed. The module imports nothing of ours but the spec.

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
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofwatch.spec import UnsupportedError

if TYPE_CHECKING:
    import torch

INSTALL = "pip install cuda-bindings nvidia-cuda-nvrtc"
_CPP_TYPES = {"float64": "double", "float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}
_STATIC_LIMIT_OF_DYNAMIC_SHARED_BYTES = 48 * 1024
"""More has to be asked for: CUDA C++ Programming Guide, compute capability 7.x and newer."""
_CUDA_VERSION = re.compile(r"^#define CUDA_VERSION (\d+)", re.MULTILINE)
_QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class CudaCompileError(RuntimeError):
    """NVRTC refused a source; the message carries its log."""


class CudaDriverError(RuntimeError):
    """The driver refused to load or launch a kernel."""


@dataclass(frozen=True)
class Cubin:
    """A kernel compiled for one target.

    Args:
        image: The ELF file that a driver loads.
        symbol: The kernel's mangled name in it.
        compile_ns: Time that NVRTC took; None where it was compiled before.
    """

    image: bytes
    symbol: str
    compile_ns: int | None = field(default=None, compare=False)


class CudaKernel:
    """One `__global__` function of a CUDA C++ source, or one instance of a template of such functions.

    `cuda_fp16.h`, `cuda_bf16.h` and CUDA's other device headers can be included, since Triton brings them along, and
    `"files.cuh"` from the source's own folder.

    Args:
        source: A `.cu` file, which is read when it is compiled first, or the source itself.
        name: Of the function, with its namespace if it has one.
        template: The template's arguments: whole numbers, C++ text, or torch's dtypes of floating point.
        options: Further options of NVRTC, such as `--use_fast_math`.
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
        self.template = ", ".join(_cpp_argument(argument) for argument in template)
        self.options = tuple(options)
        self._cubins: dict[str, Cubin] = {}
        self._functions: dict[int, Any] = {}

    @property
    def expression(self) -> str:
        """The function as C++ names it, for example `softmax_kernel<__nv_bfloat16, 8>`."""
        return f"{self.name}<{self.template}>" if self.template else self.name

    def copy(self) -> CudaKernel:
        """The same kernel, of which nothing has been read or compiled yet."""
        template = (self.template,) if self.template else ()
        return CudaKernel(self.source, self.name, template=template, options=self.options)

    def compile(self, target: str) -> Cubin:
        """Compile for a target such as `sm_90`, which needs neither a GPU nor a driver.

        What was compiled once is kept in `$ROOFWATCH_CACHE_DIR`, else in the folder `roofwatch` of `$XDG_CACHE_HOME` or
        `~/.cache`, under a hash of all that decides the code: the source and the files that it includes in quotes, the
        options, and the versions of NVRTC and of the headers.

        Raises:
            CudaCompileError: with NVRTC's log.
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
            grid: Blocks, in up to three dims; none may be 0.
            block: Threads of a block, in up to three dims.
            args: A tensor for a pointer, an int for a `long long`, a float for a `float`; a ctypes value for any other
                scalar type.
            shared_bytes: Of dynamic shared memory.
            device: That of the first tensor if left out.

        Raises:
            CudaCompileError: with NVRTC's log.
            CudaDriverError: the driver refuses.
            UnsupportedError: the device is no NVIDIA GPU, or `cuda-bindings` or NVRTC is not installed.
        """
        import torch

        if device is None:
            device = next((arg.device for arg in args if isinstance(arg, torch.Tensor)), torch.device("cuda"))
        if device.type != "cuda" or torch.version.cuda is None:
            raise UnsupportedError(f"{self.name} is CUDA C++ and needs an NVIDIA GPU, got tensors on {device}")
        with torch.cuda.device(device):
            driver = _bindings("driver")
            function = self._function(torch.cuda.current_device(), shared_bytes)
            values = [_c_value(arg) for arg in args]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            stream = torch.cuda.current_stream().cuda_stream
            _driver_call(
                driver.cuLaunchKernel,
                function,
                *_three(grid),
                *_three(block),
                shared_bytes,
                driver.CUstream(stream),
                ctypes.addressof(pointers),
                0,
            )

    def _function(self, device_index: int, shared_bytes: int) -> Any:
        """The loaded kernel. Torch has made the device's context current."""
        import torch

        driver = _bindings("driver")
        if device_index not in self._functions:
            major, minor = torch.cuda.get_device_capability(device_index)
            cubin = self.compile(f"sm_{major}{minor}")
            (module,) = _driver_call(driver.cuModuleLoadData, cubin.image)
            (function,) = _driver_call(driver.cuModuleGetFunction, module, cubin.symbol.encode())
            self._functions[device_index] = function
        function = self._functions[device_index]
        if shared_bytes > _STATIC_LIMIT_OF_DYNAMIC_SHARED_BYTES:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _driver_call(driver.cuFuncSetAttribute, function, attribute, shared_bytes)
        return function

    def _compile(self, target: str) -> Cubin:
        if not target.startswith("sm_"):
            raise UnsupportedError(f"{self.name} is CUDA C++, which NVRTC does not compile for {target}")
        nvrtc = _bindings("nvrtc")
        _, *version = nvrtc.nvrtcVersion()
        texts = dict(self._texts())
        headers = _cuda_headers()
        decides = [texts, self.expression, self.options, target, version, str(headers and _version_of(headers))]
        key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
        cached = cache_dir() / f"{key}.cubin"
        if cached.is_file():
            symbol, _, image = cached.read_bytes().partition(b"\n")
            return Cubin(image, symbol.decode())
        options = [f"--gpu-architecture={target}", "--std=c++17", *self.options]
        if isinstance(self.source, Path):
            options.append(f"--include-path={self.source.parent}")
        if headers is not None:
            options.append(f"--include-path={headers}")
        cubin = _run_nvrtc(nvrtc, next(iter(texts.items())), self.expression, options)
        keep(cached, cubin.symbol.encode() + b"\n" + cubin.image)
        return cubin

    def _texts(self) -> Iterator[tuple[str, str]]:
        """The source and what it includes in quotes, by name."""
        if isinstance(self.source, str):
            yield f"{self.name}.cu", self.source
            return
        waiting, seen = [self.source], set[Path]()
        while waiting:
            file = waiting.pop()
            if file in seen:
                continue
            seen.add(file)
            text = file.read_text()
            yield file.name, text
            included = [(file.parent / found).resolve() for found in _QUOTED_INCLUDE.findall(text)]
            waiting += [path for path in included if path.is_file()]


def _run_nvrtc(nvrtc: Any, named_source: tuple[str, str], expression: str, options: list[str]) -> Cubin:
    name, source = named_source

    def call(function: Any, *arguments: Any) -> Any:
        status, *values = function(*arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CudaCompileError(f"{function.__name__}: {status.name}")
        return values[0] if values else None

    program = call(nvrtc.nvrtcCreateProgram, source.encode(), name.encode(), 0, [], [])
    try:
        call(nvrtc.nvrtcAddNameExpression, program, expression.encode())
        try:
            started_ns = time.perf_counter_ns()
            call(nvrtc.nvrtcCompileProgram, program, len(options), [option.encode() for option in options])
            compile_ns = time.perf_counter_ns() - started_ns
        except CudaCompileError as error:
            log = bytes(call(nvrtc.nvrtcGetProgramLogSize, program))
            call(nvrtc.nvrtcGetProgramLog, program, log)
            text = log.rstrip(b"\0").decode(errors="replace").strip()
            raise CudaCompileError(f"{expression} of {name} with {' '.join(options[:-1])}:\n{text or error}") from None
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
        raise UnsupportedError(f"CUDA C++ needs NVRTC and its bindings; {INSTALL} ({error})") from error
    return loaded


def _cuda_headers() -> Path | None:
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "backends" / "nvidia" / "include"
    return folder if folder.is_dir() else None


def _version_of(headers: Path) -> str:
    found = _CUDA_VERSION.search((headers / "cuda.h").read_text())
    return found[1] if found else "unknown"


def cache_dir() -> Path:
    """Where what was compiled is kept."""
    chosen = os.environ.get("ROOFWATCH_CACHE_DIR")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roofwatch"
    return Path(chosen) if chosen else base


def keep(file: Path, content: bytes) -> None:
    """Put a file into a cache, whole or not at all: one that cannot be written costs time, and no result."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as written:
            written.write(content)
        Path(written.name).replace(file)


def _cpp_argument(argument: torch.dtype | int | str) -> str:
    name = str(argument).removeprefix("torch.")
    return _CPP_TYPES.get(name, name)


def _c_value(arg: Any) -> ctypes._SimpleCData[Any]:
    if isinstance(arg, ctypes._SimpleCData):
        return arg
    if isinstance(arg, (bool, int)):
        return ctypes.c_longlong(arg)
    if isinstance(arg, float):
        return ctypes.c_float(arg)
    return ctypes.c_void_p(arg.data_ptr())


def _three(dims: int | tuple[int, ...]) -> tuple[int, ...]:
    given = (dims,) if isinstance(dims, int) else tuple(dims)
    return (*given, *(1,) * (3 - len(given)))
