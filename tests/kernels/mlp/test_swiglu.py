import torch

from roofwatch.kernels.mlp.swiglu import swiglu


def test_a_gate_far_from_zero_opens_or_closes(device: str):
    gate = torch.tensor([[-1000.0, 1000.0]], device=device)
    up = torch.tensor([[3.0, 3.0]], device=device)
    assert swiglu(gate, up).tolist() == [[0.0, 3000.0]]
