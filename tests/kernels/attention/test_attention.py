import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from roofwatch.kernels import KernelError
from roofwatch.kernels.attention.attention import attention, attention_spec
from tests.kernels.builders import make_case

HEADS = torch.zeros(1, 2, 64, 64)


def test_cost_counts_the_pairs_that_the_mask_leaves():
    full = make_case("attention", B=1, H=1, H_KV=1, T=5, D=16, mask="full")
    windowed = make_case("attention", B=1, H=1, H_KV=1, T=5, D=16, mask="window", window=2)
    assert attention_spec.flop_count(full) == 25 * (32 + 32)
    # the first query sees one key, the others two
    assert attention_spec.flop_count(windowed) == 9 * (32 + 32)


@pytest.mark.parametrize("at", [0, 31, 32, 64, 99])
def test_a_token_sees_itself_and_nothing_later(device: str, at: int):
    q, k, v = torch.randn(3, 1, 1, 100, 64, device=device)
    before = attention(q, k, v)
    k[:, :, at] += 1
    v[:, :, at] += 1
    changed = (attention(q, k, v) != before).any(dim=-1)
    assert not changed[:, :, :at].any()
    assert changed[:, :, at].all()


@pytest.mark.parametrize("window", [1, 40, 64])
def test_a_token_is_seen_for_as_long_as_the_window_reaches(device: str, window: int):
    q, k, v = torch.randn(3, 1, 1, 150, 32, device=device)
    before = attention(q, k, v, window=window)
    v[:, :, 50] += 1
    changed = (attention(q, k, v, window=window) != before).any(dim=-1)[0, 0]
    assert changed.nonzero().flatten().tolist() == list(range(50, min(50 + window, 150)))


@pytest.mark.parametrize("n_keys", [1, 77])
def test_queries_of_an_image_see_all_keys_of_a_text(device: str, n_keys: int):
    q = torch.randn(1, 2, 100, 32, device=device, requires_grad=True)
    k, v = torch.randn(2, 1, 2, n_keys, 32, device=device, requires_grad=True)
    out = attention(q, k, v, is_causal=False)
    expected = scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(out, expected)
    grad_out = torch.randn_like(out)
    for actual, right in zip(
        torch.autograd.grad(out, [q, k, v], grad_out), torch.autograd.grad(expected, [q, k, v], grad_out), strict=True
    ):
        torch.testing.assert_close(actual, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("H", "H_KV", "T"),
    [
        (4, 1, 40),  # each head in a program of its own
        (4, 1, 100),  # two programs of two heads each
        (2, 1, 130),  # both heads in one program
    ],
)
def test_the_gradients_of_shared_keys_are_added_up_over_the_heads_that_share_them(
    device: str, H: int, H_KV: int, T: int
):
    q = torch.randn(1, H, T, 16, device=device)
    k, v = torch.randn(2, 1, H_KV, T, 16, device=device, requires_grad=True)
    grad_out = torch.randn_like(q)
    actual = torch.autograd.grad(attention(q, k, v), [k, v], grad_out)
    expected = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(actual, torch.autograd.grad(expected, [k, v], grad_out), rtol=1e-4, atol=1e-5)


def test_heads_that_lie_inside_tokens_are_read_where_they_lie(device: str):
    lying_inside = torch.randn(3, 2, 40, 2, 64, device=device).transpose(2, 3)  # [B, T, H, D] in memory
    results = []
    for copied in (False, True):
        q, k, v = ((heads.contiguous() if copied else heads).detach().requires_grad_() for heads in lying_inside)
        out = attention(q, k, v)
        results.append([out, *torch.autograd.grad(out.square().sum(), [q, k, v])])
    assert all(torch.equal(inside, copied) for inside, copied in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_what_lies_behind_the_last_token_is_not_read(device: str, dtype: torch.dtype):
    longer = torch.randn(3, 1, 1, 200, 64, device=device).to(dtype)
    longer[:, :, :, 130:] = torch.nan
    q, k, v = longer[:, :, :, :130].detach().requires_grad_()
    out = attention(q, k, v, is_causal=False)
    for result in (out, *torch.autograd.grad(out.square().sum(), [q, k, v])):
        assert result.isfinite().all()


def test_large_scores_do_not_overflow(device: str):
    q, k, v = 30 * torch.randn(3, 1, 1, 70, 64, device=device)  # scores of several hundred: exp2 ends at 128
    expected = scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    torch.testing.assert_close(attention(q, k, v).double(), expected, rtol=1e-3, atol=1e-2)


def test_a_query_without_keys_gets_zeros():
    q, k, v = (torch.ones(1, 1, length, 16, requires_grad=True) for length in (3, 0, 0))
    out = attention(q, k, v, is_causal=False)
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), q)[0].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"is_causal": False, "window": 4}, "window=4 with is_causal=False; .*pass is_causal=True"),
        ({"window": -1}, "window=-1 with is_causal=True; a window needs 1 or more"),
        ({"k": HEADS[:, :, :9], "v": HEADS[:, :, :9]}, "lengths under a causal mask must be equal, got q 64, k 9"),
        ({"q": torch.zeros(1, 3, 64, 64)}, "3 heads of q are no multiple of k's 2; call k.repeat_interleave"),
        ({"q": HEADS[..., :32]}, "batch and head dim must be equal"),
        (dict.fromkeys("qkv", torch.zeros(1, 1, 4, 257)), "257 dims, at most 256 .*call torch"),
    ],
)
def test_what_a_mask_or_a_head_cannot_mean_is_refused(arguments, message):
    with pytest.raises(KernelError, match=message):
        attention(**{"q": HEADS, "k": HEADS, "v": HEADS, **arguments})
