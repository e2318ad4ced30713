"""Collectives of torch.distributed: all-reduce, alone or before an RMS normalisation, all-gather,
reduce-scatter and all-to-all.

Every rank generates the inputs of all ranks and sends only its own, so each rank can check its
result locally. Results are new tensors, as in the out-of-place variant of NVIDIA/nccl-tests. Bus
bytes follow its doc/PERFORMANCE.md.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import (
    refuse_gradients,
    require_contiguous,
    require_operands,
)
from roofwatch.kernels.building_blocks.shapes import (
    Workload,
    exchanged_tokens,
    model_cases,
    shared_activations,
    split_activations,
)
from roofwatch.kernels.normalisation.add_rms_norm import (
    add_rms_norm,
    add_rms_norm_reference,
    add_rms_norm_torch,
)

Collective = Callable[..., Any]

_DEVICE_OF = {"nccl": "cuda", "gloo": "cpu"}
_SEQUENCE_PARALLEL = (
    "Korthikanti et al., Reducing Activation Recomputation in Large Transformer "
    "Models, 2022 (arXiv 2205.05198)"
)


def _collective_spec(
    name: str,
    *,
    n_small_rows: int,
    workloads: Iterable[Workload],
    sends_parts: bool = False,
    further_inputs: Callable[[Case, InputMaker], dict[str, Any]] = lambda _case, _make: {},
    **declared: Any,
) -> KernelSpec:
    """The spec of a collective. With `sends_parts`, `n_rows` counts the rows for one receiving
    rank. `further_inputs` are equal on all ranks.
    """

    def inputs(case: Case, make: InputMaker) -> dict[str, Any]:
        n_rows = case["n_rows"] * (case["ranks"] if sends_parts else 1)
        x = make.normal(case["ranks"], n_rows, case["n_cols"])
        return {"x": x, "rank": make.rank, **further_inputs(case, make)}

    small = [
        {"ranks": 2, "n_rows": n_rows, "n_cols": 1024}
        for n_rows in (n_small_rows, 64 * n_small_rows)
    ]
    return KernelSpec(
        name=name,
        family="collectives",
        inputs=inputs,
        cases=[*cases(shapes=small, tags=["small"]), *model_cases(workloads)],
        edges=[
            *cases(
                shapes=[{"ranks": 2, "n_rows": 1, "n_cols": 63}], dtypes=["float16", "bfloat16"]
            ),
            *cases(
                shapes=[
                    {"ranks": 2, "n_rows": 0, "n_cols": 63},
                    {"ranks": 3, "n_rows": 5, "n_cols": 1000},
                ]
            ),
        ],
        rank_dimension="ranks",
        interpreted_shape={"n_rows": 16, "n_cols": 1024},
        **declared,
    )


def _implement(spec: KernelSpec, *, deterministic: bool) -> Callable[[Collective], Collective]:
    """Register a launcher as `nccl` for GPU tensors and as `gloo` for CPU tensors."""

    def register(launch: Collective) -> Collective:
        def with_device(device: str, x: Tensor, rank: int, **further: Tensor) -> Any:
            if x.device.type != device:
                raise UnsupportedError(f"needs {device} tensors, got {x.device.type}")
            return launch(x, rank, **further)

        for library, device in _DEVICE_OF.items():
            add = spec.implementation(
                "torch", name=library, directions=["fwd"], deterministic=deterministic
            )
            add(partial(with_device, device))
        return launch

    return register


def _require_group(kernel: str, x: Tensor, rank: int) -> None:
    """Check x [ranks, n_rows, n_cols] and rank against the default group of torch.distributed."""
    require_operands(kernel, dims=3, x=x)
    refuse_gradients(kernel, x=x)
    require_contiguous(kernel, x=x)
    if not (distributed.is_available() and distributed.is_initialized()):
        raise KernelError(
            f"{kernel}: this process is in no group; call torch.distributed.init_process_group(...)"
        )
    own_rank, count = distributed.get_rank(), distributed.get_world_size()
    if len(x) != count:
        raise KernelError(
            f"{kernel}: x must hold the data of {count} ranks, got {len(x)}; pass [{count}, "
            f"n_rows, n_cols]"
        )
    if rank != own_rank:
        raise KernelError(
            f"{kernel}: rank must be {own_rank}, got {rank}; pass torch.distributed.get_rank()"
        )


def require_divisible_rows(kernel: str, x: Tensor) -> None:
    """Check that the rows of x [ranks, n_rows, n_cols] split into equal parts, one per rank."""
    ranks, n_rows, _ = x.shape
    if n_rows % ranks:
        raise KernelError(
            f"{kernel}: n_rows must be a multiple of the {ranks} ranks, got {n_rows}; pad x with "
            f"{-n_rows % ranks} rows"
        )


def _own_bytes(case: Case) -> int:
    """Size of [n_rows, n_cols]."""
    return case["n_rows"] * case["n_cols"] * case.itemsize


def all_reduce_reference(x: Tensor, rank: int) -> Tensor:
    """Compute `out = sum over ranks r of x[r]`."""
    return x.sum(dim=0)


all_reduce_spec = _collective_spec(
    "all_reduce",
    reference=all_reduce_reference,
    formula="out = sum over ranks r of x[r]",
    source="Shoeybi et al., Megatron-LM, 2019 (arXiv 1909.08053), section 3",
    n_small_rows=16,
    workloads=shared_activations(),
    # additions of one rank: (ranks - 1) / ranks per element
    flop_count=lambda case: (case["ranks"] - 1) / case["ranks"] * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 2 * _own_bytes(case),
    bus_bytes=lambda case: 2 * (case["ranks"] - 1) / case["ranks"] * _own_bytes(case),
)


@_implement(all_reduce_spec, deterministic=False)
def all_reduce(x: Tensor, rank: int) -> Tensor:
    """Sum the inputs of all ranks. torch reduces in place, so the input is copied first.

    Args:
        x: [ranks, n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.

    Returns:
        [n_rows, n_cols] in x's dtype.
    """
    _require_group("all_reduce", x, rank)
    out = x[rank].clone()
    distributed.all_reduce(out)
    return out


def all_reduce_rms_norm_reference(
    x: Tensor, rank: int, residual: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `h = sum over ranks r of x[r] + residual` and its RMS normalisation."""
    return add_rms_norm_reference(x.sum(dim=0), residual, weight)


def _norm_operands(case: Case, make: InputMaker) -> dict[str, Any]:
    n_rows, n_cols = case["n_rows"], case["n_cols"]
    return {"residual": make.normal(n_rows, n_cols), "weight": make.weights(n_cols)}


def all_reduce_rms_norm_flop_count(case: Case) -> float:
    """Count additions of one rank, and 5 per element of the normalisation."""
    per_element = (case["ranks"] - 1) / case["ranks"] + 5
    return per_element * case["n_rows"] * case["n_cols"]


def all_reduce_rms_norm_memory_bytes(case: Case) -> float:
    """Reads x of this rank, residual and weight; writes both results. The sum of the ranks is not
    counted: one launch would keep it in registers.
    """
    return 4 * _own_bytes(case) + case["n_cols"] * case.itemsize


all_reduce_rms_norm_spec = _collective_spec(
    "all_reduce_rms_norm",
    reference=all_reduce_rms_norm_reference,
    formula="h = sum over ranks r of x[r] + residual; out = h / sqrt(mean(h²) + eps) * weight",
    source="Shoeybi et al., Megatron-LM, 2019 (arXiv 1909.08053), section 3, for the sum; Zhang "
    "and Sennrich, Root Mean Square Layer Normalization, 2019 (arXiv 1910.07467)",
    n_small_rows=16,
    workloads=shared_activations(),
    further_inputs=_norm_operands,
    token_count=lambda case: case["n_rows"],
    flop_count=all_reduce_rms_norm_flop_count,
    memory_bytes=all_reduce_rms_norm_memory_bytes,
    bus_bytes=lambda case: 2 * (case["ranks"] - 1) / case["ranks"] * _own_bytes(case),
)


@_implement(all_reduce_rms_norm_spec, deterministic=False)
def all_reduce_rms_norm(
    x: Tensor, rank: int, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Sum the inputs of all ranks, add the residual and normalise each row, as after each row-split
    projection of a tensor-parallel layer.

    An all-reduce and one launch, `add_rms_norm`. One launch for both would need memory that all
    GPUs of the group can read; no such kernel is here.

    Args:
        x: [ranks, n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.
        residual: [n_rows, n_cols] of x's dtype, contiguous along its last dim.
        weight: [n_cols].
        eps: Added to the mean square.

    Returns:
        The normalised sum and the sum (the next residual), each [n_rows, n_cols] in x's dtype.
    """
    total = all_reduce(x, rank)
    if total.is_cuda:
        return add_rms_norm(total, residual, weight, eps)
    return add_rms_norm_torch(total, residual, weight, eps)


def all_gather_reference(x: Tensor, rank: int) -> Tensor:
    """Concatenate x[0], x[1], ... along the rows."""
    return torch.cat(list(x))


all_gather_spec = _collective_spec(
    "all_gather",
    reference=all_gather_reference,
    formula="out = concatenation of x[0], x[1], ... along rows",
    source=_SEQUENCE_PARALLEL,
    n_small_rows=8,
    workloads=split_activations(),
    flop_count=lambda _case: 0,
    memory_bytes=lambda case: (1 + case["ranks"]) * _own_bytes(case),
    bus_bytes=lambda case: (case["ranks"] - 1) * _own_bytes(case),
)


@_implement(all_gather_spec, deterministic=True)
def all_gather(x: Tensor, rank: int) -> Tensor:
    """Concatenate the rows of all ranks on every rank, as at the start of a sequence-parallel
    layer.

    Args:
        x: [ranks, n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.

    Returns:
        [ranks * n_rows, n_cols] in x's dtype.
    """
    _require_group("all_gather", x, rank)
    ranks, n_rows, n_cols = x.shape
    out = x.new_empty(ranks * n_rows, n_cols)
    if hasattr(distributed, "all_gather_single"):
        distributed.all_gather_single(out, x[rank])
    else:  # its name before torch 2.13
        distributed.all_gather_into_tensor(out, x[rank])
    return out


def reduce_scatter_reference(x: Tensor, rank: int) -> Tensor:
    """Compute part `rank` of the sum over ranks r of x[r]."""
    return x.sum(dim=0).tensor_split(len(x))[rank]


reduce_scatter_spec = _collective_spec(
    "reduce_scatter",
    reference=reduce_scatter_reference,
    formula="out = part number rank of sum over ranks r of x[r]",
    source=_SEQUENCE_PARALLEL,
    n_small_rows=8,
    workloads=split_activations(),
    # one rank adds its own rows: ranks - 1 additions per element
    flop_count=lambda case: (case["ranks"] - 1) * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: (case["ranks"] + 1) * _own_bytes(case),
    bus_bytes=lambda case: (case["ranks"] - 1) * _own_bytes(case),
    sends_parts=True,
)


@_implement(reduce_scatter_spec, deterministic=False)
def reduce_scatter(x: Tensor, rank: int) -> Tensor:
    """Sum the inputs of all ranks and return the rows of this rank, as at the end of a
    sequence-parallel layer.

    Args:
        x: [ranks, ranks * n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.

    Returns:
        [n_rows, n_cols] in x's dtype.
    """
    _require_group("reduce_scatter", x, rank)
    require_divisible_rows("reduce_scatter", x)
    ranks, n_rows, n_cols = x.shape
    out = x.new_empty(n_rows // ranks, n_cols)
    if hasattr(distributed, "reduce_scatter_single"):
        distributed.reduce_scatter_single(out, x[rank])
    else:  # its name before torch 2.13
        distributed.reduce_scatter_tensor(out, x[rank])
    return out


def all_to_all_reference(x: Tensor, rank: int) -> Tensor:
    """Concatenate part `rank` of x[0], x[1], ... along the rows."""
    return torch.cat([sent.tensor_split(len(x))[rank] for sent in x])


all_to_all_spec = _collective_spec(
    "all_to_all",
    reference=all_to_all_reference,
    formula="out = concatenation of part number rank of x[0], x[1], ... along rows",
    source="Lepikhin et al., GShard, Scaling Giant Models with Conditional Computation, 2020 "
    "(arXiv 2006.16668)",
    n_small_rows=8,
    workloads=exchanged_tokens(),
    flop_count=lambda _case: 0,
    memory_bytes=lambda case: 2 * case["ranks"] * _own_bytes(case),
    # a rank keeps one of its parts
    bus_bytes=lambda case: (case["ranks"] - 1) * _own_bytes(case),
    sends_parts=True,
)


@_implement(all_to_all_spec, deterministic=True)
def all_to_all(x: Tensor, rank: int) -> Tensor:
    """Exchange equal parts between all ranks, as tokens are sent to experts on several GPUs.

    Args:
        x: [ranks, ranks * n_rows, n_cols], contiguous; only `x[rank]` is read.
        rank: Of this process in torch.distributed's default group.

    Returns:
        [ranks * n_rows, n_cols] in x's dtype.
    """
    _require_group("all_to_all", x, rank)
    require_divisible_rows("all_to_all", x)
    out = torch.empty_like(x[rank])
    distributed.all_to_all_single(out, x[rank])
    return out
