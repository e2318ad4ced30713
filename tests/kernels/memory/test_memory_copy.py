import pytest
import torch

from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.memory.memory_copy import memory_copy, memory_copy_spec
from tests.kernels.builders import make_case


def test_cost_of_two_rows_of_three():
    case = make_case("memory_copy", n_rows=2, n_cols=3)
    assert memory_copy_spec.flop_count(case) == 0
    # 6 floats of 4 bytes in, 6 out
    assert memory_copy_spec.memory_bytes(case) == 24 + 24


def test_full_cases_are_larger_than_any_cache():
    full = [case for case in memory_copy_spec.cases if "llama_3_1_8b" in case.tags]
    assert full
    for case in full:
        assert case["n_rows"] * case["n_cols"] * case.itemsize > 256 * 2**20


@pytest.mark.parametrize("n_cols", [3, 1000, 9000])
def test_rows_of_a_wider_matrix_are_copied_where_they_lie(device: str, n_cols: int):
    rows = torch.randn(70, n_cols + 5, device=device)[:, 5:]
    out = memory_copy(rows)
    assert torch.equal(out, rows)
    assert out.is_contiguous()


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
