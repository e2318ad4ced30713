from typing import Any

import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.attention.paged_decode_attention import (
    paged_decode_attention,
    paged_decode_attention_spec,
)


def make_inputs(device: str, *lengths: int, n_blocks: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Sequences over a cache of blocks of 16 tokens, each with as many blocks as all may have."""
    per_sequence = n_blocks // len(lengths)
    cache = torch.randn(2, n_blocks, 16, 2, 32, device=device).to(dtype)
    return {
        "q": torch.randn(len(lengths), 4, 32, device=device).to(dtype),
        "key_cache": cache[0],
        "value_cache": cache[1],
        "block_tables": torch.randperm(n_blocks).int().view(len(lengths), per_sequence).to(device),
        "context_lengths": torch.tensor(lengths, dtype=torch.int32, device=device),
    }


def test_where_in_the_cache_a_block_lies_changes_nothing(device: str):
    inputs = make_inputs(device, 300, 170, n_blocks=40)
    moved_to = torch.randperm(40, device=device)
    moved = dict(inputs, block_tables=moved_to[inputs["block_tables"].long()].int())
    for name in ("key_cache", "value_cache"):
        moved[name] = torch.empty_like(inputs[name]).index_copy(0, moved_to, inputs[name])
    assert torch.equal(paged_decode_attention(**inputs), paged_decode_attention(**moved))


@pytest.mark.parametrize("length", [1, 15, 16, 129, 300])
def test_what_lies_beyond_the_context_is_not_read(device: str, length: int):
    inputs = make_inputs(device, length, n_blocks=20)
    used = -(-length // 16)
    before = paged_decode_attention(**inputs)
    for name in ("key_cache", "value_cache"):
        inputs[name][inputs["block_tables"][0, used:].long()] = torch.nan
        inputs[name][inputs["block_tables"][0, used - 1].long(), (length - 1) % 16 + 1 :] = torch.nan
    inputs["block_tables"][0, used:] = 2**30
    assert torch.equal(paged_decode_attention(**inputs), before)


@pytest.mark.parametrize("n_blocks", [8, 80])  # one program per sequence and key head, and several
def test_a_sequence_without_tokens_gets_zeros_beside_one_that_has_some(device: str, n_blocks: int):
    out = paged_decode_attention(**make_inputs(device, 0, 50, n_blocks=n_blocks))
    assert not out[0].any()
    assert out[1].isfinite().all()


def test_large_scores_do_not_overflow(device: str):
    inputs = make_inputs(device, 300, n_blocks=20)
    inputs["q"] *= 1000
    eager = paged_decode_attention_spec.implementations["torch"].launch
    torch.testing.assert_close(paged_decode_attention(**inputs), eager(**inputs), rtol=1e-3, atol=1e-3)


def test_a_slice_of_a_joint_cache_is_read_where_it_lies(device: str):
    inputs = make_inputs(device, 100, n_blocks=7)
    joint = torch.cat([inputs["key_cache"], inputs["value_cache"]], dim=2)
    sliced = dict(inputs, key_cache=joint[:, :, :2], value_cache=joint[:, :, 2:])
    assert torch.equal(paged_decode_attention(**inputs), paged_decode_attention(**sliced))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("context_lengths", lambda value: value[:1], "the sequences must be equal, got q 2, .* context_lengths 1"),
        ("value_cache", lambda value: value[:, :8], "the shapes must be equal"),
        ("q", lambda value: value[:, :3], "3 heads of q are no multiple of k's 2"),
    ],
)
def test_operands_that_do_not_fit_together_are_refused(name: str, change, message: str):
    inputs = make_inputs("cpu", 9, 20, n_blocks=4)
    inputs[name] = change(inputs[name])
    with pytest.raises(KernelError, match=message):
        paged_decode_attention(**inputs)
