import pytest
import torch

from roofwatch import UnsupportedError
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.low_precision.fp8_matmul_blockwise import (
    fp8_matmul_blockwise,
    fp8_matmul_blockwise_spec,
)
from roofwatch.kernels.low_precision.scaled_matmul import (
    MAX_K,
    fp8_matmul_rowwise,
    fp8_matmul_rowwise_spec,
    int8_matmul,
)
from tests.kernels.builders import make_inputs


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


@pytest.mark.parametrize("M", [3, 70])
def test_sums_beyond_the_precision_of_float32_are_exact(device: str, M: int):
    given = make_inputs("int8_matmul", device, "int8", M=M, N=40, K=3000)
    given["x"][:] = 127
    given["weight"][:] = 127
    given["weight"][:, 0] = 126  # 127 * 127 * 3000 - 127 is odd and above 2^24
    exact = torch.full((M, 40), 127 * 127 * 3000 - 127, device=device)
    expected = (exact.double() * given["x_scale"] * given["weight_scale"].t()).bfloat16()
    torch.testing.assert_close(int8_matmul(**given), expected, rtol=8e-3, atol=0)


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        (
            "weight",
            torch.ones(3, 17, dtype=torch.int8),
            "the columns must be equal, got x 16, weight 17",
        ),
        (
            "x_scale",
            torch.ones(2),
            r"x_scale must be contiguous float32 of shape \(2, 1\).*reshape\(-1, 1\)",
        ),
        (
            "weight_scale",
            torch.ones(3, 1, dtype=torch.bfloat16),
            r"weight_scale .*weight_scale\.float\(\)",
        ),
    ],
)
def test_an_operand_that_would_be_read_wrongly_is_refused(
    name: str, broken: torch.Tensor, message: str
):
    with pytest.raises(KernelError, match=message):
        int8_matmul(**make_inputs("int8_matmul", dtype="int8", M=2, N=3, K=16) | {name: broken})


def test_a_sum_that_could_overflow_is_refused():
    with pytest.raises(KernelError, match=f"at most {MAX_K} are exact; split"):
        int8_matmul(**make_inputs("int8_matmul", dtype="int8", M=1, N=1, K=MAX_K + 1))


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        (
            "x_scale",
            torch.ones(2, 1),
            r"x_scale must be float32 of shape \(2, 2\).*quantise by blocks of 128",
        ),
        (
            "weight_scale",
            torch.ones(3, 2),
            r"weight_scale must be float32 of shape \(2, 2\).*quantise by blocks",
        ),
        (
            "weight",
            torch.ones(130, 199).to(torch.float8_e4m3fn),
            "the columns must be equal, got x 200, weight 199",
        ),
    ],
)
def test_a_blockwise_operand_that_would_be_read_wrongly_is_refused(
    name: str, broken: torch.Tensor, message: str
):
    with pytest.raises(KernelError, match=message):
        fp8_matmul_blockwise(
            **make_inputs("fp8_matmul_blockwise", dtype="float8_e4m3fn", M=2, N=130, K=200)
            | {name: broken}
        )


def test_cublas_says_what_it_needs_for_blocks():
    given = make_inputs("fp8_matmul_blockwise", dtype="float8_e4m3fn", M=128, N=128, K=128)
    with pytest.raises(UnsupportedError, match=r"needs a GPU of compute capability 9\.0"):
        fp8_matmul_blockwise_spec.implementations["scaled_mm"].launch(**given)
