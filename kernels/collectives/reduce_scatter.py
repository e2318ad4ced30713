"""Sum of what every rank holds, of which each rank gets its own rows, as sequence-parallel layers end with."""

from typing import Any

import torch
from torch import distributed

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.collectives.collective import (
    EDGES,
    by_each_library,
    data_of_ranks,
    require_group,
    require_whole_shares,
)
from roofwatch.kernels.shapes import model_cases, split_activations


def reduce_scatter_reference(x: torch.Tensor, rank: int) -> torch.Tensor:
    """The formula, `out = part number rank of the sum over ranks r of x[r]`."""
    return x.sum(dim=0).tensor_split(len(x))[rank]


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return data_of_ranks(case, make, n_rows=case["ranks"] * case["n_rows"])


def _elements(case: Case) -> int:
    """That each rank brings along."""
    return case["ranks"] * case["n_rows"] * case["n_cols"]


def reduce_scatter_flop_count(case: Case) -> float:
    """Of one rank, the additions of its own rows: (ranks − 1) / ranks per element that it brings along."""
    return (case["ranks"] - 1) / case["ranks"] * _elements(case)


def reduce_scatter_memory_bytes(case: Case) -> float:
    """Of one rank: reads its own x and writes its rows of the sum."""
    return (1 + 1 / case["ranks"]) * _elements(case) * case.itemsize


def reduce_scatter_bus_bytes(case: Case) -> float:
    """(ranks − 1) / ranks of the tensor that is reduced (NVIDIA/nccl-tests doc/PERFORMANCE.md)."""
    return (case["ranks"] - 1) / case["ranks"] * _elements(case) * case.itemsize


reduce_scatter_spec = KernelSpec(
    name="reduce_scatter",
    family="collectives",
    inputs=_inputs,
    reference=reduce_scatter_reference,
    cases=[
        *cases(
            shapes=[{"ranks": 2, "n_rows": 8, "n_cols": 1024}, {"ranks": 2, "n_rows": 512, "n_cols": 1024}],
            tags=["small"],
        ),
        *model_cases(split_activations()),
    ],
    edges=EDGES,
    flop_count=reduce_scatter_flop_count,
    memory_bytes=reduce_scatter_memory_bytes,
    bus_bytes=reduce_scatter_bus_bytes,
    rank_dimension="ranks",
    interpreted_shape={"n_rows": 16, "n_cols": 1024},
    formula="out = part number rank of sum over ranks r of x[r]",
    source="Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022 (arXiv 2205.05198)",
)


@by_each_library(reduce_scatter_spec, deterministic=False)
def reduce_scatter(x: torch.Tensor, rank: int) -> torch.Tensor:
    """The sum of all ranks' parts, of which the first rank gets the first rows, and so on.

    Args:
        x: [ranks, ranks * n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: x or rank does not fit the group, or x requires a gradient.
    """
    require_group("reduce_scatter", x, rank)
    require_whole_shares("reduce_scatter", x)
    ranks, n_rows, n_cols = x.shape
    out = x.new_empty(n_rows // ranks, n_cols)
    if hasattr(distributed, "reduce_scatter_single"):
        distributed.reduce_scatter_single(out, x[rank])
    else:  # its name before torch 2.13
        distributed.reduce_scatter_tensor(out, x[rank])
    return out
