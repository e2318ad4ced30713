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
import math
from collections.abc import Iterator

from roofwatch.collector.compile.autotuned import MOST_CONFIGURATIONS
from roofwatch.collector.compile.cuda_launches import compiling_cuda
from roofwatch.collector.compile.launch import Launch
from roofwatch.collector.compile.triton_launches import compiling_triton

_READ_PERSONALITY = 0xFFFFFFFF
_ADDR_NO_RANDOMIZE = 0x0040000


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
        compiling_triton(
            target=target,
            launches=launches,
            deadline_s=deadline_s,
            most_configurations=most_configurations,
            is_for_launch=is_for_launch,
        ),
        compiling_cuda(target, launches),
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
    is_allowed = False
    if before >= 0:
        without_random_addresses = ctypes.c_ulong(before | _ADDR_NO_RANDOMIZE)
        is_allowed = personality(without_random_addresses) >= 0
    try:
        yield is_allowed
    finally:
        if is_allowed:
            personality(ctypes.c_ulong(before))
