"""The bundled workloads: our kernels against the float64 reference,
and the cost that torch counts.
"""

from dataclasses import replace

import pytest
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roofwatch import Case, KernelSpec, cases, workload
from roofwatch.kernels.registry import single_kernels, workloads
from roofwatch.kernels.workloads import (
    dit_inference_spec,
    dit_training_spec,
    transformer_inference_spec,
    transformer_training_spec,
    weight_count,
)
from roofwatch.model.machine import Outcome
from tests.kernels.builders import check

SMALL = [
    pytest.param(spec, replace(spec.interpreted_case(case), kernel=spec.name), id=case.id)
    for spec in workloads()
    for case in spec.cases
    if "small" in case.tags
]

BLOCKS = [
    transformer_inference_spec,
    transformer_training_spec,
    dit_inference_spec,
    dit_training_spec,
]


@pytest.mark.parametrize(("spec", "case"), SMALL)
def test_each_workload_with_our_kernels_agrees_with_the_float64_reference(
    spec: KernelSpec, case: Case, device: str
) -> None:
    accuracy = check(spec, case, device=device)
    assert accuracy.outcome is Outcome.OK, accuracy.message


@pytest.mark.parametrize(("spec", "case"), SMALL)
def test_each_workload_in_torch_agrees_with_the_float64_reference(
    spec: KernelSpec, case: Case
) -> None:
    accuracy = check(spec, case, device="cpu", implementation="torch")
    assert accuracy.outcome is Outcome.OK, accuracy.message


def transformer_cost(case: Case) -> tuple[float, float]:
    """Count the FLOP of a forward pass, with both halves of the causal mask; values in and out."""
    tokens, weights = case["B"] * case["T"], weight_count(case)
    values = weights + 2 * case["hidden"] + 2 * tokens * case["hidden"]
    return tokens * (2 * weights + 4 * case["T"] * case["H"] * case["D"]), values


def dit_cost(case: Case) -> tuple[float, float]:
    hidden, tokens = case["hidden"], case["B"] * case["T"]
    flop_count = case["B"] * 12 * hidden**2 + tokens * (24 * hidden**2 + 4 * case["T"] * hidden)
    return flop_count, 18 * hidden**2 + 15 * hidden + (case["B"] + 2 * tokens) * hidden


@pytest.mark.parametrize("spec", BLOCKS, ids=lambda spec: spec.name)
def test_counted_costs_are_those_of_the_formulas(spec: KernelSpec) -> None:
    is_transformer, is_training = "transformer" in spec.name, "training" in spec.name
    for case in spec.cases:
        flop_count, values = (transformer_cost if is_transformer else dit_cost)(case)
        positions_bytes = 8 * case["T"] if is_transformer else 0
        assert spec.flop_count(case) == (3 if is_training else 1) * flop_count
        assert (
            spec.memory_bytes(case)
            == (2 if is_training else 1) * values * case.itemsize + positions_bytes
        )


def test_activation_checkpointing_repeats_flop_that_are_not_of_the_model() -> None:
    class Recomputing(nn.Sequential):
        def forward(self, input: Tensor) -> Tensor:  # the name in torch
            result: Tensor = checkpoint(super().forward, input, use_reentrant=False)
            return result

    def step_of(module: type[nn.Sequential]) -> KernelSpec:
        return workload(
            "step",
            module=lambda _: module(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)),
            inputs=lambda _, make: {"input": make.normal(32, 64)},
            cases=cases(shapes=[{"T": 32}], dtypes=["float32"]),
            training=True,
        )

    plain, recomputing = (step_of(module) for module in (nn.Sequential, Recomputing))
    case = recomputing.cases[0]
    assert check(recomputing, case, device="cpu", implementation="torch").outcome is Outcome.OK
    assert recomputing.flop_count(case) == plain.flop_count(plain.cases[0]) == 3 * 4 * 32 * 64 * 128


def test_workloads_are_measured_only_if_they_are_named() -> None:
    assert not {spec.name for spec in workloads()} & {spec.name for spec in single_kernels()}
    assert all("on_request" in case.tags for spec in workloads() for case in spec.cases)
