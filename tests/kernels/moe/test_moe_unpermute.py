import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.moe.moe_permute import moe_permute
from roofwatch.kernels.moe.moe_unpermute import moe_unpermute


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_permuted_rows_come_back_to_their_tokens(device: str, dtype: torch.dtype):
    x = torch.randn(40, 130, device=device).to(dtype)
    experts = torch.rand(40, 8, device=device).argsort(dim=1)[:, :2].to(torch.int32)
    rows, positions, _ = moe_permute(x, experts, 8)
    halves = torch.full((40, 2), 0.5, device=device)
    assert torch.equal(moe_unpermute(rows, positions, halves), x)


def test_rows_and_weights_of_wider_matrices_are_read_right(device: str):
    rows = torch.randn(6, 100, device=device)[:, :33]
    weights = torch.rand(3, 5, device=device)[:, :2]
    positions = torch.tensor([[5, 0], [1, 4], [2, 3]], device=device, dtype=torch.int32)
    expected = moe_unpermute(rows.contiguous(), positions, weights.contiguous())
    assert torch.equal(moe_unpermute(rows, positions, weights), expected)


def test_weights_of_other_choices_are_refused():
    positions = torch.zeros(3, 2, dtype=torch.int32)
    with pytest.raises(KernelError, match=r"the shapes must be equal, got positions \(3, 2\), weights \(2, 3\)"):
        moe_unpermute(torch.zeros(6, 4), positions, torch.zeros(2, 3))


def test_a_gradient_is_refused_with_what_to_pass_instead():
    positions = torch.zeros(3, 2, dtype=torch.int32)
    with pytest.raises(KernelError, match=r"weights requires a gradient, .* pass weights.detach\(\)"):
        moe_unpermute(torch.zeros(6, 4), positions, torch.zeros(3, 2, requires_grad=True))
