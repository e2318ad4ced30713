"""Implementations of other packages, which kernels have where the package is installed."""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import triton
from torch import Tensor

from roofwatch import KernelSpec, UnsupportedError

Launch = Callable[..., Any]
_BOTH = ("fwd", "bwd")
RIVALS = ("liger", "fla", "flag_gems")
"""Names of implementations that launch kernels of other packages."""


def liger(spec: KernelSpec, *, directions: Sequence[str] = _BOTH) -> Callable[[Launch], Launch]:
    """Register a launcher as `liger`, if Liger Kernel is installed.

    The launcher takes the module `liger_kernel.ops` before the inputs.
    Source: Hsu et al., Liger Kernel, 2024 (arXiv 2410.10989).
    """
    return _rival(spec, "liger", "liger_kernel.ops", directions)


def fla(
    spec: KernelSpec, module: str, *, directions: Sequence[str] = _BOTH
) -> Callable[[Launch], Launch]:
    """Register a launcher as `fla`, if flash-linear-attention is installed.

    The launcher takes a module of the package `fla` before the inputs.
    Source: Yang and Zhang, flash-linear-attention, 2024 (github.com/fla-org).
    """
    return _rival(spec, "fla", f"fla.{module}", directions)


def flag_gems(spec: KernelSpec, *, directions: Sequence[str] = _BOTH) -> Callable[[Launch], Launch]:
    """Register a launcher as `flag_gems`, if FlagGems is installed.

    The launcher takes the module `flag_gems` before the inputs.
    Source: FlagGems, operators of PyTorch in Triton (github.com/flagos-ai/FlagGems).
    """
    return _rival(spec, "flag_gems", "flag_gems", directions)


def _rival(
    spec: KernelSpec, name: str, module: str, directions: Sequence[str]
) -> Callable[[Launch], Launch]:
    package = module.partition(".")[0]

    def register(launch: Launch) -> Launch:
        def run(**inputs: Any) -> Any:
            operands = [value for value in inputs.values() if isinstance(value, Tensor)]
            if not operands[0].is_cuda and not triton.knobs.runtime.interpret:
                raise UnsupportedError("needs a GPU")
            return launch(import_module(module), **inputs)

        if find_spec(package) is not None:
            spec.implementation("torch", name=name, directions=directions)(run)
        return launch

    return register
