"""Find the bundled kernels: a file that assigns `swiglu_spec` declares the kernel `swiglu`.

A family is a folder, or one file.
"""

import re
from importlib import import_module
from pathlib import Path

from roofwatch import KernelSpec


def _modules() -> dict[str, str]:
    folder = Path(__file__).parent
    declared: list[tuple[str, str, str]] = []
    for file in folder.rglob("*.py"):
        parts = file.relative_to(folder).with_suffix("").parts
        module = ".".join(["roofwatch", "kernels", *parts])
        names = re.findall(r"^(\w+)_spec = ", file.read_text(), re.MULTILINE)
        declared += [(parts[0], name, module) for name in names]
    return {name: module for _family, name, module in sorted(declared)}


MODULES = _modules()
"""Module of each kernel by name, read from source text: an import would load torch and Triton."""


_WORKLOADS = tuple(
    name for name, module in MODULES.items() if module == "roofwatch.kernels.workloads"
)


def suite() -> tuple[KernelSpec, ...]:
    """Import and return everything that is bundled."""
    return (*single_kernels(), *workloads())


def single_kernels() -> tuple[KernelSpec, ...]:
    """Import and return every kernel."""
    return tuple(find_kernel(name) for name in MODULES if name not in _WORKLOADS)


def workloads() -> tuple[KernelSpec, ...]:
    """Import and return every workload, a step of a model that uses several kernels."""
    return tuple(find_kernel(name) for name in _WORKLOADS)


def find_kernel(name: str) -> KernelSpec:
    """Import and return the kernel or workload of this name."""
    spec: KernelSpec = getattr(import_module(MODULES[name]), f"{name}_spec")
    return spec
