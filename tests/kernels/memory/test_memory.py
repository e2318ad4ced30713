import pytest
import torch

from roofwatch.kernels.memory.embedding_gather import embedding_gather
from roofwatch.kernels.memory.memory_copy import memory_copy, memory_copy_spec
from roofwatch.kernels.memory.transpose import transpose


@pytest.mark.parametrize("hidden", [3, 2048, 2100])
def test_an_index_outside_of_the_table_gives_a_row_of_nan_and_leaves_the_others(device: str, hidden: int):
    table = torch.randn(4, hidden, device=device)
    out = embedding_gather(table, torch.tensor([3, 4, 0, -1, 2**40], device=device))
    assert torch.equal(out[[0, 2]], table[[3, 0]])
    assert out[[1, 3, 4]].isnan().all()


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


@pytest.mark.parametrize("shape", [(1, 1), (64, 64), (65, 127), (600, 3)])
def test_the_result_is_a_matrix_of_its_own(device: str, shape: tuple[int, int]):
    x = torch.randn(shape, device=device)
    out = transpose(x)
    assert torch.equal(out, x.t())
    assert out.is_contiguous()
