from collections.abc import Callable

import pytest
import torch

from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.target import DeviceTarget
from roofwatch.kernels.gemm.matmul import matmul, matmul_config
from roofwatch.kernels.gemm.matmul_split_k import matmul_split_k

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
EACH = pytest.mark.parametrize("product", [matmul, matmul_split_k], ids=["matmul", "split_k"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("K", [64, 515])
@EACH
def test_a_transposed_view_of_a_weight_gives_the_same_product(
    device: str, dtype: torch.dtype, K: int, product: Product
):
    a = torch.randn(5, K, device=device).to(dtype)
    weight = torch.randn(130, K, device=device).to(dtype)
    torch.testing.assert_close(product(a, weight.t()), product(a, weight.t().contiguous()))


def test_a_matrix_of_one_column_is_read_whatever_its_strides(device: str):
    a = torch.randn(5, 40, device=device)
    column = torch.randn(40, 6, device=device).as_strided((40, 1), (6, 5))
    torch.testing.assert_close(matmul(a, column), a @ column)


def test_a_matrix_that_is_contiguous_along_neither_dim_is_refused():
    with pytest.raises(
        KernelError, match=r"b must be contiguous along its last dim, .*; call b.contiguous\(\)"
    ):
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
    assert matmul_config(M, N, 2, DeviceTarget("cuda", "sm_90"), 132, is_copied=True)[:2] == tile


@EACH
def test_a_sum_of_no_terms_is_zero(device: str, product: Product):
    out = product(torch.empty(3, 0, device=device), torch.empty(0, 5, device=device))
    assert torch.equal(out, torch.zeros(3, 5, device=device))


@pytest.mark.parametrize("K", [1024, 1030])
def test_each_split_adds_its_own_columns_once(device: str, K: int):
    # whole numbers that float32 adds exactly: a column counted twice or left out shows
    a = torch.ones(3, K, device=device)
    b = torch.arange(K, device=device, dtype=torch.float32)[:, None].expand(K, 70).contiguous()
    assert torch.equal(matmul_split_k(a, b), torch.full((3, 70), K * (K - 1) / 2, device=device))
