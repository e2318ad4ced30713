import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.memory.memory_copy import memory_copy, memory_copy_spec


def test_full_cases_are_larger_than_any_cache():
    full = [case for case in memory_copy_spec.cases if "llama_3_1_8b" in case.tags]
    assert full
    for case in full:
        assert case["n_rows"] * case["n_cols"] * case.itemsize > 256 * 2**20


def test_one_row_repeated_without_memory_of_its_own_is_copied_row_by_row(device: str):
    rows = torch.randn(1, 100, device=device).expand(5, 100)
    assert torch.equal(memory_copy(rows), rows)


def test_every_bit_is_kept(device: str):
    specials = torch.tensor([[float("nan"), float("inf"), -0.0, 1e-45]], device=device)
    assert torch.equal(memory_copy(specials).view(torch.int32), specials.view(torch.int32))


def test_columns_with_a_stride_are_refused_with_the_way_out():
    with pytest.raises(KernelError, match=r"x\.contiguous\(\)"):
        memory_copy(torch.randn(4, 6).t())


def test_a_gradient_is_refused_with_the_way_out():
    with pytest.raises(KernelError, match=r"x\.detach\(\)"):
        memory_copy(torch.randn(2, 2, requires_grad=True))
