"""A repository of fourteen commits with five changes, of kernels that a CPU can check and compile.

Each kernel has a file of its own, so that a commit affects one kernel. Timed kernels wait until a
set time is over, so that a slowdown of 12 % is one on a busy machine too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.git_repository import commit_all

_WAIT = """
import time


def wait(microseconds):
    end_ns = time.perf_counter_ns() + 1_000 * microseconds
    while time.perf_counter_ns() < end_ns:
        pass
"""

_TOTAL = """
from roofwatch import KernelSpec, cases

total = KernelSpec(
    name="total",
    inputs=lambda case, make: {{"x": make.normal(case["n"])}},
    reference=lambda x: x.square().sum(),
    cases=cases(shapes=[{{"n": 512}}], directions=["fwd"]),
    flop_count=lambda case: 2 * case["n"],
    memory_bytes=lambda case: case["n"] * case.itemsize,
)


@total.implementation("torch")
def total_eager(x):
    {name} = (x * x).sum()
    wait({microseconds})
    return {name}
"""

_SCALE = """
import torch
from roofwatch import KernelSpec, cases


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        wait({microseconds})
        return 3.0 * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        wait(1_000)
        return {factor} * x * grad


scale = KernelSpec(
    name="scale",
    inputs=lambda case, make: {{"x": make.normal(case["n"])}},
    reference=lambda x: 3.0 * x.square(),
    cases=cases(shapes=[{{"n": 512}}], directions=["fwd", "bwd"]),
    flop_count=lambda case: 2 * case["n"],
    memory_bytes=lambda case: 2 * case["n"] * case.itemsize,
)


@scale.implementation("torch")
def scale_eager(x):
    return Scale.apply(x)
"""

_TILE = """
import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases

ROWS, WARPS = {rows}, {warps}


@triton.jit
def _tile_kernel(x_ptr, y_ptr, n_cols: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, n_cols)
    offsets = rows[:, None] * n_cols + cols[None, :]
    {name} = tl.load(x_ptr + offsets)  # [ROWS, n_cols]
    tl.store(y_ptr + offsets, tl.cumsum({name}, 1))


tile = KernelSpec(
    name="tile",
    inputs=lambda case, make: {{"x": make.normal(case["n"], case["n"])}},
    reference=lambda x: torch.cumsum(x, 1),
    cases=cases(shapes=[{{"n": 128}}], directions=["fwd"]),
    flop_count=lambda case: case["n"] ** 2,
    memory_bytes=lambda case: 2 * case["n"] ** 2 * case.itemsize,
)


@tile.implementation("triton")
def tile_triton(x):
    y = torch.empty_like(x)
    _tile_kernel[(x.shape[0] // ROWS,)](x, y, x.shape[1], ROWS=ROWS, num_warps=WARPS)
    return y
"""


@dataclass(frozen=True)
class Step:
    subject: str
    files: dict[str, str]
    alerts: str = ""
    """The kernel that gets worse."""
    recovers: str = ""
    """The kernel that is as before again."""


def _total(microseconds: int = 1_000, name: str = "y") -> dict[str, str]:
    return {"bench_total.py": _WAIT + _TOTAL.format(microseconds=microseconds, name=name)}


def _scale(factor: float = 6.0, microseconds: int = 1_000) -> dict[str, str]:
    return {"bench_scale.py": _WAIT + _SCALE.format(factor=factor, microseconds=microseconds)}


def _tile(rows: int = 4, warps: int = 4, name: str = "values") -> dict[str, str]:
    return {"bench_tile.py": _TILE.format(rows=rows, warps=warps, name=name)}


STEPS = (
    Step("Add three layers", {**_total(), **_scale(), **_tile()}),
    Step("Describe the layers", {"README.md": "# Layers\n"}),
    Step("Rename a variable of total", _total(name="result")),
    Step("Wait longer in total", _total(microseconds=1_120, name="result"), alerts="total"),
    Step("Ignore caches", {".gitignore": "__pycache__/\n"}),
    Step("Rename the values of tile", _tile(name="row")),
    Step("Halve the gradient of scale", _scale(factor=3.0), alerts="scale"),
    Step("Correct the gradient of scale", _scale(), recovers="scale"),
    Step("Describe how to measure", {"README.md": "# Layers\n\n    roofwatch run\n"}),
    Step("Give tile one warp and large rows", _tile(rows=128, warps=1, name="row"), alerts="tile"),
    Step("Name the result of total again", _total(microseconds=1_120, name="y")),
    Step("Wait longer in scale", _scale(microseconds=1_120), alerts="scale"),
    Step("Revert the longer wait of scale", _scale(), recovers="scale"),
    Step("Explain tile", {"README.md": "# Layers\n\ntile adds up rows.\n"}),
)


def commit_step(folder: Path, step: Step) -> str:
    """Commit a step and return its sha."""
    for name, text in step.files.items():
        (folder / name).write_text(text)
    return commit_all(folder, step.subject)
