"""What the collectives share: their operands, and the library that carries them.

Every rank makes the data of all, of which its launch reads its own: so each can say by itself what it must get.
Results are new tensors, as in the out-of-place variant of NVIDIA/nccl-tests.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.operands import refuse_gradients, require_operands

Collective = Callable[[torch.Tensor, int], torch.Tensor]

_DEVICE_OF = {"nccl": "cuda", "gloo": "cpu"}

EDGES = (
    *cases(shapes=[{"ranks": 2, "n_rows": 1, "n_cols": 63}], dtypes=["float16", "bfloat16"]),
    *cases(shapes=[{"ranks": 2, "n_rows": 0, "n_cols": 63}, {"ranks": 3, "n_rows": 5, "n_cols": 1000}]),
)


def data_of_ranks(case: Case, make: InputMaker, *, n_rows: int) -> dict[str, Any]:
    """`x` [ranks, n_rows, n_cols], what each rank brings along, and `rank`, which of them this one is."""
    return {"x": make.normal(case["ranks"], n_rows, case["n_cols"]), "rank": make.rank}


def by_each_library(spec: KernelSpec, *, deterministic: bool) -> Callable[[Collective], Collective]:
    """Register a launcher as `nccl`, which carries GPU tensors, and as `gloo`, which carries CPU tensors.

    Args:
        spec: The collective.
        deterministic: Each library gives the same bits in every run.
    """

    def register(launch: Collective) -> Collective:
        for library in _DEVICE_OF:
            add = spec.implementation("torch", name=library, directions=["fwd"], deterministic=deterministic)
            add(_by(library, launch))
        return launch

    return register


def _by(library: str, launch: Collective) -> Collective:
    def launch_by_library(x: torch.Tensor, rank: int) -> torch.Tensor:
        if x.device.type != _DEVICE_OF[library]:
            raise UnsupportedError(f"needs {_DEVICE_OF[library]} tensors, got {x.device.type}")
        return launch(x, rank)

    return launch_by_library


def require_group(kernel: str, x: torch.Tensor, rank: int) -> None:
    """Refuse data that is not that of the ranks of torch.distributed's default group.

    Args:
        kernel: Named in the message.
        x: [ranks, n_rows, n_cols], contiguous.
        rank: Which part of x is this process' own.

    Raises:
        KernelError: says what is wrong, and the call that mends it.
    """
    require_operands(kernel, dims=3, x=x)
    refuse_gradients(kernel, x=x)
    if not x.is_contiguous():
        raise KernelError(f"{kernel}: x must be contiguous, got strides {x.stride()}; call x.contiguous()")
    if not (distributed.is_available() and distributed.is_initialized()):
        raise KernelError(f"{kernel}: this process is in no group; call torch.distributed.init_process_group(...)")
    own, count = distributed.get_rank(), distributed.get_world_size()
    if len(x) != count:
        raise KernelError(
            f"{kernel}: x must hold the data of {count} ranks, got {len(x)}; pass [{count}, n_rows, n_cols]"
        )
    if rank != own:
        raise KernelError(f"{kernel}: rank must be {own}, got {rank}; pass torch.distributed.get_rank()")


def require_whole_shares(kernel: str, x: torch.Tensor) -> None:
    """Refuse rows that do not split into equal parts, one for each rank.

    Raises:
        KernelError: says by what to pad.
    """
    ranks, n_rows, _ = x.shape
    if n_rows % ranks:
        raise KernelError(
            f"{kernel}: n_rows must be a multiple of the {ranks} ranks, got {n_rows}; pad x with {-n_rows % ranks} rows"
        )
