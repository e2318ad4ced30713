from collections.abc import Callable

import pytest
import torch

from roofwatch.kernels.mlp import geglu, geglu_reference, swiglu


@pytest.mark.parametrize("activation", [swiglu, geglu])
def test_a_gate_far_from_zero_opens_or_closes_with_a_finite_gradient(
    device: str, activation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
):
    gate = torch.tensor([[-1000.0, 1000.0]], device=device, requires_grad=True)
    out = activation(gate, torch.tensor([[3.0, 3.0]], device=device))
    out.sum().backward()
    assert out.tolist() == [[0.0, 3000.0]]
    assert gate.grad is not None
    assert gate.grad.tolist() == [[0.0, 3.0]]


def test_the_tanh_form_stays_within_its_stated_distance_of_gelu():
    gate = torch.linspace(-8, 8, 100_001, dtype=torch.float64)
    exact = torch.nn.functional.gelu(gate)
    assert (geglu_reference(gate, torch.ones_like(gate)) - exact).abs().max() < 5e-4
