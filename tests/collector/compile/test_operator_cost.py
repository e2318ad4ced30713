"""What a call costs in torch is counted without data: copies, temporaries, waits, both passes."""

from typing import Any

import torch

from roofwatch.collector.compile.proof import prove_case
from roofwatch.model.proofs import OperatorCost
from tests.suites import offset_kernels as kernels

SHAPE: dict[str, Any] = {"n_rows": 262_144, "n_cols": 14_336}
ONE = SHAPE["n_rows"] * SHAPE["n_cols"] * 2
"""Bytes of an input, far more than the memory of a CI machine."""


def cost_of(launch: kernels.Launch) -> OperatorCost:
    spec = kernels.declare(launch, **SHAPE)
    (implementation,) = spec.implementations.values()
    proof = prove_case(spec, implementation, spec.cases[0], "sm_90", limits_budget_s=0)
    assert proof.cost is not None, proof.overflow.message
    return proof.cost


copy_rows = kernels.by_row(kernels.wide_row_kernel)


def test_a_kernel_alone_moves_its_tensors_once() -> None:
    cost = cost_of(copy_rows)

    assert (cost.launch_count, cost.calls, cost.moved_bytes) == (1, {}, 2 * ONE)
    assert (cost.peak_bytes, cost.allocation_count, cost.wait_count) == (ONE, 1, 0)


def test_a_copy_in_the_launcher_costs_two_passes_over_memory() -> None:
    cost = cost_of(lambda x: copy_rows(x.clone()))

    assert cost.calls == {"clone": 1}
    assert cost.moved_bytes == 4 * ONE
    assert cost.peak_bytes == 2 * ONE


def test_temporaries_that_are_freed_do_not_add_up() -> None:
    def launch(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = copy_rows(x)
        return x

    cost = cost_of(launch)

    assert (cost.allocation_count, cost.allocated_bytes) == (3, 3 * ONE)
    assert cost.peak_bytes == 2 * ONE


def test_all_that_brings_a_value_to_the_host_waits() -> None:
    def launch(x: torch.Tensor) -> torch.Tensor:
        if x.abs().max().item() > 0:
            x = copy_rows(x)
        x[:1].cpu()
        return x

    cost = cost_of(launch)

    assert cost.wait_count == 2
    assert cost.calls["item"] == 1


def test_an_index_that_was_made_on_the_host_is_copied_to_the_device() -> None:
    def launch(x: torch.Tensor) -> torch.Tensor:
        rows = torch.triu_indices(4, 4)[0]
        return copy_rows(x[rows + 1])

    assert cost_of(launch).wait_count == 1


def test_an_index_on_the_device_and_one_into_a_host_tensor_copy_nothing() -> None:
    def launch(x: torch.Tensor) -> torch.Tensor:
        rows = torch.triu_indices(4, 4, device=x.device)[0]
        moved_rows = torch.arange(4).to(x.device)
        products = torch.einsum("i,j->ij", torch.arange(8.0), torch.ones(8))
        assert products[torch.arange(4)].shape == (4, 8)
        return copy_rows(x[rows][moved_rows])

    assert cost_of(launch).wait_count == 0


def test_launchers_see_the_gpu_of_the_target() -> None:
    seen: dict[str, object] = {}

    def launch(x: torch.Tensor) -> torch.Tensor:
        properties = torch.cuda.get_device_properties(x.device)
        seen.update(device=str(x.device), is_cuda=x.is_cuda, name=properties.name)
        with torch.cuda.device(x.device):
            scratch = torch.empty(properties.multi_processor_count, device=x.device)
        seen["scratch"] = scratch.shape[0]
        return copy_rows(x)

    cost_of(launch)

    assert seen == {"device": "cuda:0", "is_cuda": True, "name": "NVIDIA H100", "scratch": 132}


def test_the_backward_pass_is_called_without_data() -> None:
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            return copy_rows(x)

        @staticmethod
        def backward(_ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
            return copy_rows(grad.contiguous()) * torch.tensor(2.0, device=grad.device)

    def launch(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = Copy.apply(x)  # type: ignore[no-untyped-call]
        return result

    spec = kernels.declare(launch, directions=("bwd",), **SHAPE)
    (implementation,) = spec.implementations.values()
    proof = prove_case(spec, implementation, spec.cases[0], "sm_90", limits_budget_s=0)

    assert proof.cost is not None, proof.overflow.message
    assert proof.cost.launch_count == 2
    assert proof.cost.calls["mul"] == 1
