"""Kernels of a suite as a table and as JSON."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table

from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.console.terminal import make_table
from roofwatch.model.worker_protocol import KernelInfo
from roofwatch.tables.cells import joined


def kernels(infos: Iterable[KernelInfo]) -> Table:
    """One row per kernel of a suite."""
    rows = []
    for info in infos:
        compiled = compiled_targets(info)
        rows.append(
            (
                info.name,
                info.family,
                " ".join(implementation.name for implementation in info.implementations),
                joined(case.direction for case in info.cases),
                joined(case.dtype for case in info.cases),
                "all" if compiled == list(DEFAULT_TARGETS) else " ".join(compiled) or "none",
                len(info.cases),
                info.edge_count,
            )
        )
    columns = (
        "kernel",
        "family",
        "implementations",
        "directions",
        "dtypes",
        "targets",
        "cases",
        "edges",
    )
    return make_table(columns, rows)


def source_lines(kernels: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each kernel in the source of a repository, those with a benchmark file first."""
    lines = []
    for kernel in kernels:
        if kernel["benchmark"] is None:
            lines.append(f"{kernel['name']}: {kernel['found']}, without a benchmark file")
        else:
            implementations = ", ".join(kernel["implementations"])
            lines.append(f"{kernel['name']}: {kernel['benchmark']} ({implementations})")
    return lines or ["no benchmark file, and no function that launches a Triton kernel"]


def compiled_targets(kernel: KernelInfo) -> list[str]:
    """Default targets for which at least one implementation of the kernel is compiled."""
    targets: set[str] = set()
    for implementation in kernel.implementations:
        if implementation.language != "torch":
            targets.update(set(DEFAULT_TARGETS).difference(implementation.unsupported_targets))
    return [target for target in DEFAULT_TARGETS if target in targets]


def kernel_summary(kernel: KernelInfo) -> dict[str, object]:
    """What the cases of a kernel have, for JSON."""
    cases = kernel.cases
    return {
        **kernel.model_dump(mode="json", exclude={"checkable", "rank_dimension"}),
        "directions": sorted({case.direction for case in cases}, reverse=True),
        "dtypes": sorted({case.dtype for case in cases}),
        "targets": compiled_targets(kernel),
        "rank_counts": sorted({kernel.rank_count(case) for case in cases}),
        "tags": sorted(set().union(*(case.tags for case in cases))),
        "edge_count": kernel.edge_count,
    }
