import pytest
import torch

from roofwatch.kernels.normalisation.rms_norm import rms_norm, rms_norm_reference, rms_norm_spec
from tests.kernels.builders import make_case


def test_forward_cost_of_two_rows_of_three():
    case = make_case("rms_norm", n_rows=2, n_cols=3)
    # 6 elements: 6 squares, 6 additions, 6 times 1/rms, 6 times the weight
    assert rms_norm_spec.flop_count(case) == 6 + 6 + 6 + 6
    # floats of 4 bytes: 6 of x and 3 of the weight in, 6 out
    assert rms_norm_spec.memory_bytes(case) == 24 + 12 + 24


def test_backward_cost_of_two_rows_of_three():
    case = make_case("rms_norm", "bfloat16", "bwd", n_rows=2, n_cols=3)
    # 6 elements: 6 times 1/rms, 6 times the weight, 12 for the rows' sums, 18 for x's gradient, 12 for the weight's
    assert rms_norm_spec.flop_count(case) == 6 + 6 + 12 + 18 + 12
    # elements of 2 bytes: 6 of x, 6 of the gradient and 3 of the weight in, 6 and 3 of their gradients out
    assert rms_norm_spec.memory_bytes(case) == 12 + 12 + 6 + 12 + 6


def test_rows_of_a_wider_matrix_are_read_where_they_lie(device: str):
    wide = torch.randn(5, 70, device=device)
    weight = torch.randn(63, device=device)
    strided = wide[:, :63].requires_grad_()
    contiguous = wide[:, :63].contiguous().requires_grad_()
    assert torch.equal(rms_norm(strided, weight), rms_norm(contiguous, weight))
    upstream = torch.randn(5, 63, device=device)
    (there,) = torch.autograd.grad(rms_norm(strided, weight), strided, upstream)
    (here,) = torch.autograd.grad(rms_norm(contiguous, weight), contiguous, upstream)
    assert torch.equal(there, here)


def test_a_gradient_expanded_from_a_scalar_is_read_right(device: str):
    x = torch.randn(5, 63, device=device, requires_grad=True)
    weight = torch.randn(63, device=device, requires_grad=True)
    actual = torch.autograd.grad(rms_norm(x, weight).sum(), (x, weight))
    expected = torch.autograd.grad(rms_norm_reference(x, weight).sum(), (x, weight))
    torch.testing.assert_close(actual, expected)


def test_the_weights_gradient_is_the_same_in_every_run(device: str):
    x = torch.randn(50, 63, device=device)
    weight = torch.randn(63, device=device, requires_grad=True)
    upstream = torch.randn(50, 63, device=device)
    first, second = (torch.autograd.grad(rms_norm(x, weight), weight, upstream)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_weight_of_another_dtype_keeps_it_in_its_gradient(device: str):
    x = torch.randn(5, 63, device=device, dtype=torch.bfloat16)
    weight = torch.randn(63, device=device, requires_grad=True)
    out = rms_norm(x, weight)
    out.sum().backward()
    assert out.dtype is torch.bfloat16
    assert weight.grad is not None
    assert weight.grad.dtype is torch.float32


def test_a_row_of_zeros_stays_finite(device: str):
    x = torch.zeros(2, 63, device=device, requires_grad=True)
    weight = torch.ones(63, device=device)
    out = rms_norm(x, weight)
    out.sum().backward()
    assert torch.equal(out, torch.zeros_like(out))
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_batch_gives_an_empty_result_and_a_weights_gradient_of_zero(shape: tuple[int, int]):
    x = torch.empty(shape, requires_grad=True)
    weight = torch.ones(shape[1], requires_grad=True)
    out = rms_norm(x, weight)
    out.sum().backward()
    assert out.shape == shape
    assert x.grad is not None
    assert x.grad.shape == shape
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.zeros(shape[1]))
