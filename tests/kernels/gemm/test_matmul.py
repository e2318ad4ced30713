import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.gemm.matmul import matmul, matmul_config
from roofwatch.kernels.target import Target


@pytest.mark.parametrize("N", [72, 73])  # rows of 144 bytes, which the copy engine takes, and of 146
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_tile_is_computed_once_and_in_its_place(device: str, dtype: torch.dtype, N: int):
    # a selects rows of b, so each element of the product is an element of b, exactly
    b = torch.randn(600, N, device=device).to(dtype)
    chosen = torch.arange(600, device=device).flip(0)
    a = torch.nn.functional.one_hot(chosen).to(dtype)
    assert torch.equal(matmul(a, b), b[chosen])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("K", [64, 65])
def test_the_view_of_a_transposed_weight_is_read_where_it_lies(device: str, dtype: torch.dtype, K: int):
    a = torch.randn(70, K, device=device).to(dtype)
    weight = torch.randn(130, K, device=device).to(dtype)
    torch.testing.assert_close(matmul(a, weight.t()), matmul(a, weight.t().contiguous()))


def test_a_matrix_of_one_column_is_read_whatever_its_strides(device: str):
    a = torch.randn(5, 40, device=device)
    column = torch.randn(40, 6, device=device).as_strided((40, 1), (6, 5))
    torch.testing.assert_close(matmul(a, column), a @ column)


def test_a_matrix_that_is_contiguous_along_neither_dim_is_refused():
    with pytest.raises(KernelError, match=r"b must be contiguous along its last dim, .*; call b.contiguous\(\)"):
        matmul(torch.zeros(4, 4), torch.zeros(8, 8)[::2, ::2])


@pytest.mark.parametrize(
    ("M", "N", "tile"),
    [
        (8192, 8192, (128, 256)),  # 15.5 rounds of the largest tiles
        (8192, 1280, (128, 128)),  # 2.4 rounds of the largest would take the time of 3
        (64, 8192, (64, 64)),  # few tiles: small ones reach more multiprocessors
    ],
)
def test_the_tiles_are_as_large_as_fills_an_h200(M: int, N: int, tile: tuple[int, int]):
    assert matmul_config(M, N, 2, Target("cuda", "sm_90"), 132, is_copied=True)[:2] == tile


@pytest.mark.parametrize(("M", "N"), [(0, 3), (3, 0), (0, 0)])
def test_an_empty_product_is_empty(M: int, N: int):
    assert matmul(torch.empty(M, 5), torch.empty(5, N)).shape == (M, N)


def test_a_sum_of_no_terms_is_zero(device: str):
    product = matmul(torch.empty(3, 0, device=device), torch.empty(0, 5, device=device))
    assert torch.equal(product, torch.zeros(3, 5, device=device))
