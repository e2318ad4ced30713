"""Compiles the launches of CUDA C++ kernels for a GPU that is not present."""

import contextlib
import hashlib
import importlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from roofwatch.collector.compile.launch import Compiled, Launch
from roofwatch.collector.compile.launch_arguments import (
    Part,
    shape_of,
)
from roofwatch.cuda import CudaCompileError, CudaKernel
from roofwatch.model.machine import Outcome
from roofwatch.spec import UnsupportedError


@contextlib.contextmanager
def compiling_cuda(target: str, launches: list[Launch]) -> Iterator[None]:
    """Compile each CUDA C++ launch within the block instead of running it."""

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
            launch.outcome = Outcome.UNSUPPORTED
            launch.message = str(error)
        else:
            identified = cubin.image + str((thread_count, shared_bytes)).encode()
            nvrtc = importlib.import_module("cuda.bindings.nvrtc")
            _, major, minor = nvrtc.nvrtcVersion()
            compile_ns: dict[str, int] = {}
            if cubin.compile_ns is not None:
                compile_ns["nvrtc"] = cubin.compile_ns
            parts = [
                Part(
                    name=str(index),
                    value=value,
                    kind="",
                )
                for index, value in enumerate(args)
            ]
            launch.compiled = Compiled(
                identity=hashlib.sha256(identified).hexdigest(),
                binary=cubin.image,
                symbol=cubin.symbol,
                thread_count=thread_count,
                dynamic_shared_bytes=shared_bytes,
                toolchain={"nvrtc": f"{major}.{minor}"},
                compile_ns=compile_ns,
                shape=shape_of(parts, grid),
            )

    with replaced(
        owner=CudaKernel,
        name="launch",
        value=compile_only,
    ):
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replace an attribute within the block."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
