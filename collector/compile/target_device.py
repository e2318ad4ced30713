"""Answers what launchers ask about the device, for a target that is not present.

Sources: data sheets of A100, H100, B200, RTX 5090, MI300X and MI355X; CUDA C++ Programming Guide,
technical specifications per compute capability.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from roofwatch.collector.compile.targets import Target, parse_target

_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class _Product:
    name: str
    processor_count: int
    memory_bytes: int
    shared_bytes: int
    """The largest that a block can ask for."""
    cache_bytes: int


_PRODUCTS = {
    "sm_80": _Product(
        name="NVIDIA A100",
        processor_count=108,
        memory_bytes=80 * _GIB,
        shared_bytes=166_912,
        cache_bytes=40 * 2**20,
    ),
    "sm_90": _Product(
        name="NVIDIA H100",
        processor_count=132,
        memory_bytes=80 * _GIB,
        shared_bytes=232_448,
        cache_bytes=50 * 2**20,
    ),
    "sm_100": _Product(
        name="NVIDIA B200",
        processor_count=148,
        memory_bytes=180 * _GIB,
        shared_bytes=232_448,
        cache_bytes=126 * 2**20,
    ),
    "sm_120": _Product(
        name="NVIDIA GeForce RTX 5090",
        processor_count=170,
        memory_bytes=32 * _GIB,
        shared_bytes=101_376,
        cache_bytes=96 * 2**20,
    ),
    "gfx942": _Product(
        name="AMD Instinct MI300X",
        processor_count=304,
        memory_bytes=192 * _GIB,
        shared_bytes=65_536,
        cache_bytes=4 * 2**20,
    ),
    "gfx950": _Product(
        name="AMD Instinct MI355X",
        processor_count=256,
        memory_bytes=288 * _GIB,
        shared_bytes=163_840,
        cache_bytes=4 * 2**20,
    ),
}
_OTHERS = {"cuda": "sm_90", "hip": "gfx942"}
"""Whose product stands for a target without one."""


def device_properties(name: str) -> SimpleNamespace:
    """Make what `torch.cuda.get_device_properties` returns for a target."""
    target = parse_target(name)
    product = _PRODUCTS.get(name) or _PRODUCTS[_OTHERS[target.backend]]
    major, minor = capability(target)
    return SimpleNamespace(
        name=product.name,
        major=major,
        minor=minor,
        multi_processor_count=product.processor_count,
        total_memory=product.memory_bytes,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=product.shared_bytes,
        shared_memory_per_multiprocessor=product.shared_bytes + 1024,
        regs_per_multiprocessor=65_536,
        max_threads_per_multi_processor=2_048,
        warp_size=target.warp_size,
        L2_cache_size=product.cache_bytes,
        gcnArchName=str(target.arch),
    )


def capability(target: Target) -> tuple[int, int]:
    if isinstance(target.arch, int):
        return divmod(target.arch, 10)
    return int(target.arch[3]), int(target.arch[4], 16)


def driver_properties(name: str) -> dict[str, int]:
    """Make what `driver.active.utils.get_device_properties` of Triton returns for a target."""
    properties = device_properties(name)
    return {
        "max_shared_mem": properties.shared_memory_per_block_optin,
        "max_num_regs": properties.regs_per_multiprocessor,
        "multiprocessor_count": properties.multi_processor_count,
        "warpSize": properties.warp_size,
        "sm_clock_rate": 1_500_000,
        "mem_clock_rate": 2_000_000,
        "mem_bus_width": 5_120,
    }


@contextlib.contextmanager
def answering_for(name: str) -> Iterator[None]:
    """Answer queries of torch about the current device for a target, within the block."""
    properties = device_properties(name)
    stream = SimpleNamespace(
        cuda_stream=0,
        device_index=0,
        synchronize=_ignoring(),
    )
    answers: dict[str, Any] = {
        "get_device_properties": lambda *_args, **_kwargs: properties,
        "get_device_capability": lambda *_args: (properties.major, properties.minor),
        "get_device_name": lambda *_args: properties.name,
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "current_stream": lambda *_args: stream,
        "default_stream": lambda *_args: stream,
        "device": _Within,
        "device_of": _Within,
        "stream": _Within,
        "synchronize": _ignoring(),
        "set_device": _ignoring(),
    }
    with contextlib.ExitStack() as stack:
        for attribute, answer in answers.items():
            stack.enter_context(replaced(torch.cuda, attribute, answer))
        # kernels that run on a CPU device too use `torch.cpu` like `torch.cuda`
        for attribute in ("device", "device_of"):
            stack.enter_context(replaced(torch.cpu, attribute, _Within))
        # builds of torch without CUDA lack what launchers get streams from
        stack.enter_context(
            replaced(
                owner=torch._C,
                name="_cuda_getCurrentRawStream",
                value=lambda *_args: 0,
            )
        )
        yield


def target_driver(name: str) -> SimpleNamespace:
    """Make the part of a Triton driver that launchers and compiling need, for a target."""
    from triton.backends.compiler import GPUTarget

    target = parse_target(name)
    gpu = GPUTarget(
        backend=target.backend,
        arch=target.arch,
        warp_size=target.warp_size,
    )
    properties = driver_properties(name)
    return SimpleNamespace(
        utils=SimpleNamespace(get_device_properties=lambda _device: properties),
        get_device_interface=lambda: torch.cuda,
        get_current_device=lambda: 0,
        set_current_device=lambda _device: None,
        get_current_stream=lambda _device: 0,
        get_current_target=lambda: gpu,
        get_active_torch_device=lambda: torch.device("cpu"),
        # what tuners ask for that packages derive from Triton's; nothing is timed
        get_benchmarker=lambda: lambda *_args, **_options: [0.0, 0.0, 0.0],
        get_empty_cache_for_benchmark=lambda: torch.empty(0),
        clear_cache=_ignoring(),
        launcher_cls=_refuse_launch,
    )


class LaunchedAtImportError(RuntimeError):
    """A file launches a kernel while it is imported."""


def _refuse_launch(*_compiled: object) -> NoReturn:
    raise LaunchedAtImportError(
        "a kernel is launched while the file is imported, and there is no GPU; move what runs "
        'kernels below `if __name__ == "__main__":`'
    )


@contextlib.contextmanager
def pretending_driver(name: str) -> Iterator[None]:
    """Answer torch's and Triton's queries for a target within the block, and those of programs that
    look for `nvidia-smi`, as some packages do when they are imported.
    """
    with (
        answering_for(name),
        active_driver(target_driver(name)),
        tempfile.TemporaryDirectory(prefix="roofwatch-pretended-") as folder,
    ):
        program = Path(folder) / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho '{device_properties(name).name}'\n")
        program.chmod(0o700)
        path = os.environ.get("PATH", "")
        os.environ["PATH"] = os.pathsep.join([folder, path])
        try:
            yield
        finally:
            os.environ["PATH"] = path


def active_driver(driver: SimpleNamespace) -> contextlib.AbstractContextManager[None]:
    """Make Triton use a driver within the block."""
    from triton.runtime import driver as configured

    # a property since Triton 3.5
    name = "active"
    if hasattr(configured, "_active"):
        name = "_active"
    return replaced(
        owner=configured,
        name=name,
        value=driver,
    )


def install_driver(name: str) -> None:
    """Answer Triton's queries for a target from now on, in a process whose kernels are run by
    Triton's interpreter.
    """
    from triton.runtime import driver

    driver.set_active(target_driver(name))
    for attribute in ("device", "device_of"):
        setattr(torch.cpu, attribute, _Within)


class _Within(contextlib.nullcontext[None]):
    """A context for any device."""

    idx = 0
    """Index of the device, as `torch.cuda.device` has it."""

    def __init__(self, *_args: object) -> None:
        super().__init__()


def _ignoring() -> Callable[..., None]:
    """Make a function that does nothing; a new one, as torch._dynamo keeps a table of functions."""
    return lambda *_args, **_kwargs: None


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Set an attribute within the block."""
    # an attribute of a base class must not be written into the class
    if isinstance(owner, type):
        is_there = name in vars(owner)
    else:
        is_there = hasattr(owner, name)
    original = getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_there:
            setattr(owner, name, original)
        else:
            delattr(owner, name)
