import pytest
import torch

from roofwatch.kernels.building_blocks.row_tiles import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.normalisation.column_gradients import MAX_ROW_BYTES_BACKWARD
from roofwatch.kernels.normalisation.layer_norm import layer_norm, layer_norm_reference, layer_norm_spec
from tests.kernels.builders import make_case

LENGTHS = [63, MAX_ROW_BYTES_BACKWARD // 4 + 100]


def test_forward_cost_of_two_rows_of_three():
    case = make_case("layer_norm", n_rows=2, n_cols=3)
    # 6 elements: 6 additions for the means, 18 for the variances, 6 times 1/std, 6 times the weight, 6 plus the bias
    assert layer_norm_spec.flop_count(case) == 6 + 18 + 6 + 6 + 6
    # floats of 4 bytes: 6 of x, 3 of the weight and 3 of the bias in, 6 out
    assert layer_norm_spec.memory_bytes(case) == 24 + 12 + 12 + 24


def test_backward_cost_of_two_rows_of_three():
    case = make_case("layer_norm", "bfloat16", "bwd", n_rows=2, n_cols=3)
    # 6 elements: 12 to normalise, 6 times the weight, 18 for the rows' sums, 24 for x's gradient, 12 for the weight's,
    # 6 for the bias's
    assert layer_norm_spec.flop_count(case) == 12 + 6 + 18 + 24 + 12 + 6
    # elements of 2 bytes: 6 of x, 6 of the gradient and 3 of the weight in, 6, 3 and 3 of their gradients out
    assert layer_norm_spec.memory_bytes(case) == 12 + 12 + 6 + 12 + 6 + 6


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_rows_of_a_wider_matrix_are_read_where_they_lie(device: str, n_cols: int):
    wide = torch.randn(5, n_cols + 7, device=device)
    weight, bias = torch.randn(2, n_cols, device=device)
    strided = wide[:, :n_cols].requires_grad_()
    contiguous = wide[:, :n_cols].contiguous().requires_grad_()
    there, here = layer_norm(strided, weight, bias), layer_norm(contiguous, weight, bias)
    assert torch.equal(there, here)
    upstream = torch.randn(5, n_cols, device=device)
    (grad_there,) = torch.autograd.grad(there, strided, upstream)
    (grad_here,) = torch.autograd.grad(here, contiguous, upstream)
    assert torch.equal(grad_there, grad_here)


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_a_gradient_expanded_from_a_scalar_is_read_right(device: str, n_cols: int):
    x = torch.randn(5, n_cols, device=device, requires_grad=True)
    weight, bias = (torch.randn(n_cols, device=device, requires_grad=True) for _ in range(2))
    actual = torch.autograd.grad(layer_norm(x, weight, bias).sum(), (x, weight, bias))
    expected = torch.autograd.grad(layer_norm_reference(x, weight, bias).sum(), (x, weight, bias))
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("n_cols", [63, MAX_COLS_IN_REGISTERS + 100])
def test_a_mean_far_from_zero_does_not_cancel_the_variance(device: str, n_cols: int):
    x = torch.randn(2, n_cols, device=device) + 1e4
    weight, bias = torch.ones(n_cols, device=device), torch.zeros(n_cols, device=device)
    expected = layer_norm_reference(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(layer_norm(x, weight, bias).double(), expected, atol=5e-3, rtol=0)


def test_parameters_of_another_dtype_keep_it_in_their_gradients(device: str):
    x = torch.randn(5, 63, device=device, dtype=torch.bfloat16)
    weight, bias = (torch.randn(63, device=device, requires_grad=True) for _ in range(2))
    out = layer_norm(x, weight, bias)
    out.sum().backward()
    assert out.dtype is torch.bfloat16
    assert weight.grad is not None
    assert bias.grad is not None
    assert weight.grad.dtype is bias.grad.dtype is torch.float32


def test_a_row_of_equal_numbers_gives_the_bias(device: str):
    x = torch.full((2, 63), 3.0, device=device)
    weight, bias = torch.randn(2, 63, device=device)
    torch.testing.assert_close(layer_norm(x, weight, bias), bias.expand(2, 63))


def test_a_bias_of_another_length_is_refused():
    with pytest.raises(KernelError, match=r"layer_norm: the columns must be equal, .*bias \(4,\)"):
        layer_norm(torch.randn(2, 3), torch.randn(3), torch.randn(4))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_batch_gives_an_empty_result_and_parameters_gradients_of_zero(shape: tuple[int, int]):
    x = torch.empty(shape, requires_grad=True)
    weight, bias = (torch.ones(shape[1], requires_grad=True) for _ in range(2))
    out = layer_norm(x, weight, bias)
    out.sum().backward()
    assert out.shape == shape
    assert x.grad is not None
    assert x.grad.shape == shape
    assert weight.grad is not None
    assert bias.grad is not None
    assert torch.equal(weight.grad, torch.zeros(shape[1]))
    assert torch.equal(bias.grad, torch.zeros(shape[1]))
