"""The device that a kernel is launched on, or compiled for if there is no GPU."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

# Triton decides at import whether a decorated function is compiled or interpreted
IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
_MULTIPROCESSORS_OF_AN_H100 = 132
# ptxas of Triton 3.6 adds a call with 8 bytes of stack to each copy on sm_120
_TMA_TAKES_STACK_ON_SM_120 = triton.__version__.startswith("3.6.")
_INTERPRETED_PROGRAMS = 3
"""Few, so each program of a persistent kernel processes several tiles."""


@dataclass(frozen=True)
class DeviceTarget:
    """A compilation target of Triton.

    Args:
        backend: `cuda`, `hip`, or `interpreter`.
        arch: For example `sm_90` or `gfx942`; empty in the interpreter.
    """

    backend: str
    arch: str

    @property
    def has_tma(self) -> bool:
        """Whether tiles are copied by the Tensor Memory Accelerator: NVIDIA since Hopper, and the
        interpreter.
        """
        if self.arch == "sm_120" and _TMA_TAKES_STACK_ON_SM_120:
            return False
        return self.backend == "interpreter" or (
            self.backend == "cuda" and int(self.arch.removeprefix("sm_")) >= 90
        )

    @property
    def chiplet_count(self) -> int:
        """Dies with their own L2 cache. Programs are assigned to them round-robin.

        Source: AMD CDNA 3 and CDNA 4 white papers.
        """
        return 8 if self.arch in {"gfx942", "gfx950"} else 1


def current_target() -> DeviceTarget:
    """The target of the current device."""
    if triton.knobs.runtime.interpret:
        return DeviceTarget("interpreter", "")
    target = triton.runtime.driver.active.get_current_target()
    arch = str(target.arch)
    if target.backend == "cuda":
        arch = f"sm_{arch}"
    return DeviceTarget(target.backend, arch)


def multiprocessor_count(tensor: Tensor) -> int:
    """Multiprocessors of the tensor's GPU. A CPU tensor counts as on an H100, to size grids for
    compilation.
    """
    if not tensor.is_cuda:
        return _MULTIPROCESSORS_OF_AN_H100
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count


def persistent_program_count(tensor: Tensor, n_tiles: int) -> int:
    """Programs of a persistent kernel: one per multiprocessor, at most one per tile."""
    n_programs = multiprocessor_count(tensor)
    if triton.knobs.runtime.interpret:  # programs run one after the other
        n_programs = _INTERPRETED_PROGRAMS
    return min(n_tiles, n_programs)
