import pytest
import torch

from roofwatch.kernels.mlp.swiglu import swiglu, swiglu_reference, swiglu_spec
from tests.kernels.builders import make_case


def test_forward_cost_of_two_rows_of_three():
    case = make_case("swiglu", n_rows=2, n_cols=3)
    # 6 elements: 6 negations, 6 exponentials, 6 additions, 6 divisions, 6 products with up
    assert swiglu_spec.flop_count(case) == 6 + 6 + 6 + 6 + 6
    # 6 floats of 4 bytes each of gate and up in, 6 out
    assert swiglu_spec.memory_bytes(case) == 24 + 24 + 24


def test_backward_cost_of_two_rows_of_three():
    case = make_case("swiglu", "bfloat16", "bwd", n_rows=2, n_cols=3)
    # 6 elements: 24 for the sigmoids, 12 for up's gradient, 36 for gate's
    assert swiglu_spec.flop_count(case) == 24 + 12 + 36
    # 6 elements of 2 bytes each of gate, up and the gradient in, of two gradients out
    assert swiglu_spec.memory_bytes(case) == 12 + 12 + 12 + 12 + 12


def test_the_halves_of_one_wider_matrix_are_read_where_they_lie(device: str):
    halves = torch.randn(3, 2 * 1100, device=device, requires_grad=True)
    gate, up = halves.chunk(2, dim=-1)
    upstream = torch.randn(3, 1100, device=device)
    (actual,) = torch.autograd.grad(swiglu(gate, up), halves, upstream, retain_graph=True)
    (expected,) = torch.autograd.grad(swiglu_reference(gate, up), halves, upstream)
    torch.testing.assert_close(actual, expected)


def test_a_gradient_expanded_from_a_scalar_is_read_right(device: str):
    gate = torch.randn(3, 63, device=device, requires_grad=True)
    up = torch.randn(3, 63, device=device, requires_grad=True)
    actual = torch.autograd.grad(swiglu(gate, up).sum(), (gate, up))
    expected = torch.autograd.grad(swiglu_reference(gate, up).sum(), (gate, up))
    torch.testing.assert_close(actual, expected)


def test_a_gate_far_from_zero_opens_or_closes(device: str):
    gate = torch.tensor([[-1000.0, 1000.0]], device=device)
    up = torch.tensor([[3.0, 3.0]], device=device)
    assert swiglu(gate, up).tolist() == [[0.0, 3000.0]]


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_batch_gives_an_empty_result_and_gradients(shape: tuple[int, int]):
    gate, up = torch.empty(shape, requires_grad=True), torch.empty(shape, requires_grad=True)
    out = swiglu(gate, up)
    out.sum().backward()
    assert out.shape == shape
    assert gate.grad is not None
    assert up.grad is not None
    assert gate.grad.shape == up.grad.shape == shape
