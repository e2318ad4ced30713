"""roofwatch: which commit made a GPU kernel slower, by how much, how far from the roof, and why.

These are the names that a benchmark file imports. They are loaded on first use, so that `roofwatch
--help` and a file that only declares kernels stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofwatch.cuda import CudaKernel as CudaKernel
    from roofwatch.spec import Case as Case
    from roofwatch.spec import InputMaker as InputMaker
    from roofwatch.spec import KernelSpec as KernelSpec
    from roofwatch.spec import Tolerance as Tolerance
    from roofwatch.spec import UnsupportedError as UnsupportedError
    from roofwatch.spec import cases as cases
    from roofwatch.spec import tuned as tuned
    from roofwatch.spec import workload as workload

__version__ = "0.1.0"
__all__ = [
    "Case",
    "CudaKernel",
    "InputMaker",
    "KernelSpec",
    "Tolerance",
    "UnsupportedError",
    "__version__",
    "cases",
    "tuned",
    "workload",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(
            f"module 'roofwatch' has no attribute {name!r}; it offers {', '.join(__all__)}"
        )
    return getattr(
        import_module("roofwatch.cuda" if name == "CudaKernel" else "roofwatch.spec"), name
    )
