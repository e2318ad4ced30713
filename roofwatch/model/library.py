"""Rows of libraries: implementations that stand beside the code of a project, for comparison."""

import re
from collections.abc import Iterable

_VENDOR = (
    r"cublas(lt)?|cudnn|rocblas|hipblas(lt)?|miopen|cutlass|sdpa|scaled_(grouped_)?mm|int_mm"
    r"|semi_structured"
)
_FRAMEWORK = r"torch|pytorch|aten|eager|native|hf|huggingface|transformers"
_WAY = r"[-_. ]?(eager|compile|compiled|inductor|native|sdpa|flash|cudnn|baseline|naive|reference)"
_LIBRARY = re.compile(rf"({_VENDOR}|{_FRAMEWORK})({_WAY})?", re.IGNORECASE)
"""For example `torch.compile`, `cuBLAS` or `sdpa_flash`."""
_IN_ORDER = (
    re.compile(rf"({_VENDOR})({_WAY})?", re.IGNORECASE),
    re.compile(rf"({_FRAMEWORK})([-_. ]?(eager|native|baseline|naive|reference))?", re.IGNORECASE),
)
"""Which library is the reference of a case: that of a vendor, else a framework, else compiled."""


def is_library(implementation: str) -> bool:
    """Whether the name of an implementation is that of a library."""
    return _LIBRARY.fullmatch(implementation) is not None


def reference_among(libraries: Iterable[str]) -> str | None:
    """Choose the library that the others of a case are divided by; None without one."""

    def order(name: str) -> tuple[int, str]:
        ranks = [rank for rank, pattern in enumerate(_IN_ORDER) if pattern.fullmatch(name)]
        return min(ranks, default=len(_IN_ORDER)), name

    return min(libraries, key=order, default=None)
