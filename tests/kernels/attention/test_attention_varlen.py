from itertools import pairwise

import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.attention.attention import attention
from roofwatch.kernels.attention.attention_varlen import attention_varlen

TOKENS = torch.zeros(5, 2, 16)
BOUNDS = torch.tensor([0, 2, 5], dtype=torch.int32)


def bounds(device: str, *starts: int) -> torch.Tensor:
    return torch.tensor(starts, dtype=torch.int32, device=device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_sequence_gives_what_it_gives_by_itself(device: str, dtype: torch.dtype):
    starts = [0, 70, 70, 71, 140]
    packed = torch.randn(3, 140, 2, 64, device=device).to(dtype)
    q, k, v = packed.requires_grad_()
    out = attention_varlen(q, k, v, bounds(device, *starts), 70)
    together = [out, torch.autograd.grad(out.square().sum(), packed)[0]]
    for start, stop in pairwise(starts):
        alone = packed[:, start:stop].detach().transpose(1, 2).unsqueeze(1).requires_grad_()
        out = attention(*alone)
        (gradient,) = torch.autograd.grad(out.square().sum(), alone)
        torch.testing.assert_close(together[0][start:stop], out[0].transpose(0, 1))
        torch.testing.assert_close(together[1][:, start:stop], gradient[:, 0].transpose(1, 2))


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
    assert torch.equal(attention_varlen(q, k, v, starts, 1000), attention_varlen(q, k, v, starts, 30))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": TOKENS[:4], "v": TOKENS[:4]}, r"tokens and head dim must be equal, got q \(5, 16\), k \(4, 16\)"),
        ({"q": torch.zeros(5, 3, 16)}, "3 heads of q are no multiple of k's 2"),
    ],
)
def test_operands_that_do_not_fit_together_are_refused(arguments, message):
    with pytest.raises(KernelError, match=message):
        attention_varlen(**{"q": TOKENS, "k": TOKENS, "v": TOKENS, "cu_seqlens": BOUNDS, "max_seqlen": 3, **arguments})
