"""Overhead of a chain of dependent small launches, from Python and as a CUDA graph.

`compile` shows the time when the chain is fused into a single kernel.

Source: Gray, Getting Started with CUDA Graphs, NVIDIA developer blog, 2019.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels import KernelError
from roofwatch.kernels.overhead.empty_launch import launch_add_one, require_few

_N_ELEMENTS = 1024
_IS_NOT_THERE = dict.fromkeys(
    ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950"),
    "has no GPU here to capture a graph on; the machine code is that of `triton`",
)


def launch_chain_reference(x: torch.Tensor, n_launches: int) -> torch.Tensor:
    """Compute `x + n_launches`."""
    return x + n_launches


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["n_elements"]), "n_launches": case["n_launches"]}


def launch_chain_flop_count(case: Case) -> float:
    """One addition per element and launch."""
    return case["n_launches"] * case["n_elements"]


def launch_chain_memory_bytes(case: Case) -> float:
    """Reads x and writes out once: intermediate results can stay in cache."""
    return 2 * case["n_elements"] * case.itemsize


launch_chain_spec = KernelSpec(
    name="launch_chain",
    family="overhead",
    inputs=_inputs,
    reference=launch_chain_reference,
    cases=[
        *cases(shapes=[{"n_launches": 16, "n_elements": _N_ELEMENTS}], tags=["small", "quick", "full"]),
        *cases(shapes=[{"n_launches": 256, "n_elements": _N_ELEMENTS}], tags=["full"]),
    ],
    edges=[
        *cases(shapes=[{"n_launches": 3, "n_elements": 0}, {"n_launches": 1, "n_elements": 63}]),
        *cases(shapes=[{"n_launches": 5, "n_elements": 1000}], dtypes=["float16", "bfloat16"]),
    ],
    flop_count=launch_chain_flop_count,
    memory_bytes=launch_chain_memory_bytes,
    formula="out = x + 1 + 1 + ... + 1, a launch for each",
    source="Gray, Getting Started with CUDA Graphs, NVIDIA developer blog, 2019",
    interpreted_shape={"n_launches": 4},
)


@launch_chain_spec.implementation("triton", directions=["fwd"], deterministic=True)
def launch_chain(x: torch.Tensor, n_launches: int) -> torch.Tensor:
    """Add one `n_launches` times, with a launch of one program each.

    Args:
        x: [n_elements], contiguous, at most `roofwatch.kernels.overhead.empty_launch.MAX_ELEMENTS`.
        n_launches: At least 1.

    Returns:
        [n_elements] in x's dtype.
    """
    require_few("launch_chain", x)
    if n_launches < 1:
        raise KernelError(f"launch_chain: n_launches is {n_launches}; pass 1 or more")
    out = x.new_empty(x.shape)
    if out.numel():
        with torch.cuda.device_of(x):
            launch_add_one(x, out)
            for _ in range(n_launches - 1):
                launch_add_one(out, out)
    return out


@launch_chain_spec.implementation("torch", directions=["fwd"], compile=True)
def _launch_chain_torch(x: torch.Tensor, n_launches: int) -> torch.Tensor:
    out = x + 1
    for _ in range(n_launches - 1):
        out.add_(1)
    return out


_captured = WeakTensorKeyDictionary()
"""Captured graphs and their output buffers by input tensor; freed with the input."""


def _replay(chain: Callable[[torch.Tensor, int], torch.Tensor], x: torch.Tensor, n_launches: int) -> torch.Tensor:
    """Run the chain as a CUDA graph, captured at the first call. The next call overwrites the result.

    Raises:
        UnsupportedError: x is not on a GPU.
    """
    if not x.is_cuda:
        raise UnsupportedError("needs a GPU: a CUDA graph is captured on one")
    graphs: dict[Any, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = _captured.setdefault(x, {})
    if (chain, n_launches) not in graphs:
        with torch.cuda.device_of(x):
            chain(x, n_launches)  # compile before the capture
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = chain(x, n_launches)
        graphs[chain, n_launches] = graph, out
    graph, out = graphs[chain, n_launches]
    graph.replay()
    return out


@launch_chain_spec.implementation(
    "triton", name="triton_graph", directions=["fwd"], deterministic=True, unsupported_targets=_IS_NOT_THERE
)
def _launch_chain_triton_graph(x: torch.Tensor, n_launches: int) -> torch.Tensor:
    return _replay(launch_chain, x, n_launches)


@launch_chain_spec.implementation("torch", name="eager_graph", directions=["fwd"])
def _launch_chain_eager_graph(x: torch.Tensor, n_launches: int) -> torch.Tensor:
    return _replay(_launch_chain_torch, x, n_launches)
