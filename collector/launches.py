"""Compile what a launcher launches, for a device that is not there, and launch nothing.

The launcher is called on CPU tensors while Triton believes that the target's device is present: every launch is
compiled with just the argument specialisation that it would get at run time (divisibility by 16, equality to 1,
constexprs), and none is run. Source: `JITFunction.warmup` does the same for a device that is there. A `CudaKernel` is
compiled by NVRTC for the target in place of being launched.

Triton's binaries are compiled without line information, so that comments and moves leave the machine code's hash equal;
NVRTC's have none.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from collector.binary import Resources, amd_resources, nvidia_resources, static_shared_bytes
from collector.targets import parse_target
from roofwatch.cuda import CudaCompileError, CudaKernel
from roofwatch.spec import UnsupportedError

Configuration = dict[str, str | int | float | bool | None]

_OPTION_NAMES = ("num_warps", "num_stages", "num_ctas", "waves_per_eu", "enable_fp_fusion")
_MAX_MESSAGE = 2_000
_LINE_INFORMATION = "TRITON_DISABLE_LINE_INFO"


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of one launch."""

    identity: str
    """Equal for launches that were compiled in the same way."""
    binary: bytes
    shared_bytes: int
    """Static and dynamic."""
    assembly: str | None = None
    """AMD's, whose directives tell the resources."""

    def resources(self) -> Resources:
        return nvidia_resources(self.binary) if self.assembly is None else amd_resources(self.assembly)


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
    with _compiling_triton(target, launches), _compiling_cuda(target, launches):
        yield launches


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


@contextlib.contextmanager
def _compiling_triton(target: str, launches: list[Launch]) -> Iterator[None]:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    original_run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:  # noqa: ARG001  Triton's signature
        launch = Launch(self.fn.__name__, {name: _plain(kwargs[name]) for name in _OPTION_NAMES if name in kwargs})
        launches.append(launch)
        self.device_caches.clear()  # keyed by device number, which says nothing here
        kernel = None
        try:
            kernel = original_run(self, *args, grid=grid, warmup=True, **kwargs)
            launch.configuration.update(_configuration(self, args, kwargs, kernel))
        except Exception as error:  # noqa: BLE001  the compiler raises many types; each is one target's outcome
            launch.error = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
        else:
            launch.compiled = _compiled_by_triton(kernel)
        finally:
            self.device_caches.clear()
        return kernel

    def first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
        # which configuration wins can only be measured on the device; the first that may run stands for all
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        chosen = self.prune_configs(kwargs)[0] if len(self.configs) > 1 else self.configs[0]
        if chosen.pre_hook is not None:
            chosen.pre_hook({**self.nargs, **kwargs, **chosen.all_kwargs()})
        return self.fn.run(*args, **kwargs, **chosen.all_kwargs())

    wanted = parse_target(target)
    target_driver = _TargetDriver(GPUTarget(wanted.backend, wanted.arch, wanted.warp_size))
    with (
        _replaced(JITFunction, "run", compile_only),
        _replaced(Autotuner, "run", first_configuration),
        _replaced(driver, "_active", target_driver),
        _without_line_information(),
    ):
        yield


def _compiled_by_triton(kernel: Any) -> Compiled:
    is_nvidia = "cubin" in kernel.asm
    return Compiled(
        identity=kernel.hash,
        binary=kernel.asm["cubin" if is_nvidia else "hsaco"],
        shared_bytes=int(kernel.metadata.shared),
        assembly=None if is_nvidia else kernel.asm["amdgcn"],
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
        launch = Launch(self.name, {"template": self.template, "num_warps": -(-thread_count // 32)})
        launches.append(launch)
        try:
            cubin = self.compile(target)
        except CudaCompileError as error:
            launch.error = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
        except UnsupportedError as error:
            launch.unsupported = str(error)
        else:
            launch.compiled = Compiled(
                identity=hashlib.sha256(cubin.image).hexdigest(),
                binary=cubin.image,
                shared_bytes=static_shared_bytes(cubin.image, cubin.symbol) + shared_bytes,
            )

    with _replaced(CudaKernel, "launch", compile_only):
        yield


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
    given = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
    constants = {
        parameter.name: _plain(given.get(parameter.name, parameter.default))
        for parameter in function.params
        if parameter.is_constexpr
    }
    options = {name: _plain(getattr(kernel.metadata, name)) for name in _OPTION_NAMES if hasattr(kernel.metadata, name)}
    return {**constants, **options}
