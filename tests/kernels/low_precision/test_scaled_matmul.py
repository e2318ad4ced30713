import pytest
import torch

from roofwatch import UnsupportedError
from roofwatch.kernels import KernelError
from roofwatch.kernels.low_precision.fp8_matmul_blockwise import fp8_matmul_blockwise, fp8_matmul_blockwise_spec
from roofwatch.kernels.low_precision.scaled_matmul import (
    MAX_K,
    fp8_matmul_rowwise,
    fp8_matmul_rowwise_spec,
    int8_matmul,
)


def test_every_number_of_e4m3_survives_a_product_with_the_identity(device: str):
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    numbers = numbers[numbers.float().isfinite()].reshape(2, 127).to(device)
    identity = torch.eye(127).to(torch.float8_e4m3fn).to(device)
    ones = torch.ones(127, 1, device=device)
    out = fp8_matmul_rowwise(numbers, ones[:2], identity, ones)
    assert torch.equal(out.float(), numbers.float())


def test_cublas_says_what_it_needs_where_it_is_not():
    x, scale = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.ones(16, 1)
    with pytest.raises(UnsupportedError, match=r"needs a GPU of compute capability 8\.9"):
        fp8_matmul_rowwise_spec.implementations["scaled_mm"].launch(x, scale, x, scale)


def operands(M: int, N: int, K: int, device: str) -> dict[str, torch.Tensor]:
    return {
        "x": torch.randint(-127, 128, (M, K), dtype=torch.int8).to(device),
        "x_scale": torch.rand(M, 1).to(device),
        "weight": torch.randint(-127, 128, (N, K), dtype=torch.int8).to(device),
        "weight_scale": torch.rand(N, 1).to(device),
    }


@pytest.mark.parametrize("M", [3, 70])
def test_sums_beyond_the_precision_of_float32_are_exact(device: str, M: int):
    given = operands(M, 40, 3000, device)
    given["x"][:] = 127
    given["weight"][:] = 127
    given["weight"][:, 0] = 126  # 127 * 127 * 3000 - 127 is odd and above 2^24
    exact = torch.full((M, 40), 127 * 127 * 3000 - 127, device=device)
    expected = (exact.double() * given["x_scale"] * given["weight_scale"].t()).bfloat16()
    torch.testing.assert_close(int8_matmul(**given), expected, rtol=8e-3, atol=0)


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("weight", torch.ones(3, 17, dtype=torch.int8), "the columns must be equal, got x 16, weight 17"),
        ("x_scale", torch.ones(2), r"x_scale must be contiguous float32 of shape \(2, 1\).*reshape\(-1, 1\)"),
        ("weight_scale", torch.ones(3, 1, dtype=torch.bfloat16), r"weight_scale .*weight_scale\.float\(\)"),
    ],
)
def test_an_operand_that_would_be_read_wrongly_is_refused(name: str, broken: torch.Tensor, message: str):
    with pytest.raises(KernelError, match=message):
        int8_matmul(**{**operands(2, 3, 16, "cpu"), name: broken})


def test_a_sum_that_could_overflow_is_refused():
    with pytest.raises(KernelError, match=f"at most {MAX_K} are exact; split"):
        int8_matmul(**operands(1, 1, MAX_K + 1, "cpu"))


def blockwise_operands(M: int, N: int, K: int, device: str) -> dict[str, torch.Tensor]:
    n_blocks, n_rows = -(-K // 128), -(-N // 128)
    return {
        "x": torch.randn(M, K).to(torch.float8_e4m3fn).to(device),
        "x_scale": torch.rand(M, n_blocks).to(device),
        "weight": torch.randn(N, K).to(torch.float8_e4m3fn).to(device),
        "weight_scale": torch.rand(n_rows, n_blocks).to(device),
    }


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("x_scale", torch.ones(2, 1), r"x_scale must be float32 of shape \(2, 2\).*quantise by blocks of 128"),
        ("weight_scale", torch.ones(3, 2), r"weight_scale must be float32 of shape \(2, 2\).*quantise by blocks"),
        ("weight", torch.ones(130, 199).to(torch.float8_e4m3fn), "the columns must be equal, got x 200, weight 199"),
    ],
)
def test_a_blockwise_operand_that_would_be_read_wrongly_is_refused(name: str, broken: torch.Tensor, message: str):
    with pytest.raises(KernelError, match=message):
        fp8_matmul_blockwise(**{**blockwise_operands(2, 130, 200, "cpu"), name: broken})


def test_cublas_says_what_it_needs_for_blocks():
    with pytest.raises(UnsupportedError, match=r"needs a GPU of compute capability 9\.0"):
        fp8_matmul_blockwise_spec.implementations["scaled_mm"].launch(**blockwise_operands(128, 128, 128, "cpu"))
