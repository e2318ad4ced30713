"""The bundled workloads: our kernels against the float64 reference, and the cost that torch counts."""

from dataclasses import replace

import pytest

from roofwatch import Case, KernelSpec
from roofwatch.collector.record.machine import Outcome
from roofwatch.kernels.registry import single_kernels, workloads
from roofwatch.kernels.workloads.blocks import (
    dit_inference_spec,
    dit_training_spec,
    transformer_inference_spec,
    transformer_training_spec,
)
from roofwatch.spec.workload import counted_cost
from tests.kernels.builders import check

SMALL = [
    pytest.param(spec, replace(spec.interpreted_case(case), kernel=spec.name), id=case.id)
    for spec in workloads()
    for case in spec.cases
    if "small" in case.tags
]

BLOCKS = [transformer_inference_spec, transformer_training_spec, dit_inference_spec, dit_training_spec]


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


@pytest.mark.parametrize("spec", BLOCKS, ids=lambda spec: spec.name)
def test_declared_costs_are_those_that_torch_counts(spec: KernelSpec) -> None:
    counted = counted_cost(spec.reference, spec.inputs)
    for case in spec.cases:
        assert counted(case) == (spec.flop_count(case), spec.memory_bytes(case))


def test_workloads_are_measured_only_if_they_are_named() -> None:
    assert not {spec.name for spec in workloads()} & {spec.name for spec in single_kernels()}
    assert all("on_request" in case.tags for spec in workloads() for case in spec.cases)
