import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.gemm.matmul_split_k import matmul_split_k, split_length


@pytest.mark.parametrize(
    ("K", "n_tiles", "length"),
    [
        (8192, 64, 2048),  # 264 programs for 132 multiprocessors: 4 splits of 64 tiles
        (8192, 300, 8192),  # tiles enough without
        (8192, 1, 256),  # no fewer than 4 steps of 64 in a split
        (100, 1, 128),  # one split, in whole blocks
    ],
)
def test_k_is_split_until_every_multiprocessor_has_two_programs(K: int, n_tiles: int, length: int):
    assert split_length(K, 64, n_tiles, 132) == length


@pytest.mark.parametrize("K", [1024, 1030])
def test_each_split_adds_its_own_columns_once(device: str, K: int):
    # whole numbers that float32 adds exactly: a column counted twice or left out shows
    a = torch.ones(3, K, device=device)
    b = torch.arange(K, device=device, dtype=torch.float32)[:, None].expand(K, 70).contiguous()
    assert torch.equal(matmul_split_k(a, b), torch.full((3, 70), K * (K - 1) / 2, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_view_of_a_transposed_weight_is_read_where_it_lies(device: str, dtype: torch.dtype):
    a = torch.randn(5, 515, device=device).to(dtype)
    weight = torch.randn(130, 515, device=device).to(dtype)
    torch.testing.assert_close(matmul_split_k(a, weight.t()), matmul_split_k(a, weight.t().contiguous()))


def test_a_sum_of_no_terms_is_zero(device: str):
    product = matmul_split_k(torch.empty(3, 0, device=device), torch.empty(0, 5, device=device))
    assert torch.equal(product, torch.zeros(3, 5, device=device))


def test_a_matrix_that_is_contiguous_along_neither_dim_is_refused():
    with pytest.raises(KernelError, match=r"b must be contiguous along its last dim, .*; call b.contiguous\(\)"):
        matmul_split_k(torch.zeros(4, 4), torch.zeros(8, 8)[::2, ::2])


def test_a_gradient_is_refused_with_what_to_pass_instead():
    with pytest.raises(KernelError, match=r"a requires a gradient, .* pass a.detach\(\)"):
        matmul_split_k(torch.zeros(4, 4, requires_grad=True), torch.zeros(4, 4))
