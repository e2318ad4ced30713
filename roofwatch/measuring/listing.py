"""What `roofwatch list` says of a kernel."""

from __future__ import annotations

from typing import Any

from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.workers.protocol import ImplementationInfo, KernelInfo


def summary(kernel: KernelInfo) -> dict[str, Any]:
    """The kernel as plain values: what it is, and how much of it there is to measure."""
    return {
        "name": kernel.name,
        "family": kernel.family,
        "formula": kernel.formula,
        "source": kernel.source,
        "implementations": [implementation.model_dump(mode="json") for implementation in kernel.implementations],
        "directions": sorted({case.direction for case in kernel.cases}, reverse=True),
        "dtypes": sorted({case.dtype for case in kernel.cases}),
        "targets": targets(kernel),
        "rank_counts": sorted({kernel.rank_count(case) for case in kernel.cases}),
        "tags": sorted({tag for case in kernel.cases for tag in case.tags}),
        "case_count": len(kernel.cases),
        "edge_count": len(kernel.edge_ids),
        "cases": [case.model_dump(mode="json") for case in kernel.cases],
    }


def targets(kernel: KernelInfo) -> list[str]:
    """Of the usual targets those that at least one of the kernel's own implementations is compiled for."""
    return [target for target in DEFAULT_TARGETS if any(_compiles(how, target) for how in kernel.implementations)]


def _compiles(implementation: ImplementationInfo, target: str) -> bool:
    return implementation.language != "torch" and target not in implementation.unsupported_targets
