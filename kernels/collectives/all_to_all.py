"""Rows that every rank sends to every other, as the experts of a mixture on several GPUs get their tokens."""

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
from roofwatch.kernels.shapes import exchanged_tokens, model_cases


def all_to_all_reference(x: torch.Tensor, rank: int) -> torch.Tensor:
    """The formula, `out = part number rank of x[0], of x[1], … one below another`."""
    return torch.cat([sent.tensor_split(len(x))[rank] for sent in x])


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return data_of_ranks(case, make, n_rows=case["ranks"] * case["n_rows"])


def _elements(case: Case) -> int:
    """That each rank sends, and gets."""
    return case["ranks"] * case["n_rows"] * case["n_cols"]


def all_to_all_flop_count(case: Case) -> float:  # noqa: ARG001  the spec's signature
    """Nothing is computed."""
    return 0


def all_to_all_memory_bytes(case: Case) -> float:
    """Of one rank: reads what it sends and writes what it gets."""
    return 2 * _elements(case) * case.itemsize


def all_to_all_bus_bytes(case: Case) -> float:
    """(ranks − 1) / ranks of what a rank sends: the rest is its own (NVIDIA/nccl-tests doc/PERFORMANCE.md)."""
    return (case["ranks"] - 1) / case["ranks"] * _elements(case) * case.itemsize


all_to_all_spec = KernelSpec(
    name="all_to_all",
    family="collectives",
    inputs=_inputs,
    reference=all_to_all_reference,
    cases=[
        *cases(
            shapes=[{"ranks": 2, "n_rows": 8, "n_cols": 1024}, {"ranks": 2, "n_rows": 512, "n_cols": 1024}],
            tags=["small"],
        ),
        *model_cases(exchanged_tokens()),
    ],
    edges=EDGES,
    flop_count=all_to_all_flop_count,
    memory_bytes=all_to_all_memory_bytes,
    bus_bytes=all_to_all_bus_bytes,
    rank_dimension="ranks",
    interpreted_shape={"n_rows": 16, "n_cols": 1024},
    formula="out = part number rank of x[0], of x[1], ... one below another",
    source="Lepikhin et al., GShard, Scaling Giant Models with Conditional Computation, 2020 (arXiv 2006.16668)",
)


@by_each_library(all_to_all_spec, deterministic=True)
def all_to_all(x: torch.Tensor, rank: int) -> torch.Tensor:
    """What every rank sends to this one, one below another. Each sends as many rows to one as to another.

    Args:
        x: [ranks, ranks * n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.

    Returns:
        [ranks * n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: x or rank does not fit the group, or x requires a gradient.
    """
    require_group("all_to_all", x, rank)
    require_whole_shares("all_to_all", x)
    out = torch.empty_like(x[rank])
    distributed.all_to_all_single(out, x[rank])
    return out
