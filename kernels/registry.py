"""The kernels that come with roofwatch."""

from importlib import import_module

from kernels.errors import KernelError
from roofwatch import KernelSpec

_NAMES = (
    "softmax",
    "rms_norm",
    "swiglu",
    "matmul",
    "attention",
)
"""Each names a module of this package and the spec in it: `softmax` is `softmax_spec` of `kernels/softmax.py`."""


def suite() -> tuple[KernelSpec, ...]:
    """Every kernel of ours. They are imported here, since each brings torch and Triton along."""
    return tuple(_spec(name) for name in _NAMES)


def find_kernel(name: str) -> KernelSpec:
    """Look one of our kernels up.

    Raises:
        KernelError: no such kernel; the message lists those there are.
    """
    if name not in _NAMES:
        raise KernelError(f"no kernel is called {name!r}; choose from {', '.join(_NAMES)}")
    return _spec(name)


def _spec(name: str) -> KernelSpec:
    spec: KernelSpec = getattr(import_module(f"kernels.{name}"), f"{name}_spec")
    return spec
