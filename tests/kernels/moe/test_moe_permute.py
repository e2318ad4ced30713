import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.moe.moe_permute import moe_permute


def test_rows_come_by_expert_and_in_the_order_of_the_tokens(device: str):
    x = torch.tensor([[1.0], [2.0], [3.0]], device=device)
    experts = torch.tensor([[2, 0], [0, 3], [2, 0]], device=device, dtype=torch.int32)
    rows, positions, offsets = moe_permute(x, experts, 4)
    assert rows.flatten().tolist() == [1.0, 2.0, 3.0, 1.0, 3.0, 2.0]
    assert positions.tolist() == [[3, 0], [1, 5], [4, 2]]
    assert offsets.tolist() == [0, 3, 3, 5, 6]  # nobody chose expert 1


@pytest.mark.parametrize("n_experts", [1, 3, 8, 33, 256])
@pytest.mark.parametrize("n_tokens", [511, 512, 1500])
def test_places_are_those_of_a_stable_sort(device: str, n_tokens: int, n_experts: int):
    experts = torch.randint(n_experts, (n_tokens, 1), device=device, dtype=torch.int32)
    _, positions, offsets = moe_permute(torch.empty(n_tokens, 0, device=device), experts, n_experts)
    order = experts.flatten().argsort(stable=True)
    assert torch.equal(positions.flatten()[order].long(), torch.arange(n_tokens, device=device))
    assert offsets.tolist() == [int((experts < expert).sum()) for expert in range(n_experts + 1)]


def test_without_tokens_every_expert_begins_at_nothing(device: str):
    empty = torch.empty(0, 2, device=device, dtype=torch.int32)
    rows, positions, offsets = moe_permute(torch.empty(0, 8, device=device), empty, 3)
    assert rows.shape == (0, 8)
    assert positions.shape == (0, 2)
    assert offsets.tolist() == [0, 0, 0, 0]


def test_other_integers_than_int32_are_refused():
    with pytest.raises(KernelError, match=r"experts is torch.int64, must be torch.int32; call experts.to\(torch.int32"):
        moe_permute(torch.zeros(3, 4), torch.zeros(3, 2, dtype=torch.int64), 4)


def test_experts_of_other_tokens_are_refused():
    with pytest.raises(KernelError, match="the tokens must be equal, got x 3, experts 2"):
        moe_permute(torch.zeros(3, 4), torch.zeros(2, 2, dtype=torch.int32), 4)
