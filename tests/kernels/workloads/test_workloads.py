"""The bundled workloads: our kernels against the float64 reference,
and their cost.
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
)
from roofwatch.model.machine import Outcome
from roofwatch.spec.workload import counted_flop_count, counted_memory_bytes
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


@pytest.mark.parametrize(
    ("spec", "inference", "pass_count"),
    [
        (transformer_inference_spec, transformer_inference_spec, 1),
        (transformer_training_spec, transformer_inference_spec, 3),
        (dit_inference_spec, dit_inference_spec, 1),
        (dit_training_spec, dit_inference_spec, 3),
    ],
)
def test_flop_counts_are_those_that_torch_counts(
    spec: KernelSpec, inference: KernelSpec, pass_count: int
) -> None:
    counted = counted_flop_count(inference.reference, inference.inputs)

    for case in spec.cases:
        assert spec.flop_count(case) == pass_count * counted(case)


@pytest.mark.parametrize("spec", BLOCKS, ids=lambda spec: spec.name)
def test_bytes_are_those_of_all_arguments_and_results(spec: KernelSpec) -> None:
    counted = counted_memory_bytes(spec.reference, spec.inputs)

    for case in spec.cases:
        assert spec.memory_bytes(case) == counted(case)


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
