import pytest
import torch

from kernels.attention import attention, attention_spec
from tests.kernels.builders import make_case


def test_cost_of_two_heads_of_three_tokens():
    case = make_case("attention", "bfloat16", B=1, H=2, T=3, D=16)
    # queries see 1, 2 and 3 keys: 6 pairs per head, each 16 multiplications and 16 additions for the score and as many
    # for the weighted sum of values
    assert attention_spec.flop_count(case) == 2 * 6 * (32 + 32)
    # 96 elements of 2 bytes each of q, k and v in, 96 out
    assert attention_spec.memory_bytes(case) == 192 + 192 + 192 + 192


@pytest.mark.parametrize("at", [0, 31, 32, 63, 64, 128, 199])
def test_a_token_sees_itself_and_nothing_later(device: str, at: int):
    q, k, v = torch.randn(3, 1, 2, 200, 64, device=device)
    before = attention(q, k, v)
    k[:, :, at] += 1
    v[:, :, at] += 1
    changed = (attention(q, k, v) != before).any(dim=-1)
    assert not changed[:, :, :at].any()
    assert changed[:, :, at].all()


def test_heads_that_lie_inside_tokens_are_read_where_they_lie(device: str):
    q, k, v = torch.randn(3, 2, 70, 3, 64, device=device).transpose(2, 3)  # [B, T, H, D] in memory
    assert torch.equal(attention(q, k, v), attention(q.contiguous(), k.contiguous(), v.contiguous()))


def test_large_scores_do_not_overflow(device: str):
    q, k, v = 30 * torch.randn(3, 1, 1, 70, 64, device=device)  # scores of several hundred: exp2 ends at 128
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    torch.testing.assert_close(attention(q, k, v).double(), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("shape", [(0, 2, 5, 16), (1, 0, 5, 16), (1, 2, 0, 16), (1, 2, 5, 0)])
def test_an_empty_batch_gives_an_empty_result(shape: tuple[int, int, int, int]):
    assert attention(*[torch.empty(shape)] * 3).shape == shape
