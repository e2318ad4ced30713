from collections.abc import Callable

import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.moe.moe_permute import moe_permute
from roofwatch.kernels.moe.moe_topk_routing import MAX_EXPERTS, moe_topk_routing
from roofwatch.kernels.moe.moe_unpermute import moe_unpermute


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_permuted_rows_come_back_to_their_tokens(device: str, dtype: torch.dtype):
    x = torch.randn(40, 130, device=device).to(dtype)
    experts = torch.rand(40, 8, device=device).argsort(dim=1)[:, :2].to(torch.int32)
    rows, positions, _ = moe_permute(x, experts, 8)
    halves = torch.full((40, 2), 0.5, device=device)
    assert torch.equal(moe_unpermute(rows, positions, halves), x)


def test_of_equal_logits_the_lower_expert_comes_first(device: str):
    logits = torch.tensor([[1.0, 3.0, 3.0, 1.0, 3.0], [0.0, -0.0, 0.0, -0.0, -1.0]], device=device)
    weights, experts = moe_topk_routing(logits, 4)
    assert experts.tolist() == [[1, 2, 4, 0], [0, 1, 2, 3]]
    assert weights[1].tolist() == [0.25, 0.25, 0.25, 0.25]


def test_masked_experts_come_last_with_weight_zero(device: str):
    logits = torch.tensor([[-torch.inf, -2.0, -torch.inf, -1.0]], device=device)
    weights, experts = moe_topk_routing(logits, 4)
    assert experts.tolist() == [[3, 1, 0, 2]]
    torch.testing.assert_close(
        weights, torch.softmax(torch.tensor([[-1.0, -2.0, -torch.inf, -torch.inf]]), 1).to(device)
    )


def test_large_logits_do_not_overflow(device: str):
    logits = torch.tensor([[1e30, -1e30, 9e29]], device=device)
    weights, experts = moe_topk_routing(logits, 3)
    assert weights.tolist() == [[1.0, 0.0, 0.0]]
    assert experts.tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_give_float32_weights(device: str, dtype: torch.dtype):
    logits = torch.arange(-20, 20, device=device).to(dtype)[None]
    weights, experts = moe_topk_routing(logits, 2)
    assert weights.dtype == torch.float32
    assert experts.tolist() == [[39, 38]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: moe_permute(torch.zeros(3, 4), torch.zeros(2, 2, dtype=torch.int32), 4),
            "the tokens must be equal, got x 3, experts 2",
        ),
        (
            lambda: moe_unpermute(torch.zeros(6, 4), torch.zeros(3, 2, dtype=torch.int32), torch.zeros(2, 3)),
            r"the shapes must be equal, got positions \(3, 2\), weights \(2, 3\)",
        ),
        (lambda: moe_topk_routing(torch.zeros(3, 8), 0), "top_k is 0; choose 1 to 8"),
        (lambda: moe_topk_routing(torch.zeros(3, 8), 9), "top_k is 9; choose 1 to 8"),
        (
            lambda: moe_topk_routing(torch.zeros(1, MAX_EXPERTS + 1), 1),
            r"4097 experts, at most 4096 .*call torch.topk",
        ),
    ],
)
def test_invalid_operands_are_refused_with_the_way_out(call: Callable[[], object], message: str):
    with pytest.raises(KernelError, match=message):
        call()
