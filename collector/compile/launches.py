"""Compile what a launcher launches, for a device that is not there, and launch nothing.

The launcher is called on CPU tensors while Triton believes that the target's device is present: every launch is
compiled with just the argument specialisation that it would get at run time (divisibility by 16, equality to 1,
constexprs), and none is run. Source: `JITFunction.warmup` does the same for a device that is there. A `CudaKernel` is
compiled by NVRTC for the target in place of being launched.

Which configuration an autotuner would choose can only be measured, so each one that its pruning leaves is compiled.

Triton's binaries are compiled without line information, so that comments and moves leave the machine code's hash equal;
NVRTC's have none.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from roofwatch.collector.compile.binary import Resources, amd_resources, linker_version, nvidia_resources, ptxas_version
from roofwatch.collector.compile.targets import parse_target
from roofwatch.collector.errors import ToolchainError
from roofwatch.cuda import CudaCompileError, CudaKernel
from roofwatch.spec import UnsupportedError

Configuration = dict[str, str | int | float | bool | None]

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
"""Options of Triton's back ends that change the code; each back end has its own."""
_MAX_MESSAGE = 2_000
_MAX_FUNCTION_NAME = 400
_LINE_INFORMATION = "TRITON_DISABLE_LINE_INFO"
_NS_PER_US = 1_000
_ASK_PERSONALITY = 0xFFFFFFFF
_ADDR_NO_RANDOMIZE = 0x0040000


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of one launch."""

    identity: str
    """Equal for launches that were compiled in the same way."""
    binary: bytes
    symbol: str
    """The function's name in it."""
    thread_count: int
    dynamic_shared_bytes: int
    toolchain: dict[str, str]
    compile_ns: dict[str, int]
    """By stage; empty where it was compiled before."""
    assembly: str | None = None
    """AMD's, whose directives tell the resources."""
    tensor_memory_columns: int | None = None

    def resources(self) -> Resources:
        """Raises:
        ToolchainError: a tool that reads the binary is not there.
        """
        return nvidia_resources(self.binary, self.symbol) if self.assembly is None else amd_resources(self.assembly)


@dataclass
class Launch:
    """A jitted function or a CUDA kernel as it was launched: compiled, or why not."""

    function: str
    configuration: Configuration
    compiled: Compiled | None = None
    error: str | None = None
    """What the compiler said."""
    unsupported: str | None = None
    """Why it cannot be compiled for the target at all."""


@contextlib.contextmanager
def compiling_for(target: str) -> Iterator[list[Launch]]:
    """Compile each launch within the block for a target, and give the list that they are put into.

    Raises:
        TargetError: the target is not known.
    """
    launches: list[Launch] = []
    with same_addresses(), _compiling_triton(target, launches), _compiling_cuda(target, launches):
        yield launches


@contextlib.contextmanager
def same_addresses() -> Iterator[bool]:
    """Start programs without address space layout randomisation; gives whether the system allows it.

    ptxas iterates over tables in the order of addresses: 13.1.80 names the registers of one of our kernels differently
    in a third of its runs. Source: personality(2).
    """
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is None:  # not Linux
        yield False
        return
    before = personality(ctypes.c_ulong(_ASK_PERSONALITY))
    is_allowed = before >= 0 and personality(ctypes.c_ulong(before | _ADDR_NO_RANDOMIZE)) >= 0
    try:
        yield is_allowed
    finally:
        if is_allowed:
            personality(ctypes.c_ulong(before))


class _TargetDriver:
    """What Triton asks of a driver until it launches: which device there is."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@dataclass
class _Times:
    """What Triton says of the time that each of its stages took."""

    by_identity: dict[str, dict[str, int]] = field(default_factory=dict)

    def listen(self, *, metadata: dict[str, Any], times: Any, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            stages = (("ir", times.ir_initialization), *times.lowering_stages)
            self.by_identity[metadata["hash"]] = {name: time_us * _NS_PER_US for name, time_us in stages}


@contextlib.contextmanager
def _compiling_triton(target: str, launches: list[Launch]) -> Iterator[None]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    original_run = JITFunction.run
    times = _Times()
    tuned: list[str] = []

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:  # noqa: ARG001  Triton's signature
        launch = Launch(
            (self.fn.__name__ + "".join(tuned))[:_MAX_FUNCTION_NAME],
            {name: _plain(kwargs[name]) for name in _OPTION_NAMES if name in kwargs},
        )
        launches.append(launch)
        self.device_caches.clear()  # keyed by device number, which says nothing here
        kernel = None
        try:
            kernel = original_run(self, *args, grid=grid, warmup=True, **kwargs)
            launch.configuration.update(_configuration(self, args, kwargs, kernel))
        except Exception as error:  # noqa: BLE001  the compiler raises many types; each is one target's outcome
            _refuse_missing_tools(error)
            launch.error = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
        else:
            launch.compiled = _compiled_by_triton(kernel, times)
        finally:
            self.device_caches.clear()
        return kernel

    def every_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        chosen = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
        kernel = None
        for config in chosen:
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            tuned[:] = [_named(config)] if len(self.configs) > 1 else []
            try:
                kernel = self.fn.run(*args, **kwargs, **config.all_kwargs())
            finally:
                tuned.clear()
        return kernel

    wanted = parse_target(target)
    target_driver = _TargetDriver(GPUTarget(wanted.backend, wanted.arch, wanted.warp_size))
    with (
        _replaced(JITFunction, "run", compile_only),
        _replaced(Autotuner, "run", every_configuration),
        _replaced(driver, "_active", target_driver),
        _replaced(triton.knobs.compilation, "listener", times.listen),
        _without_line_information(),
    ):
        yield


def _named(config: Any) -> str:
    """An autotuner's configuration as a part of a function's name: it tells the ways of compiling it apart, and stays
    when others are added or removed.
    """
    chosen = {name: value for name, value in config.all_kwargs().items() if value is not None}
    return f"[{','.join(f'{name}={value}' for name, value in chosen.items())}]"


def _refuse_missing_tools(error: Exception) -> None:
    """Raises:
    ToolchainError: the error says nothing of the kernel, but that the compiler is not complete.
    """
    # Triton's own error where a program is not there: triton/knobs.py
    if isinstance(error, RuntimeError) and str(error).startswith("Cannot find "):
        raise ToolchainError(
            f"{error}, which comes with Triton: install Triton again with pip install --force-reinstall triton"
        ) from error


def _compiled_by_triton(kernel: Any, times: _Times) -> Compiled:
    metadata = kernel.metadata
    is_nvidia = "cubin" in kernel.asm
    binary = kernel.asm["cubin" if is_nvidia else "hsaco"]
    toolchain = {"triton": metadata.triton_version}
    if is_nvidia:
        toolchain["ptxas"] = ptxas_version(metadata.target.arch)
    elif (llvm := linker_version(binary)) is not None:
        toolchain["llvm"] = llvm
    return Compiled(
        identity=kernel.hash,
        binary=binary,
        symbol=metadata.name,
        thread_count=metadata.num_warps * metadata.target.warp_size,
        dynamic_shared_bytes=int(metadata.shared),
        toolchain=toolchain,
        compile_ns=times.by_identity.get(kernel.hash, {}),
        assembly=None if is_nvidia else kernel.asm["amdgcn"],
        tensor_memory_columns=getattr(metadata, "tmem_size", None),
    )


@contextlib.contextmanager
def _compiling_cuda(target: str, launches: list[Launch]) -> Iterator[None]:
    def compile_only(
        self: CudaKernel,
        grid: int | tuple[int, ...],  # noqa: ARG001  CudaKernel's signature
        block: int | tuple[int, ...],
        args: object,  # noqa: ARG001
        *,
        shared_bytes: int = 0,
        device: object = None,  # noqa: ARG001
    ) -> None:
        thread_count = block if isinstance(block, int) else math.prod(block)
        launch = Launch(
            self.name,
            {"template": self.template, "options": " ".join(self.options), "num_warps": -(-thread_count // 32)},
        )
        launches.append(launch)
        try:
            # a copy, so that the sources are read again and seen to be read
            cubin = self.copy().compile(target)
        except CudaCompileError as error:
            launch.error = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
        except UnsupportedError as error:
            launch.unsupported = str(error)
        else:
            launch.compiled = Compiled(
                identity=hashlib.sha256(cubin.image + str((thread_count, shared_bytes)).encode()).hexdigest(),
                binary=cubin.image,
                symbol=cubin.symbol,
                thread_count=thread_count,
                dynamic_shared_bytes=shared_bytes,
                toolchain={"nvrtc": _nvrtc_version()},
                compile_ns={} if cubin.compile_ns is None else {"nvrtc": cubin.compile_ns},
            )

    with _replaced(CudaKernel, "launch", compile_only):
        yield


def _nvrtc_version() -> str:
    _, major, minor = importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
    return f"{major}.{minor}"


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def _without_line_information() -> Iterator[None]:
    original = os.environ.get(_LINE_INFORMATION)
    os.environ[_LINE_INFORMATION] = "1"
    try:
        yield
    finally:
        if original is None:
            del os.environ[_LINE_INFORMATION]
        else:
            os.environ[_LINE_INFORMATION] = original


def _plain(value: Any) -> str | int | float | bool | None:
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _configuration(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kernel: Any) -> Configuration:
    """Constexprs, options of the back end, and compiler settings of the environment that change the code."""
    from triton._C.libtriton import get_cache_invalidating_env_vars

    given = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
    constants = {
        parameter.name: _plain(given.get(parameter.name, parameter.default))
        for parameter in function.params
        if parameter.is_constexpr
    }
    options = {name: _plain(getattr(kernel.metadata, name)) for name in _OPTION_NAMES if hasattr(kernel.metadata, name)}
    knobs = {name: str(value) for name, value in get_cache_invalidating_env_vars().items() if name != _LINE_INFORMATION}
    return {**constants, **options, **knobs}
