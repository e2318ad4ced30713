import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from roofwatch.collector.compile.launches import compiling_for
from roofwatch.kernels.attention.attention import attention, attention_spec, attention_varlen
from roofwatch.kernels.attention.decoding import tokens_per_split
from roofwatch.kernels.attention.paged_decode_attention import (
    paged_decode_attention,
    paged_decode_attention_spec,
)
from roofwatch.kernels.building_blocks.errors import KernelError
from tests.kernels.builders import instructions, make_case

HEADS = torch.zeros(1, 2, 64, 64)


def test_cost_counts_the_pairs_that_the_mask_leaves():
    full = make_case("attention", B=1, H=1, H_KV=1, T=5, D=16, mask="full")
    windowed = make_case("attention", B=1, H=1, H_KV=1, T=5, D=16, mask="window", window=2)
    assert attention_spec.flop_count(full) == 25 * (32 + 32)
    # the first query sees one key, the others two
    assert attention_spec.flop_count(windowed) == 9 * (32 + 32)


@pytest.mark.parametrize("n_keys", [1, 77])
def test_queries_of_an_image_see_all_keys_of_a_text(device: str, n_keys: int):
    q = torch.randn(1, 2, 100, 32, device=device, requires_grad=True)
    k, v = torch.randn(2, 1, 2, n_keys, 32, device=device, requires_grad=True)
    out = attention(q, k, v, is_causal=False)
    expected = scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(out, expected)
    grad_out = torch.randn_like(out)
    for actual, right in zip(
        torch.autograd.grad(out, [q, k, v], grad_out),
        torch.autograd.grad(expected, [q, k, v], grad_out),
        strict=True,
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
    torch.testing.assert_close(
        actual, torch.autograd.grad(expected, [k, v], grad_out), rtol=1e-4, atol=1e-5
    )


def test_heads_that_lie_inside_tokens_are_read_where_they_lie(device: str):
    lying_inside = torch.randn(3, 2, 40, 2, 64, device=device).transpose(
        2, 3
    )  # [B, T, H, D] in memory
    results = []
    for copied in (False, True):
        q, k, v = (
            (heads.contiguous() if copied else heads).detach().requires_grad_()
            for heads in lying_inside
        )
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


@pytest.mark.slow
@pytest.mark.usefixtures("compilers_cache")
def test_on_hopper_products_wait_neither_for_loads_nor_for_the_softmax_of_other_warps(
    tmp_path: Path,
):
    q, k, v = torch.empty(3, 1, 8, 4096, 128, dtype=torch.bfloat16, requires_grad=True)
    with compiling_for("sm_90") as launches:
        out = attention(q, k, v)
        torch.autograd.grad(out, [q, k, v], torch.empty_like(out))
    order = {}
    for launch in launches:
        assert launch.compiled is not None, launch.message
        names = [name.split(".")[0] for name in instructions(launch.compiled.binary, tmp_path)]
        order[launch.function] = " ".join(
            name for name in names if name in {"HGMMA", "MUFU", "BAR", "UTMALDG", "BRA"}
        )
    for function in ("attention_kernel", "query_gradient_kernel"):
        assert re.search(r"MUFU HGMMA", order[function])
        assert not re.search(r"MUFU BAR (BAR )*HGMMA", order[function])
    for function, text in order.items():
        # the loop ends with the loads of a later iteration
        assert re.search(r"HGMMA (BAR )*UTMALDG (BAR |UTMALDG )*BRA", text), function


def test_large_scores_do_not_overflow(device: str):
    q, k, v = 30 * torch.randn(
        3, 1, 1, 70, 64, device=device
    )  # scores of several hundred: exp2 ends at 128
    expected = scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    torch.testing.assert_close(attention(q, k, v).double(), expected, rtol=1e-3, atol=1e-2)


def test_a_query_without_keys_gets_zeros():
    q, k, v = (torch.ones(1, 1, length, 16, requires_grad=True) for length in (3, 0, 0))
    out = attention(q, k, v, is_causal=False)
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), q)[0].any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"is_causal": False, "window": 4}, "window=4 with is_causal=False; .*pass is_causal=True"),
        ({"window": -1}, "window=-1 with is_causal=True; a window needs 1 or more"),
        (
            {"k": HEADS[:, :, :9], "v": HEADS[:, :, :9]},
            "lengths under a causal mask must be equal, got q 64, k 9",
        ),
        (
            {"q": torch.zeros(1, 3, 64, 64)},
            "3 heads of q are no multiple of k's 2; call k.repeat_interleave",
        ),
        ({"q": HEADS[..., :32]}, "batch and head dim must be equal"),
        (dict.fromkeys("qkv", torch.zeros(1, 1, 4, 257)), "257 dims, at most 256 .*call torch"),
    ],
)
def test_what_a_mask_or_a_head_cannot_mean_is_refused(changed, message):
    with pytest.raises(KernelError, match=message):
        attention(**{"q": HEADS, "k": HEADS, "v": HEADS, **changed})


def bounds(device: str, *starts: int) -> torch.Tensor:
    return torch.tensor(starts, dtype=torch.int32, device=device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_nan_in_a_sequence_stays_there(device: str, dtype: torch.dtype):
    packed = torch.randn(3, 100, 1, 32, device=device).to(dtype)
    packed[:, 40:75] = torch.nan
    q, k, v = packed.requires_grad_()
    out = attention_varlen(q, k, v, bounds(device, 0, 40, 75, 100), 40)
    (gradient,) = torch.autograd.grad(out, packed, torch.ones_like(out))
    for result in (out.unsqueeze(0), gradient):
        assert result[:, :40].isfinite().all()
        assert result[:, 75:].isfinite().all()


def test_a_bound_above_the_longest_length_changes_nothing(device: str):
    q, k, v = torch.randn(3, 50, 1, 16, device=device)
    starts = bounds(device, 0, 20, 50)
    assert torch.equal(
        attention_varlen(q, k, v, starts, 1000), attention_varlen(q, k, v, starts, 30)
    )


def make_inputs(device: str, *lengths: int, n_blocks: int) -> dict[str, Any]:
    """Sequences over a cache of blocks of 16 tokens, each with as many blocks as all may have."""
    per_sequence = n_blocks // len(lengths)
    cache = torch.randn(2, n_blocks, 16, 2, 32, device=device)
    return {
        "q": torch.randn(len(lengths), 4, 32, device=device),
        "key_cache": cache[0],
        "value_cache": cache[1],
        "block_tables": torch.randperm(n_blocks).int().view(len(lengths), per_sequence).to(device),
        "context_lengths": torch.tensor(lengths, dtype=torch.int32, device=device),
    }


@pytest.mark.parametrize("length", [1, 15, 16, 129, 300])
def test_what_lies_beyond_the_context_is_not_read(device: str, length: int):
    inputs = make_inputs(device, length, n_blocks=20)
    used = -(-length // 16)
    before = paged_decode_attention(**inputs)
    for name in ("key_cache", "value_cache"):
        inputs[name][inputs["block_tables"][0, used:].long()] = torch.nan
        inputs[name][inputs["block_tables"][0, used - 1].long(), (length - 1) % 16 + 1 :] = (
            torch.nan
        )
    inputs["block_tables"][0, used:] = 2**30
    assert torch.equal(paged_decode_attention(**inputs), before)


@pytest.mark.parametrize("n_blocks", [8, 80])  # one program per sequence and key head, and several
def test_a_sequence_without_tokens_gets_zeros_beside_one_that_has_some(device: str, n_blocks: int):
    out = paged_decode_attention(**make_inputs(device, 0, 50, n_blocks=n_blocks))
    assert not out[0].any()
    assert out[1].isfinite().all()


@pytest.mark.parametrize(
    ("n_key_heads", "most_programs"),
    [
        (8, 3 * 132),  # one sequence: a second wave would have few programs
        (128, 16 * 132),  # many sequences, whose lengths differ
    ],
)
def test_splits_of_decode_attention_fill_the_gpu(n_key_heads: int, most_programs: int):
    n_splits = -(-8192 // tokens_per_split(8192, n_key_heads, 132, block_n=64))
    assert most_programs / 2 < n_key_heads * n_splits <= most_programs


def test_large_paged_scores_do_not_overflow(device: str):
    inputs = make_inputs(device, 300, n_blocks=20)
    inputs["q"] *= 1000
    eager = paged_decode_attention_spec.implementations["torch"].launch
    torch.testing.assert_close(
        paged_decode_attention(**inputs), eager(**inputs), rtol=1e-3, atol=1e-3
    )


def test_a_slice_of_a_joint_cache_is_read_where_it_lies(device: str):
    inputs = make_inputs(device, 100, n_blocks=7)
    joint = torch.cat([inputs["key_cache"], inputs["value_cache"]], dim=2)
    sliced = dict(inputs, key_cache=joint[:, :, :2], value_cache=joint[:, :, 2:])
    assert torch.equal(paged_decode_attention(**inputs), paged_decode_attention(**sliced))


TOKENS = torch.zeros(5, 2, 16)
PACKED = {
    "q": TOKENS,
    "k": TOKENS,
    "v": TOKENS,
    "cu_seqlens": bounds("cpu", 0, 2, 5),
    "max_seqlen": 3,
}
PAGED = make_inputs("cpu", 9, 20, n_blocks=4)


@pytest.mark.parametrize(
    ("launch", "operands", "message"),
    [
        (
            attention_varlen,
            PACKED | {"k": TOKENS[:4], "v": TOKENS[:4]},
            r"got q \(5, 16\), k \(4, 16\)",
        ),
        (
            attention_varlen,
            PACKED | {"q": torch.zeros(5, 3, 16)},
            "3 heads of q are no multiple of k's 2",
        ),
        (
            paged_decode_attention,
            PAGED | {"context_lengths": PAGED["context_lengths"][:1]},
            "the sequences must be equal, got q 2, .* context_lengths 1",
        ),
        (
            paged_decode_attention,
            PAGED | {"value_cache": PAGED["value_cache"][:, :8]},
            "the shapes must be equal",
        ),
        (
            paged_decode_attention,
            PAGED | {"q": PAGED["q"][:, :3]},
            "3 heads of q are no multiple of k's 2",
        ),
    ],
)
def test_operands_that_do_not_fit_together_are_refused(launch, operands, message: str):
    with pytest.raises(KernelError, match=message):
        launch(**operands)
