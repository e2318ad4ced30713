import pytest
import torch

from roofwatch.kernels.building_blocks.row_tiles import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.reduction.softmax import softmax, softmax_spec
from tests.kernels.builders import make_case

LENGTHS = [1000, MAX_COLS_IN_REGISTERS + 100]


def test_forward_cost_of_two_rows_of_three():
    case = make_case("softmax", n_rows=2, n_cols=3)
    # 6 elements: 6 comparisons, 6 subtractions, 6 exponentials, 6 additions, 6 divisions
    assert softmax_spec.flop_count(case) == 6 + 6 + 6 + 6 + 6
    # 6 floats of 4 bytes in, 6 out
    assert softmax_spec.memory_bytes(case) == 24 + 24


def test_backward_cost_of_two_rows_of_three():
    case = make_case("softmax", "bfloat16", "bwd", n_rows=2, n_cols=3)
    # 6 elements: 6 products and 6 additions for the sums, 6 subtractions, 6 products
    assert softmax_spec.flop_count(case) == 12 + 6 + 6
    # 6 elements of 2 bytes each of the result, its gradient and x's gradient
    assert softmax_spec.memory_bytes(case) == 12 + 12 + 12


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_rows_of_a_wider_matrix_are_read_where_they_lie(device: str, n_cols: int):
    rows = torch.randn(3, n_cols + 5, device=device)[:, :n_cols]
    assert torch.equal(softmax(rows), softmax(rows.contiguous()))


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_masked_logits_get_probability_zero(device: str, n_cols: int):
    x = torch.randn(3, n_cols, device=device)
    x[0, : n_cols // 2] = -torch.inf  # whole tiles at the start
    x[1, 1:] = -torch.inf
    x[2] = -torch.inf  # no logit left: undefined, as in torch
    torch.testing.assert_close(softmax(x), torch.softmax(x, dim=-1), equal_nan=True)


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_large_logits_do_not_overflow(device: str, n_cols: int):
    x = 1e4 * torch.randn(3, n_cols, device=device)
    torch.testing.assert_close(softmax(x), torch.softmax(x, dim=-1))


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_a_gradient_expanded_from_a_scalar_is_read_right(device: str, n_cols: int):
    x = torch.randn(2, n_cols, device=device, requires_grad=True)
    softmax(x)[:, :1].sum().backward()
    expanded, x.grad = x.grad, None
    torch.softmax(x, dim=-1)[:, :1].sum().backward()
    torch.testing.assert_close(expanded, x.grad)
    x.grad = None
    softmax(x).sum().backward()  # every row sums to 1, whatever x
    torch.testing.assert_close(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_batch_gives_an_empty_result_and_gradient(shape: tuple[int, int]):
    x = torch.empty(shape, requires_grad=True)
    out = softmax(x)
    out.sum().backward()
    assert out.shape == shape
    assert x.grad is not None
    assert x.grad.shape == shape
