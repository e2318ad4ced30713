import pytest
import torch

from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.mlp.geglu import geglu, geglu_reference, geglu_spec
from tests.kernels.builders import make_case


def test_forward_cost_of_two_rows_of_three():
    case = make_case("geglu", n_rows=2, n_cols=3)
    # 6 elements: 30 for the sigmoids' arguments, 24 for gate times sigmoid, 6 products with up
    assert geglu_spec.flop_count(case) == 30 + 24 + 6
    # 6 floats of 4 bytes each of gate and up in, 6 out
    assert geglu_spec.memory_bytes(case) == 24 + 24 + 24


def test_backward_cost_of_two_rows_of_three():
    case = make_case("geglu", "bfloat16", "bwd", n_rows=2, n_cols=3)
    # 6 elements: 30 for the arguments, 18 for their slopes, 24 for the sigmoids, 12 for up's gradient, 42 for gate's
    assert geglu_spec.flop_count(case) == 30 + 18 + 24 + 12 + 42
    # 6 elements of 2 bytes each of gate, up and the gradient in, of two gradients out
    assert geglu_spec.memory_bytes(case) == 12 + 12 + 12 + 12 + 12


def test_the_halves_of_one_wider_matrix_are_read_where_they_lie(device: str):
    halves = torch.randn(3, 2 * 1100, device=device, requires_grad=True)
    gate, up = halves.chunk(2, dim=-1)
    upstream = torch.randn(3, 1100, device=device)
    (actual,) = torch.autograd.grad(geglu(gate, up), halves, upstream, retain_graph=True)
    (expected,) = torch.autograd.grad(geglu_reference(gate, up), halves, upstream)
    torch.testing.assert_close(actual, expected)


def test_a_gate_far_from_zero_opens_or_closes_with_a_finite_gradient(device: str):
    gate = torch.tensor([[-1000.0, 1000.0]], device=device, requires_grad=True)
    up = torch.tensor([[3.0, 3.0]], device=device, requires_grad=True)
    out = geglu(gate, up)
    out.sum().backward()
    assert out.tolist() == [[0.0, 3000.0]]
    assert gate.grad is not None
    assert gate.grad.tolist() == [[0.0, 3.0]]


def test_the_tanh_form_stays_within_its_stated_distance_of_gelu():
    gate = torch.linspace(-8, 8, 100_001, dtype=torch.float64)
    exact = torch.nn.functional.gelu(gate)
    assert (geglu_reference(gate, torch.ones_like(gate)) - exact).abs().max() < 5e-4


def test_operands_that_do_not_belong_together_are_refused_by_its_own_name():
    with pytest.raises(KernelError, match="geglu: the dtypes must be equal"):
        geglu(torch.randn(2, 3), torch.randn(2, 3).bfloat16())


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_batch_gives_an_empty_result_and_gradients(shape: tuple[int, int]):
    gate, up = torch.empty(shape, requires_grad=True), torch.empty(shape, requires_grad=True)
    out = geglu(gate, up)
    out.sum().backward()
    assert out.shape == shape
    assert gate.grad is not None
    assert up.grad is not None
    assert gate.grad.shape == up.grad.shape == shape
