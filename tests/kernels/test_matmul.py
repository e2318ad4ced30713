import pytest
import torch

from kernels.matmul import matmul, matmul_spec
from tests.kernels.builders import make_case


def test_cost_of_two_by_five_times_five_by_three():
    case = make_case("matmul", "bfloat16", M=2, N=3, K=5)
    # 6 results, each of 5 multiplications and 5 additions
    assert matmul_spec.flop_count(case) == 6 * 10
    # elements of 2 bytes: 10 of a and 15 of b in, 6 out
    assert matmul_spec.memory_bytes(case) == 20 + 30 + 12


def test_rows_of_wider_matrices_are_read_where_they_lie(device: str):
    a = torch.randn(70, 100, device=device)[:, :33]
    b = torch.randn(33, 100, device=device)[:, :70]
    assert torch.equal(matmul(a, b), matmul(a.contiguous(), b.contiguous()))


def test_every_tile_is_computed_once_and_in_its_place(device: str):
    # a selects rows of b, so each element of the product is an element of b, exactly
    b = torch.arange(1100 * 70, device=device, dtype=torch.float32).reshape(1100, 70)
    chosen = torch.arange(1100, device=device).flip(0)
    a = torch.nn.functional.one_hot(chosen).float()
    assert torch.equal(matmul(a, b), b[chosen])


@pytest.mark.parametrize(("M", "N"), [(0, 3), (3, 0), (0, 0)])
def test_an_empty_product_is_empty(M: int, N: int):
    assert matmul(torch.empty(M, 5), torch.empty(5, N)).shape == (M, N)


def test_a_sum_of_no_terms_is_zero(device: str):
    product = matmul(torch.empty(3, 0, device=device), torch.empty(0, 5, device=device))
    assert torch.equal(product, torch.zeros(3, 5, device=device))
