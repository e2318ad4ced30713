"""That the interpreter computes and refuses what it did before it was made quick."""

import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.conftest import IS_INTERPRETED


@triton.jit
def _twice(x):
    return x + x


@triton.jit
def _scaled_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)  # [BLOCK]
    tl.store(y_ptr + offs, tl.sum(_twice(x), axis=0) + _twice(x) * factor, mask=offs < n)  # [BLOCK]


def scaled(x: torch.Tensor, factor: int) -> torch.Tensor:
    y = torch.empty_like(x)
    _scaled_kernel[(2,)](x, y, x.numel(), factor, BLOCK=4)
    return y


def test_functions_within_a_kernel_are_interpreted_in_every_launch(device: str):
    x = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8], dtype=torch.int32, device=device)
    sums = torch.tensor([20] * 4 + [52] * 4, device=device)
    for factor in (3, 5):
        assert torch.equal(scaled(x, factor), (sums + 2 * x * factor).int())


@pytest.mark.skipif(not IS_INTERPRETED, reason="a GPU says nothing of it")
@pytest.mark.parametrize(("largest", "factor"), [(2**30, 1), (2**20, 2**10), (-(2**20), 2**11)])
def test_an_integer_that_leaves_its_type_is_an_error_and_the_next_launch_is_sound(
    device: str, largest: int, factor: int
):
    x = torch.tensor([0, largest], dtype=torch.int32, device=device)
    with pytest.raises(Exception, match=r"int32 overflow detected for operation (add|mul)"):
        scaled(x, factor)
    assert torch.equal(scaled(x * 0, factor), x * 0)
