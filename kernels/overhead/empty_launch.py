"""Launch overhead: a kernel that adds one to a single element.

It is not a torch operator like the other kernels, so only Triton's launcher and the driver are measured.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from roofwatch import Case, InputMaker, KernelSpec, cases
from roofwatch.kernels import KernelError
from roofwatch.kernels.operands import refuse_gradients, require_operands

MAX_ELEMENTS = 1024


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


def launch_add_one(x: torch.Tensor, out: torch.Tensor) -> None:
    """Launch `out = x + 1` with operands checked by `require_few`; out may be x."""
    _add_one_kernel[(1,)](x, out, x.numel(), **empty_launch_config(x.numel()))


def require_few(kernel: str, x: torch.Tensor) -> None:
    """Refuse what one program does not hold."""
    require_operands(kernel, dims=1, x=x)
    if x.numel() > MAX_ELEMENTS:
        raise KernelError(f"{kernel}: x has {x.numel()} elements, more than {MAX_ELEMENTS}; pass x[:{MAX_ELEMENTS}]")
    refuse_gradients(kernel, x=x)


def empty_launch_reference(x: torch.Tensor) -> torch.Tensor:
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
    source="Zhang, Wahib and Matsuoka, Understanding the Overheads of Launching CUDA Kernels, ICPP 2019",
    interpreted_shape={"n_elements": 200},
)


@empty_launch_spec.implementation("triton", directions=["fwd"], deterministic=True)
def empty_launch(x: torch.Tensor) -> torch.Tensor:
    """Compute `x + 1` in one program.

    Args:
        x: [n_elements], contiguous, at most `MAX_ELEMENTS`.

    Returns:
        [n_elements] in x's dtype.
    """
    require_few("empty_launch", x)
    out = x.new_empty(x.shape)
    if out.numel():
        with torch.cuda.device_of(x):
            launch_add_one(x, out)
    return out


@empty_launch_spec.implementation("torch", directions=["fwd"], compile=True)
def _empty_launch_torch(x: torch.Tensor) -> torch.Tensor:
    return x + 1
