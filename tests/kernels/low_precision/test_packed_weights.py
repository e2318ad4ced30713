import pytest
import torch

from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import pack_ternary
from roofwatch.kernels.low_precision.ternary_matmul import MAX_K, ternary_matmul
from roofwatch.kernels.low_precision.w4a16_matmul import w4a16_matmul
from tests.kernels.builders import make_inputs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_outliers_in_x_do_not_drown_the_rest(device: str, dtype: str):
    given = make_inputs("w4a16_matmul", device, dtype, M=2, N=64, K=256)
    given["x"][:, 5] = 1000.0
    given["packed"][5] = given["packed_zero"][0]  # whose weights are zero
    without = {**given, "x": given["x"].clone()}
    without["x"][:, 5] = 0.0
    precision = torch.finfo(given["x"].dtype).eps
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
        (
            "scale",
            torch.ones(16, 2, dtype=torch.float16).t(),
            r"contiguous along its last dim.*scale\.contiguous\(\)",
        ),
        (
            "packed_zero",
            torch.ones(1, 2, dtype=torch.int32),
            r"packed_zero \(1, 2\), groups \(2, 2\)",
        ),
    ],
)
def test_an_operand_that_would_be_read_wrongly_is_refused(
    name: str, broken: torch.Tensor, message: str
):
    with pytest.raises(KernelError, match=message):
        w4a16_matmul(
            **make_inputs("w4a16_matmul", dtype="float16", M=2, N=16, K=256) | {name: broken}
        )


@pytest.mark.parametrize("M", [1, 40])
def test_the_largest_sums_are_exact(device: str, M: int):
    given = make_inputs("ternary_matmul", device, "int8", M=M, N=5, K=1024)
    given["packed"] = pack_ternary(torch.ones(5, 1024)).to(device)
    given["x_scale"], given["weight_scale"] = (
        torch.ones(M, 1, device=device),
        torch.ones(5, 1, device=device),
    )
    given["x"][:] = -128
    assert torch.equal(
        ternary_matmul(**given).float(), torch.full((M, 5), -131_072.0, device=device)
    )
    assert 128 * 64 * MAX_K < 2**31


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        (
            "x",
            torch.ones(2, 100, dtype=torch.int8),
            "x has 100 columns, no multiple of 128 up to .*; pad or split",
        ),
        (
            "packed",
            torch.ones(3, 33, dtype=torch.uint8),
            "the packed columns must be equal, got x 32, packed 33",
        ),
        (
            "weight_scale",
            torch.ones(1, 1),
            r"weight_scale must be contiguous float32 of shape \(3, 1\)",
        ),
    ],
)
def test_a_ternary_operand_that_would_be_read_wrongly_is_refused(
    name: str, broken: torch.Tensor, message: str
):
    with pytest.raises(KernelError, match=message):
        ternary_matmul(
            **make_inputs("ternary_matmul", dtype="int8", M=2, N=3, K=128) | {name: broken}
        )
