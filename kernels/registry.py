"""Find the bundled kernels: a file `kernels/<family>/*.py` that assigns `swiglu_spec` declares the kernel `swiglu`."""

import re
from importlib import import_module
from pathlib import Path

from roofwatch import KernelSpec
from roofwatch.kernels import KernelError


def _modules() -> dict[str, str]:
    declared = [
        (file.parent.name, name, file.stem)
        for file in Path(__file__).parent.glob("*/*.py")
        for name in re.findall(r"^(\w+)_spec = ", file.read_text(), re.MULTILINE)
    ]
    return {name: f"roofwatch.kernels.{family}.{module}" for family, name, module in sorted(declared)}


MODULES = _modules()
"""Module of each kernel by name, read from source text: an import would load torch and Triton."""


def suite() -> tuple[KernelSpec, ...]:
    """Import and return every kernel."""
    return tuple(_spec(name) for name in MODULES)


def find_kernel(name: str) -> KernelSpec:
    """Look up a kernel by name.

    Raises:
        KernelError: no such kernel; the message lists the available ones.
    """
    if name not in MODULES:
        raise KernelError(f"no kernel is called {name!r}; choose from {', '.join(MODULES)}")
    return _spec(name)


def _spec(name: str) -> KernelSpec:
    spec: KernelSpec = getattr(import_module(MODULES[name]), f"{name}_spec")
    return spec
