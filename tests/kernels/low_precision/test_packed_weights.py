import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.building_blocks.formats import pack_int4, pack_ternary
from roofwatch.kernels.low_precision.ternary_matmul import MAX_K, ternary_matmul
from roofwatch.kernels.low_precision.w4a16_matmul import w4a16_matmul


def operands(M: int, N: int, K: int, device: str, dtype: torch.dtype = torch.float16) -> dict[str, torch.Tensor]:
    return {
        "x": torch.randn(M, K).to(dtype).to(device),
        "packed": pack_int4(torch.randint(0, 16, (K, N))).to(device),
        "scale": torch.rand(K // 128, N).to(dtype).to(device),
        "packed_zero": pack_int4(torch.randint(0, 16, (K // 128, N))).to(device),
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_outliers_in_x_do_not_drown_the_rest(device: str, dtype: torch.dtype):
    given = operands(2, 64, 256, device, dtype)
    given["x"][:, 5] = 1000.0
    given["packed"][5] = given["packed_zero"][0]  # whose weights are zero
    without = {**given, "x": given["x"].clone()}
    without["x"][:, 5] = 0.0
    precision = torch.finfo(dtype).eps
    rms = w4a16_matmul(**without).float().square().mean().sqrt().item()
    torch.testing.assert_close(
        w4a16_matmul(**given), w4a16_matmul(**without), rtol=2 * precision, atol=2 * precision * rms
    )


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("x", torch.ones(2, 200, dtype=torch.float16), "x 200, packed 256"),
        ("scale", torch.ones(2, 16, dtype=torch.bfloat16), "the dtypes must be equal"),
        ("scale", torch.ones(2, 24, dtype=torch.float16), r"scale \(2, 24\), groups \(2, 16\)"),
        ("scale", torch.ones(16, 2, dtype=torch.float16).t(), r"contiguous along its last dim.*scale\.contiguous\(\)"),
        ("packed_zero", torch.ones(1, 2, dtype=torch.int32), r"packed_zero \(1, 2\), groups \(2, 2\)"),
    ],
)
def test_an_operand_that_would_be_read_wrongly_is_refused(name: str, broken: torch.Tensor, message: str):
    with pytest.raises(KernelError, match=message):
        w4a16_matmul(**{**operands(2, 16, 256, "cpu"), name: broken})


def ternary_operands(M: int, levels: torch.Tensor, device: str) -> dict[str, torch.Tensor]:
    N, K = levels.shape
    return {
        "x": torch.randint(-127, 128, (M, K), dtype=torch.int8).to(device),
        "x_scale": torch.ones(M, 1, device=device),
        "packed": pack_ternary(levels).to(device),
        "weight_scale": torch.ones(N, 1, device=device),
    }


@pytest.mark.parametrize("M", [1, 40])
def test_the_largest_sums_are_exact(device: str, M: int):
    given = ternary_operands(M, torch.ones(5, 1024, dtype=torch.int8), device)
    given["x"][:] = -128
    assert torch.equal(ternary_matmul(**given).float(), torch.full((M, 5), -131_072.0, device=device))
    assert 128 * 64 * MAX_K < 2**31


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("x", torch.ones(2, 100, dtype=torch.int8), "x has 100 columns, no multiple of 128 up to .*; pad or split"),
        ("packed", torch.ones(3, 33, dtype=torch.uint8), "the packed columns must be equal, got x 32, packed 33"),
        ("weight_scale", torch.ones(1, 1), r"weight_scale must be contiguous float32 of shape \(3, 1\)"),
    ],
)
def test_a_ternary_operand_that_would_be_read_wrongly_is_refused(name: str, broken: torch.Tensor, message: str):
    with pytest.raises(KernelError, match=message):
        ternary_matmul(**{**ternary_operands(2, torch.ones(3, 128, dtype=torch.int8), "cpu"), name: broken})
