"""PyTorch on a CPU with the roundings of a GPU."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from roofwatch import KernelSpec, cases
from roofwatch.collector.accuracy.baseline import CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.collector.accuracy.gpu_rounding import GpuRounding
from roofwatch.model.machine import Outcome
from roofwatch.model.regime import Regime

N_ROWS, N_COLS = 4, 96
EPSILON = 1e-6


class LayerNorm(torch.autograd.Function):
    """Keeps its statistics for the backward pass in a dtype."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, kept_dtype: torch.dtype
    ) -> torch.Tensor:
        wide = x.float()
        mean = wide.mean(-1, keepdim=True)
        rstd = (wide.var(-1, keepdim=True, correction=0) + EPSILON).rsqrt()
        ctx.save_for_backward(x, weight, mean.to(kept_dtype), rstd.to(kept_dtype))
        return ((wide - mean) * rstd * weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> Any:
        x, weight, mean, rstd = (saved.float() for saved in ctx.saved_tensors)
        normalised = (x - mean) * rstd
        grad_weight = (upstream.float() * normalised).sum(0)
        terms = upstream.float() * weight
        along = (terms * normalised).mean(-1, keepdim=True)
        grad_x = rstd * (terms - terms.mean(-1, keepdim=True) - normalised * along)
        return grad_x.to(upstream.dtype), grad_weight.to(upstream.dtype), None


spec = KernelSpec(
    name="layer_norm",
    inputs=lambda case, make: {
        "x": make.normal(case["n_rows"], case["n_cols"]),
        "weight": make.weights(case["n_cols"]),
    },
    reference=lambda x, weight: functional.layer_norm(x, weight.shape, weight, eps=EPSILON),
    cases=cases(
        shapes=[{"n_rows": N_ROWS, "n_cols": N_COLS}], dtypes=["bfloat16"], directions=["bwd"]
    ),
    flop_count=lambda _case: 0,
    memory_bytes=lambda _case: 0,
)


@spec.implementation("torch", name="single")
def keep_in_single_precision(x: torch.Tensor, weight: torch.Tensor) -> Any:
    call: Any = LayerNorm.apply
    return call(x, weight, torch.float32)


@spec.implementation("torch", name="rounded")
def round_to_bfloat16(x: torch.Tensor, weight: torch.Tensor) -> Any:
    call: Any = LayerNorm.apply
    return call(x, weight, torch.bfloat16)


@pytest.mark.parametrize(
    ("name", "outcome"), [("single", Outcome.OK), ("rounded", Outcome.INCORRECT)]
)
def test_rounded_statistics_are_found_although_torch_rounds_them_on_a_cpu(
    name: str, outcome: Outcome
) -> None:
    report = check_case(
        spec, spec.cases[0], spec.implementations[name], CheckCache(), regime=Regime.SHIFTED
    )
    assert report.outcome is outcome, report.message


def test_a_change_through_a_view_is_one_of_the_tensor() -> None:
    with GpuRounding():
        values = torch.zeros(4, dtype=torch.bfloat16)
        values[:2].add_(1)
        total = values.sum()
    assert values.tolist() == [1, 1, 0, 0]
    assert total.dtype is torch.bfloat16
