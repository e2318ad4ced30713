"""What a launcher asks about the device that it launches on, or compiles for where there is none."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

# Triton decides the same way, at the same moment, whether a decorated function is compiled or interpreted
IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
_MULTIPROCESSORS_OF_AN_H100 = 132
_INTERPRETED_PROGRAMS = 3
"""Few, so that each of a persistent kernel's programs works on several tiles."""


@dataclass(frozen=True)
class Target:
    """What Triton compiles for.

    Args:
        backend: `cuda`, `hip` or, where nothing is compiled, `interpreter`.
        arch: `sm_90` or `gfx942`; empty in the interpreter.
    """

    backend: str
    arch: str

    @property
    def has_tensor_copies(self) -> bool:
        """Whether an engine of the GPU copies tiles by itself (TMA): NVIDIA's from Hopper on. The interpreter plays
        one.
        """
        return self.backend == "interpreter" or (self.backend == "cuda" and int(self.arch.removeprefix("sm_")) >= 90)

    @property
    def chiplet_count(self) -> int:
        """Dies with an L2 cache of their own, to which programs are dealt out in turn. Source: AMD CDNA 3 and CDNA 4
        white papers.
        """
        return 8 if self.arch in {"gfx942", "gfx950"} else 1


def current_target() -> Target:
    """The target of a launch that is made now."""
    if triton.knobs.runtime.interpret:
        return Target("interpreter", "")
    found = triton.runtime.driver.active.get_current_target()
    return Target(found.backend, f"sm_{found.arch}" if found.backend == "cuda" else str(found.arch))


def multiprocessor_count(tensor: torch.Tensor) -> int:
    """Of the tensor's GPU; where there is none, of an H100: the number sizes grids, which are then not launched."""
    if not tensor.is_cuda:
        return _MULTIPROCESSORS_OF_AN_H100
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count


def persistent_program_count(tensor: torch.Tensor, n_tiles: int) -> int:
    """Programs of a kernel whose programs loop over tiles: one per multiprocessor."""
    return min(n_tiles, _INTERPRETED_PROGRAMS if triton.knobs.runtime.interpret else multiprocessor_count(tensor))
