import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.low_precision.packing import pack_ternary
from roofwatch.kernels.low_precision.ternary_matmul import MAX_K, ternary_matmul


def operands(M: int, levels: torch.Tensor, device: str) -> dict[str, torch.Tensor]:
    N, K = levels.shape
    return {
        "x": torch.randint(-127, 128, (M, K), dtype=torch.int8).to(device),
        "x_scale": torch.ones(M, 1, device=device),
        "packed": pack_ternary(levels).to(device),
        "weight_scale": torch.ones(N, 1, device=device),
    }


@pytest.mark.parametrize("M", [1, 40])
def test_a_row_of_the_identity_picks_a_column_of_weights(device: str, M: int):
    levels = torch.randint(-1, 2, (70, 384))
    given = operands(M, levels, device)
    columns = torch.randperm(384)[:M]
    given["x"] = torch.eye(384)[columns].to(torch.int8).to(device)
    assert torch.equal(ternary_matmul(**given).cpu().long(), levels[:, columns].t())


@pytest.mark.parametrize("M", [1, 40])
def test_the_largest_sums_are_exact(device: str, M: int):
    given = operands(M, torch.ones(5, 1024, dtype=torch.int8), device)
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
def test_an_operand_that_would_be_read_wrongly_is_refused(name: str, broken: torch.Tensor, message: str):
    with pytest.raises(KernelError, match=message):
        ternary_matmul(**{**operands(2, torch.ones(3, 128, dtype=torch.int8), "cpu"), name: broken})
