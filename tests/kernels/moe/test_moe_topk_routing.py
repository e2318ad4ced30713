import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.moe.moe_topk_routing import MAX_EXPERTS, moe_topk_routing


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


@pytest.mark.parametrize("top_k", [0, 9])
def test_more_choices_than_experts_are_refused(top_k: int):
    with pytest.raises(KernelError, match=rf"top_k is {top_k}; choose 1 to 8"):
        moe_topk_routing(torch.zeros(3, 8), top_k)


def test_more_experts_than_the_registers_hold_are_refused_with_what_to_call_instead():
    with pytest.raises(KernelError, match=r"4097 experts, at most 4096 .*call torch.topk"):
        moe_topk_routing(torch.zeros(1, MAX_EXPERTS + 1), 1)
