"""Compiles the kernels that a launcher launches for a GPU that is not present, and launches
nothing.

The launcher is called on CPU tensors while Triton sees a driver for the target. Each launch is
compiled with the argument specialisation of a real launch (divisibility by 16, equality to 1,
constexprs). Autotuned kernels are compiled in every configuration that their pruning leaves. A
`CudaKernel` is compiled by NVRTC.

Source: `JITFunction.warmup` does the same for a GPU that is present.
"""

import contextlib
import ctypes
import hashlib
import importlib
import math
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from roofwatch.collector.compile.autotuned import (
    MOST_CONFIGURATIONS,
    every_chosen_configuration,
    name_of_tuned,
    tuning_with,
)
from roofwatch.collector.compile.launch_arguments import (
    LaunchShape,
    Part,
    bound_options,
    parts_of,
    shape_of,
)
from roofwatch.collector.compile.target_device import active_driver, target_driver
from roofwatch.collector.compile.targets import parse_target
from roofwatch.cuda import CudaCompileError, CudaKernel
from roofwatch.model.errors import ToolchainError
from roofwatch.model.machine import Configuration, Outcome
from roofwatch.spec import UnsupportedError

_OPTION_NAMES = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "enable_fp_fusion",
    "enable_reflect_ftz",
    "ptx_version",
    "ptx_options",
    "launch_pdl",
    "launch_cooperative_grid",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
    "allow_flush_denorm",
    "schedule_hint",
    "sanitize_overflow",
    "debug",
    "instrumentation_mode",
    "ir_override",
)
"""Options of all Triton back ends that change the code."""
_MAX_MESSAGE = 2_000
_MAX_FUNCTION_NAME = 400
_LINE_INFORMATION = "TRITON_DISABLE_LINE_INFO"
_NS_PER_US = 1_000
_BLACKWELL = 100
_READ_PERSONALITY = 0xFFFFFFFF
_ADDR_NO_RANDOMIZE = 0x0040000


@dataclass(frozen=True)
class Compiled:
    identity: str
    """Equal for launches that were compiled in the same way."""
    binary: bytes
    symbol: str
    """The function's name in the binary."""
    thread_count: int
    dynamic_shared_bytes: int
    toolchain: dict[str, str]
    compile_ns: dict[str, int]
    """By stage; empty if it came from the compiler's cache."""
    assembly: str | None = None
    """AMD only: the text whose metadata lists the resources."""
    tensor_memory_columns: int | None = None
    ir: str | None = None
    """Triton's IR, before any target's passes."""
    shape: LaunchShape | None = None
    """None if the launcher's grid cannot be computed."""


@dataclass(frozen=True)
class TunedFunction:
    """A jitted function, and one of the configurations that its autotuner chooses from."""

    name: str
    configuration: Configuration


@dataclass
class Launch:
    """One launch of a jitted function or CUDA kernel; `message` says why it was not compiled."""

    function: str
    configuration: Configuration
    compiled: Compiled | None = None
    outcome: Outcome = Outcome.OK
    message: str | None = None
    tuned: TunedFunction | None = None
    """None if no autotuner chooses its configuration."""

    def fail(self, error: Exception) -> None:
        self.outcome = Outcome.COMPILE_ERROR
        self.message = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]


@contextlib.contextmanager
def compiling_for(
    target: str,
    *,
    deadline_s: float = math.inf,
    most_configurations: int | None = MOST_CONFIGURATIONS,
    is_for_launch: bool = False,
) -> Iterator[list[Launch]]:
    """Compile each launch within the block for a target; yield the list of launches.

    After the deadline, on the monotonic clock, launches are listed and not compiled. Of an
    autotuned function, at most some configurations are compiled, or all. Code that is for a launch
    has line numbers; without them, it does not change with its place in the file.

    Raises:
        TargetError: the target is unknown.
    """
    launches: list[Launch] = []
    with (
        without_aslr(),
        _compiling_triton(target, launches, deadline_s, most_configurations, is_for_launch),
        _compiling_cuda(target, launches),
    ):
        yield launches


@contextlib.contextmanager
def without_aslr() -> Iterator[bool]:
    """Start child processes without address space layout randomisation; yield whether the system
    allows it.

    ptxas 13.1.80 iterates over tables in the order of addresses, and its register names depend on
    them.
    Source: personality(2).
    """
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is None:  # not Linux
        yield False
        return
    before = personality(ctypes.c_ulong(_READ_PERSONALITY))
    is_allowed = before >= 0 and personality(ctypes.c_ulong(before | _ADDR_NO_RANDOMIZE)) >= 0
    try:
        yield is_allowed
    finally:
        if is_allowed:
            personality(ctypes.c_ulong(before))


@contextlib.contextmanager
def _compiling_triton(
    target: str,
    launches: list[Launch],
    deadline_s: float,
    most_configurations: int | None,
    is_for_launch: bool,
) -> Iterator[None]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    original_run = JITFunction.run
    stage_ns: dict[str, dict[str, int]] = {}
    tuned: list[Configuration] = []

    def note_times(*, metadata: dict[str, Any], times: Any, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            stages = (("ir", times.ir_initialization), *times.lowering_stages)
            stage_ns[metadata["hash"]] = {name: time_us * _NS_PER_US for name, time_us in stages}

    def compile_only(
        self: Any,
        *args: Any,
        grid: Any,
        warmup: bool,  # noqa: ARG001  Triton's signature
        **kwargs: Any,
    ) -> Any:
        launch = Launch(
            name_of_tuned(self.fn.__name__, tuned)[:_MAX_FUNCTION_NAME],
            {name: _plain(kwargs[name]) for name in _OPTION_NAMES if name in kwargs},
        )
        if tuned:
            launch.tuned = TunedFunction(self.fn.__name__, dict(tuned[0]))
        launches.append(launch)
        if time.monotonic() > deadline_s:
            launch.outcome = Outcome.TIMED_OUT
            launch.message = "not compiled within the time limit; raise it with --timeout"
            return None
        self.device_caches.clear()  # its key is the device number, which is 0 for every target
        kernel = None
        try:
            kernel = original_run(self, *args, grid=grid, warmup=True, **kwargs)
            launch.configuration.update(
                _configuration(function=self, args=args, kwargs=kwargs, kernel=kernel)
            )
        except Exception as error:  # noqa: BLE001  the compiler raises many types
            _raise_if_tool_is_missing(error)
            launch.fail(error)
        else:
            shape = _launch_shape(function=self, args=args, kwargs=kwargs, grid=grid)
            launch.compiled = _compiled_by_triton(kernel, stage_ns.get(kernel.hash, {}), shape)
            if is_for_launch:
                _build_launcher(kernel)
        finally:
            self.device_caches.clear()
        return kernel

    parsed_target = parse_target(target)
    gpu = GPUTarget(parsed_target.backend, parsed_target.arch, parsed_target.warp_size)
    with (
        _replaced(owner=JITFunction, name="run", value=compile_only),
        tuning_with(every_chosen_configuration(tuned, most_configurations)),
        active_driver(target_driver(gpu, target)),
        triton.knobs.compilation.scope(),
    ):
        triton.knobs.compilation.listener = note_times
        if not is_for_launch:
            triton.knobs.compilation.disable_line_info = True
        yield


def _build_launcher(kernel: Any) -> None:
    """Build the C function that launches a kernel, which Triton before 3.7 has for each signature.

    The launch itself reports a missing compiler or driver.
    """
    from triton.backends.nvidia import driver

    if "cubin" in kernel.asm and hasattr(driver, "make_launcher"):
        with contextlib.suppress(
            AssertionError, ImportError, OSError, RuntimeError, subprocess.SubprocessError
        ):
            driver.CudaLauncher(kernel.src, kernel.metadata)


def _raise_if_tool_is_missing(error: Exception) -> None:
    # the message of triton/knobs.py if a program of the compiler is missing
    if isinstance(error, RuntimeError) and str(error).startswith("Cannot find "):
        raise ToolchainError(
            f"{error}, which comes with Triton: install Triton again with pip install "
            f"--force-reinstall triton"
        ) from error


def _launch_shape(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    grid: Any,
) -> LaunchShape | None:
    """Bind the arguments as `JITFunction.run` does, which has just compiled the function."""
    *_, backend, binder = function.device_caches[0]
    options = bound_options(function, kwargs)
    try:
        bound, specialization, parsed = binder(*args, **options)
        _, signature, _, _ = function._pack_args(backend, options, bound, specialization, parsed)
        return shape_of(
            list(parts_of(bound, signature)), grid(dict(bound)) if callable(grid) else grid
        )
    except Exception:  # noqa: BLE001  a launcher's grid may need data that is not there
        return None


def _compiled_by_triton(
    kernel: Any,
    compile_ns: dict[str, int],
    shape: LaunchShape | None,
) -> Compiled:
    import triton

    metadata = kernel.metadata
    is_nvidia = "cubin" in kernel.asm
    binary = kernel.asm["cubin" if is_nvidia else "hsaco"]
    toolchain = {"triton": metadata.triton_version}  # contains LLVM
    if is_nvidia:
        tools = triton.knobs.nvidia
        if metadata.target.arch >= _BLACKWELL:
            tool = tools.ptxas_blackwell
        else:
            tool = tools.ptxas
        toolchain["ptxas"] = _ptxas_version(tool.path) or tool.version
    return Compiled(
        identity=kernel.hash,
        binary=binary,
        symbol=metadata.name,
        thread_count=metadata.num_warps * metadata.target.warp_size,
        dynamic_shared_bytes=int(metadata.shared),
        toolchain=toolchain,
        compile_ns=compile_ns,
        assembly=None if is_nvidia else kernel.asm["amdgcn"],
        tensor_memory_columns=getattr(metadata, "tmem_size", None),
        ir=kernel.asm.get("ttir"),
        shape=shape,
    )


@cache
def _ptxas_version(path: str) -> str | None:
    """Version with patch level, for example 12.8.93."""
    listing = subprocess.run(
        [path, "--version"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    match = re.search(r"\bV(\d+\.\d+\.\d+)", listing)
    return match and match[1]


@contextlib.contextmanager
def _compiling_cuda(target: str, launches: list[Launch]) -> Iterator[None]:
    def compile_only(
        self: CudaKernel,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[object],
        *,
        shared_bytes: int = 0,
        device: object = None,  # noqa: ARG001
    ) -> None:
        if isinstance(block, int):
            thread_count = block
        else:
            thread_count = math.prod(block)
        launch = Launch(
            self.name,
            {
                "template": self.template,
                "options": " ".join(self.options),
                "num_warps": -(-thread_count // 32),
            },
        )
        launches.append(launch)
        try:
            cubin = self.compile(target)
        except CudaCompileError as error:
            # the other launches of the call are still worth compiling
            launch.fail(error)
        except UnsupportedError as error:
            launch.outcome, launch.message = Outcome.UNSUPPORTED, str(error)
        else:
            launch.compiled = Compiled(
                identity=hashlib.sha256(
                    cubin.image + str((thread_count, shared_bytes)).encode()
                ).hexdigest(),
                binary=cubin.image,
                symbol=cubin.symbol,
                thread_count=thread_count,
                dynamic_shared_bytes=shared_bytes,
                toolchain={
                    "nvrtc": "{1}.{2}".format(
                        *importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
                    )
                },
                compile_ns={} if cubin.compile_ns is None else {"nvrtc": cubin.compile_ns},
                shape=shape_of(
                    [
                        Part(name=str(index), value=value, kind="")
                        for index, value in enumerate(args)
                    ],
                    grid,
                ),
            )

    with _replaced(owner=CudaKernel, name="launch", value=compile_only):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _plain(value: Any) -> str | int | float | bool | None:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)


def _configuration(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    kernel: Any,
) -> Configuration:
    """Collect constexprs, options of the back end,
    and environment variables that change the code.
    """
    from triton._C.libtriton import get_cache_invalidating_env_vars

    arguments = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
    constants = {
        parameter.name: _plain(arguments.get(parameter.name, parameter.default))
        for parameter in function.params
        if parameter.is_constexpr
    }
    options = {
        name: _plain(getattr(kernel.metadata, name))
        for name in _OPTION_NAMES
        if hasattr(kernel.metadata, name)
    }
    knobs = {
        name: str(value)
        for name, value in get_cache_invalidating_env_vars().items()
        if name != _LINE_INFORMATION
    }
    return {**constants, **options, **knobs}
