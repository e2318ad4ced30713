"""The kernels that come with roofwatch: `swiglu` is `swiglu_spec` of `kernels/<family>/swiglu.py`."""

import re
from importlib import import_module
from pathlib import Path

from roofwatch import KernelSpec
from roofwatch.kernels.errors import KernelError


def _modules() -> dict[str, str]:
    files = sorted(Path(__file__).parent.glob("*/*.py"))
    declaring = [file for file in files if re.search(rf"^{file.stem}_spec\b", file.read_text(), re.MULTILINE)]
    return {file.stem: f"roofwatch.kernels.{file.parent.name}.{file.stem}" for file in declaring}


MODULES = _modules()
"""The module of each kernel, read from the files' text, since an import brings torch and Triton along."""


def suite() -> tuple[KernelSpec, ...]:
    """Every kernel, imported."""
    return tuple(_spec(name) for name in MODULES)


def find_kernel(name: str) -> KernelSpec:
    """Look a kernel up by its name.

    Raises:
        KernelError: no such kernel; the message lists those there are.
    """
    if name not in MODULES:
        raise KernelError(f"no kernel is called {name!r}; choose from {', '.join(MODULES)}")
    return _spec(name)


def _spec(name: str) -> KernelSpec:
    spec: KernelSpec = getattr(import_module(MODULES[name]), f"{name}_spec")
    return spec
