"""Implementations of other packages, which kernels have where the package is installed."""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import triton
from torch import Tensor

from roofwatch import KernelSpec, UnsupportedError

Launch = Callable[..., Any]


def liger(
    spec: KernelSpec, *, directions: Sequence[str] = ("fwd", "bwd")
) -> Callable[[Launch], Launch]:
    """Register a launcher as implementation `liger` of a kernel, if Liger Kernel is installed.

    The launcher takes the module `liger_kernel.ops` before the inputs.
    Source: Hsu et al., Liger Kernel, 2024 (arXiv 2410.10989).
    """

    def register(launch: Launch) -> Launch:
        def run(**inputs: Any) -> Any:
            operands = [value for value in inputs.values() if isinstance(value, Tensor)]
            if not operands[0].is_cuda and not triton.knobs.runtime.interpret:
                raise UnsupportedError("needs a GPU")
            return launch(import_module("liger_kernel.ops"), **inputs)

        if find_spec("liger_kernel") is not None:
            spec.implementation("torch", name="liger", directions=directions)(run)
        return launch

    return register
