"""The bundled workloads: our kernels against the float64 reference, and the cost that torch counts."""

from dataclasses import replace

import pytest

from roofwatch import Case, KernelSpec
from roofwatch.collector.record.machine import Outcome
from roofwatch.kernels.registry import single_kernels, workloads
from roofwatch.kernels.workloads.blocks import transformer_inference_spec, transformer_training_spec
from tests.kernels.builders import check

SMALL = [
    pytest.param(spec, replace(spec.interpreted_case(case), kernel=spec.name), id=case.id)
    for spec in workloads()
    for case in spec.cases
    if "small" in case.tags
]


@pytest.mark.parametrize(("spec", "case"), SMALL)
def test_each_workload_with_our_kernels_agrees_with_the_float64_reference(
    spec: KernelSpec, case: Case, device: str
) -> None:
    accuracy = check(spec, case, device=device)
    assert accuracy.outcome is Outcome.OK, accuracy.message


@pytest.mark.parametrize(("spec", "case"), SMALL)
def test_each_workload_in_torch_agrees_with_the_float64_reference(spec: KernelSpec, case: Case) -> None:
    accuracy = check(spec, case, device="cpu", implementation="torch")
    assert accuracy.outcome is Outcome.OK, accuracy.message


def test_flop_are_those_of_the_products_and_a_training_step_has_three_times_as_many() -> None:
    case = transformer_inference_spec.cases[0]
    T, hidden, heads = case["T"], case["hidden"], (case["H"] + case["H_KV"]) * case["D"]
    weights = hidden * (2 * heads + 3 * case["ffn"])
    inference = 2 * T * weights + 4 * T * T * case["H"] * case["D"]  # torch counts both halves of a causal mask
    assert transformer_inference_spec.flop_count(case) == inference

    training = transformer_training_spec.flop_count(transformer_training_spec.cases[0])
    assert training == 3 * inference


def test_workloads_are_measured_only_if_they_are_named() -> None:
    assert not {spec.name for spec in workloads()} & {spec.name for spec in single_kernels()}
    assert all("on_request" in case.tags for spec in workloads() for case in spec.cases)
