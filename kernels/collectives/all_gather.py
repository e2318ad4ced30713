"""Every rank's rows, one after another, for every rank, as sequence-parallel layers begin with."""

from typing import Any

import torch
from torch import distributed

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels.collectives.collective import EDGES, by_each_library, data_of_ranks, require_group
from roofwatch.kernels.shapes import model_cases, split_activations


def all_gather_reference(x: torch.Tensor, rank: int) -> torch.Tensor:  # noqa: ARG001  every rank gets the same
    """The formula, `out = x[0], x[1], … one below another`."""
    return torch.cat(list(x))


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return data_of_ranks(case, make, n_rows=case["n_rows"])


def _elements(case: Case) -> int:
    """Of all ranks together."""
    return case["ranks"] * case["n_rows"] * case["n_cols"]


def all_gather_flop_count(case: Case) -> float:  # noqa: ARG001  the spec's signature
    """Nothing is computed."""
    return 0


def all_gather_memory_bytes(case: Case) -> float:
    """Of one rank: reads its own rows and writes those of all."""
    return (1 + 1 / case["ranks"]) * _elements(case) * case.itemsize


def all_gather_bus_bytes(case: Case) -> float:
    """(ranks − 1) / ranks of the gathered tensor (NVIDIA/nccl-tests doc/PERFORMANCE.md)."""
    return (case["ranks"] - 1) / case["ranks"] * _elements(case) * case.itemsize


all_gather_spec = KernelSpec(
    name="all_gather",
    family="collectives",
    inputs=_inputs,
    reference=all_gather_reference,
    cases=[
        *cases(
            shapes=[{"ranks": 2, "n_rows": 8, "n_cols": 1024}, {"ranks": 2, "n_rows": 512, "n_cols": 1024}],
            tags=["small"],
        ),
        *model_cases(split_activations()),
    ],
    edges=EDGES,
    flop_count=all_gather_flop_count,
    memory_bytes=all_gather_memory_bytes,
    bus_bytes=all_gather_bus_bytes,
    rank_dimension="ranks",
    interpreted_shape={"n_rows": 16, "n_cols": 1024},
    formula="out = x[0], x[1], ... one below another",
    source="Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022 (arXiv 2205.05198)",
)


@by_each_library(all_gather_spec, deterministic=True)
def all_gather(x: torch.Tensor, rank: int) -> torch.Tensor:
    """The rows of all ranks, one below another.

    Args:
        x: [ranks, n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.

    Returns:
        [ranks * n_rows, n_cols] in x's dtype.

    Raises:
        KernelError: x or rank does not fit the group, or x requires a gradient.
    """
    require_group("all_gather", x, rank)
    ranks, n_rows, n_cols = x.shape
    out = x.new_empty(ranks * n_rows, n_cols)
    if hasattr(distributed, "all_gather_single"):
        distributed.all_gather_single(out, x[rank])
    else:  # its name before torch 2.13
        distributed.all_gather_into_tensor(out, x[rank])
    return out
