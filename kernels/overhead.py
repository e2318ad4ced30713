"""Launch overhead: a kernel that adds one to a single element, and a chain of them, from Python and
as a CUDA graph.

These are not torch operators like the other kernels, so only Triton's launcher and the driver are
measured. `compile` shows the time when the chain is fused into a single kernel.

Source: Gray, Getting Started with CUDA Graphs, NVIDIA developer blog, 2019, for the chain.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from roofwatch import Case, InputMaker, KernelSpec, UnsupportedError, cases
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.operands import refuse_gradients, require_operands

MAX_ELEMENTS = 1024
_NEEDS_A_GPU = dict.fromkeys(
    ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950"),
    "has no GPU here to capture a graph on; the machine code is that of `triton`",
)


@triton.jit
def _add_one_kernel(x_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n_elements
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)  # [BLOCK]
    tl.store(out_ptr + offs, (x + 1.0).to(out_ptr.dtype.element_ty), mask=mask)  # [BLOCK]


def empty_launch_config(n_elements: int) -> dict[str, int]:
    """One program, with eight elements per thread of an NVIDIA GPU."""
    block = triton.next_power_of_2(n_elements)
    return {"BLOCK": block, "num_warps": max(block // 256, 1)}


def _launch_add_one(x: Tensor, out: Tensor) -> None:
    """Compute `out = x + 1`; out may be x."""
    _add_one_kernel[(1,)](x, out, x.numel(), **empty_launch_config(x.numel()))


def _require_few(kernel: str, x: Tensor) -> None:
    """Refuse what one program does not hold."""
    require_operands(kernel, dims=1, x=x)
    if x.numel() > MAX_ELEMENTS:
        raise KernelError(
            f"{kernel}: x has {x.numel()} elements, more than {MAX_ELEMENTS}; pass "
            f"x[:{MAX_ELEMENTS}]"
        )
    refuse_gradients(kernel, x=x)


def empty_launch_reference(x: Tensor) -> Tensor:
    """Compute `x + 1`."""
    return x + torch.ones_like(x)


def _inputs(case: Case, make: InputMaker) -> dict[str, Any]:
    return {"x": make.normal(case["n_elements"])}


def empty_launch_flop_count(case: Case) -> float:
    """One addition per element."""
    return case["n_elements"]


def empty_launch_memory_bytes(case: Case) -> float:
    """Reads x and writes out."""
    return 2 * case["n_elements"] * case.itemsize


empty_launch_spec = KernelSpec(
    name="empty_launch",
    family="overhead",
    inputs=_inputs,
    reference=empty_launch_reference,
    cases=cases(shapes=[{"n_elements": 1}], tags=["small", "quick", "full"]),
    edges=[
        *cases(shapes=[{"n_elements": 0}, {"n_elements": 63}, {"n_elements": 1000}]),
        *cases(shapes=[{"n_elements": 63}], dtypes=["float16", "bfloat16"]),
    ],
    flop_count=empty_launch_flop_count,
    memory_bytes=empty_launch_memory_bytes,
    formula="out = x + 1 of one element",
    source="Zhang, Wahib and Matsuoka, Understanding the Overheads of Launching CUDA Kernels, "
    "ICPP 2019",
    interpreted_shape={"n_elements": 200},
)


@empty_launch_spec.implementation("triton", directions=["fwd"], deterministic=True)
def empty_launch(x: Tensor) -> Tensor:
    """Compute `x + 1` in one program.

    Args:
        x: [n_elements], contiguous, at most `MAX_ELEMENTS`.

    Returns:
        [n_elements] in x's dtype.
    """
    _require_few("empty_launch", x)
    out = x.new_empty(x.shape)
    if out.numel():
        with torch.cuda.device_of(x):
            _launch_add_one(x, out)
    return out


@empty_launch_spec.implementation("torch", directions=["fwd"], compile=True)
def _empty_launch_torch(x: Tensor) -> Tensor:
    return x + 1


def launch_chain_reference(x: Tensor, n_launches: int) -> Tensor:
    """Compute `x + n_launches`."""
    return x + n_launches


def _chain_inputs(case: Case, make: InputMaker) -> dict[str, Any]:
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
    inputs=_chain_inputs,
    reference=launch_chain_reference,
    cases=[
        *cases(
            shapes=[{"n_launches": 16, "n_elements": MAX_ELEMENTS}], tags=["small", "quick", "full"]
        ),
        *cases(shapes=[{"n_launches": 256, "n_elements": MAX_ELEMENTS}], tags=["full"]),
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
def launch_chain(x: Tensor, n_launches: int) -> Tensor:
    """Add one `n_launches` times, with a launch of one program each.

    Args:
        x: [n_elements], contiguous, at most `MAX_ELEMENTS`.
        n_launches: At least 1.

    Returns:
        [n_elements] in x's dtype.
    """
    _require_few("launch_chain", x)
    if n_launches < 1:
        raise KernelError(f"launch_chain: n_launches is {n_launches}; pass 1 or more")
    out = x.new_empty(x.shape)
    if out.numel():
        with torch.cuda.device_of(x):
            _launch_add_one(x, out)
            for _ in range(n_launches - 1):
                _launch_add_one(out, out)
    return out


@launch_chain_spec.implementation("torch", directions=["fwd"], compile=True)
def _launch_chain_torch(x: Tensor, n_launches: int) -> Tensor:
    out = x + 1
    for _ in range(n_launches - 1):
        out.add_(1)
    return out


_captured = WeakTensorKeyDictionary()
"""Captured graphs and their output buffers by input tensor; freed with the input."""


def _replay(chain: Callable[[Tensor, int], Tensor], x: Tensor, n_launches: int) -> Tensor:
    """Run the chain as a CUDA graph, captured at the first call. The next call overwrites the
    result.

    Raises:
        UnsupportedError: x is not on a GPU.
    """
    if not x.is_cuda:
        raise UnsupportedError("needs a GPU: a CUDA graph is captured on one")
    graphs: dict[Any, tuple[torch.cuda.CUDAGraph, Tensor]] = _captured.setdefault(x, {})
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
    "triton",
    name="triton_graph",
    directions=["fwd"],
    deterministic=True,
    unsupported_targets=_NEEDS_A_GPU,
)
def _launch_chain_triton_graph(x: Tensor, n_launches: int) -> Tensor:
    return _replay(launch_chain, x, n_launches)


@launch_chain_spec.implementation("torch", name="eager_graph", directions=["fwd"])
def _launch_chain_eager_graph(x: Tensor, n_launches: int) -> Tensor:
    return _replay(_launch_chain_torch, x, n_launches)
