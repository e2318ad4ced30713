import pytest
import torch

from roofwatch import UnsupportedError
from roofwatch.kernels import KernelError
from roofwatch.kernels.low_precision.fp8_matmul_blockwise import fp8_matmul_blockwise, fp8_matmul_blockwise_spec


def operands(M: int, N: int, K: int, device: str) -> dict[str, torch.Tensor]:
    n_blocks, n_rows = -(-K // 128), -(-N // 128)
    return {
        "x": torch.randn(M, K).to(torch.float8_e4m3fn).to(device),
        "x_scale": torch.rand(M, n_blocks).to(device),
        "weight": torch.randn(N, K).to(torch.float8_e4m3fn).to(device),
        "weight_scale": torch.rand(n_rows, n_blocks).to(device),
    }


@pytest.mark.parametrize("M", [3, 70])
def test_each_block_is_given_its_own_scales(device: str, M: int):
    given = operands(M, 300, 260, device)
    given["x"] = torch.ones(M, 260, device=device).to(torch.float8_e4m3fn)
    given["weight"] = torch.ones(300, 260, device=device).to(torch.float8_e4m3fn)
    given["x_scale"] = torch.tensor([[1.0, 2.0, 4.0]], device=device).repeat(M, 1)
    given["weight_scale"] = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], device=device)
    out = fp8_matmul_blockwise(**given)
    # the third block of columns has four
    expected = torch.tensor([128.0] * 128 + [256.0] * 128 + [16.0] * 44, device=device).repeat(M, 1)
    assert torch.equal(out.float(), expected)


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("x_scale", torch.ones(2, 1), r"x_scale must be float32 of shape \(2, 2\).*quantise by blocks of 128"),
        ("weight_scale", torch.ones(3, 2), r"weight_scale must be float32 of shape \(2, 2\).*quantise by blocks"),
        ("weight", torch.ones(130, 199).to(torch.float8_e4m3fn), "the columns must be equal, got x 200, weight 199"),
    ],
)
def test_an_operand_that_would_be_read_wrongly_is_refused(name: str, broken: torch.Tensor, message: str):
    with pytest.raises(KernelError, match=message):
        fp8_matmul_blockwise(**{**operands(2, 130, 200, "cpu"), name: broken})


def test_cublas_says_what_it_needs_where_it_is_not():
    with pytest.raises(UnsupportedError, match=r"needs a GPU of compute capability 9\.0"):
        fp8_matmul_blockwise_spec.implementations["scaled_mm"].launch(**operands(128, 128, 128, "cpu"))
