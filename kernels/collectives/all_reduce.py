"""Sum of what every rank holds, for every rank, as tensor-parallel layers end with."""

from typing import Any

import torch
from torch import distributed

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.collectives.collective import EDGES, by_each_library, data_of_ranks, require_group
from roofwatch.kernels.shapes import model_cases, shared_activations


def all_reduce_reference(x: torch.Tensor, rank: int) -> torch.Tensor:  # noqa: ARG001  every rank gets the same
    """The formula, `out = sum over ranks r of x[r]`."""
    return x.sum(dim=0)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return data_of_ranks(case, make, n_rows=case["n_rows"])


def _elements(case: Case) -> int:
    return case["n_rows"] * case["n_cols"]


def all_reduce_flop_count(case: Case) -> float:
    """Of one rank, its share of the additions: (ranks − 1) / ranks per element."""
    return (case["ranks"] - 1) / case["ranks"] * _elements(case)


def all_reduce_memory_bytes(case: Case) -> float:
    """Of one rank: reads its own x and writes out."""
    return 2 * _elements(case) * case.itemsize


def all_reduce_bus_bytes(case: Case) -> float:
    """2 (ranks − 1) / ranks of the tensor (NVIDIA/nccl-tests doc/PERFORMANCE.md)."""
    return 2 * (case["ranks"] - 1) / case["ranks"] * _elements(case) * case.itemsize


all_reduce_spec = KernelSpec(
    name="all_reduce",
    family="collectives",
    inputs=_inputs,
    reference=all_reduce_reference,
    cases=[
        *cases(
            shapes=[{"ranks": 2, "n_rows": 16, "n_cols": 1024}, {"ranks": 2, "n_rows": 1024, "n_cols": 1024}],
            tags=["small"],
        ),
        *model_cases(shared_activations()),
    ],
    edges=EDGES,
    flop_count=all_reduce_flop_count,
    memory_bytes=all_reduce_memory_bytes,
    bus_bytes=all_reduce_bus_bytes,
    rank_dimension="ranks",
    interpreted_shape={"n_rows": 16, "n_cols": 1024},
    formula="out = sum over ranks r of x[r]",
    source="Shoeybi et al., Megatron-LM, 2019 (arXiv 1909.08053), section 3",
)


@by_each_library(all_reduce_spec, deterministic=False)
def all_reduce(x: torch.Tensor, rank: int) -> torch.Tensor:
    """The sum of all ranks' parts. torch reduces in place, so a copy of the own part is a part of the work.

    Args:
        x: [ranks, n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.

    Returns:
        [n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: x or rank does not fit the group, or x requires a gradient.
    """
    require_group("all_reduce", x, rank)
    out = x[rank].clone()
    distributed.all_reduce(out)
    return out
