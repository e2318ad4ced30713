import pytest
import torch

from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.low_precision.int8_matmul import MAX_K, int8_matmul, int8_matmul_spec
from roofwatch.kernels.low_precision.quantise_int8 import quantise_int8
from tests.kernels.builders import make_case


def operands(M: int, N: int, K: int, device: str) -> dict[str, torch.Tensor]:
    return {
        "x": torch.randint(-127, 128, (M, K), dtype=torch.int8).to(device),
        "x_scale": torch.rand(M, 1).to(device),
        "weight": torch.randint(-127, 128, (N, K), dtype=torch.int8).to(device),
        "weight_scale": torch.rand(N, 1).to(device),
    }


def test_cost_of_a_product_of_two_by_three_by_five():
    case = make_case("int8_matmul", "int8", M=2, N=3, K=5)
    # 30 products and as many additions, and two scales for each of 6 results
    assert int8_matmul_spec.flop_count(case) == 60 + 12
    # 10 and 15 bytes of numbers, 2 and 3 scales of 4 bytes, 6 results of 2 bytes
    assert int8_matmul_spec.memory_bytes(case) == 10 + 15 + 8 + 12 + 12


@pytest.mark.parametrize("M", [3, 70])
def test_sums_beyond_the_precision_of_float32_are_exact(device: str, M: int):
    given = operands(M, 40, 3000, device)
    given["x"][:] = 127
    given["weight"][:] = 127
    given["weight"][:, 0] = 126  # 127 * 127 * 3000 - 127 is odd and above 2^24
    exact = torch.full((M, 40), 127 * 127 * 3000 - 127, device=device)
    expected = (exact.double() * given["x_scale"] * given["weight_scale"].t()).bfloat16()
    torch.testing.assert_close(int8_matmul(**given), expected, rtol=8e-3, atol=0)


def test_rows_of_wider_matrices_are_read_where_they_lie(device: str):
    given = operands(5, 40, 100, device)
    whole = int8_matmul(**given)
    for name in ("x", "weight"):
        wider = torch.full((given[name].shape[0], 117), 99, dtype=torch.int8, device=device)
        wider[:, 3:103] = given[name]
        given[name] = wider[:, 3:103]
    assert torch.equal(int8_matmul(**given), whole)


def test_quantised_operands_multiply_to_nearly_the_product(device: str):
    x, weight = torch.randn(20, 256, device=device), torch.randn(30, 256, device=device)
    out = int8_matmul(*quantise_int8(x), *quantise_int8(weight))
    error = (out.float() - x @ weight.t()).square().mean().sqrt() / (x @ weight.t()).square().mean().sqrt()
    assert error < 0.02


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("x", torch.ones(2, 16), r"x is torch.float32, which is none of torch.int8; call x\.to\(torch.int8\)"),
        ("weight", torch.ones(3, 17, dtype=torch.int8), "the columns must be equal, got x 16, weight 17"),
        ("weight", torch.ones(16, 3, dtype=torch.int8).t(), r"contiguous along its last dim.*weight\.contiguous\(\)"),
        ("x_scale", torch.ones(2), r"x_scale must be contiguous float32 of shape \(2, 1\).*reshape\(-1, 1\)"),
        ("weight_scale", torch.ones(3, 1, dtype=torch.bfloat16), r"weight_scale .*weight_scale\.float\(\)"),
    ],
)
def test_an_operand_that_would_be_read_wrongly_is_refused(name: str, broken: torch.Tensor, message: str):
    with pytest.raises(KernelError, match=message):
        int8_matmul(**{**operands(2, 3, 16, "cpu"), name: broken})


def test_a_sum_that_could_overflow_is_refused():
    with pytest.raises(KernelError, match=f"at most {MAX_K} add up exactly; split"):
        int8_matmul(**operands(1, 1, MAX_K + 1, "cpu"))
