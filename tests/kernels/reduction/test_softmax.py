import pytest
import torch

from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.reduction.softmax import softmax

LENGTHS = [1000, MAX_COLS_IN_REGISTERS + 100]


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_masked_logits_get_probability_zero(device: str, n_cols: int):
    x = torch.randn(3, n_cols, device=device)
    x[0, : n_cols // 2] = -torch.inf  # whole tiles at the start
    x[1, 1:] = -torch.inf
    x[2] = -torch.inf  # no logit left: undefined, as in torch
    torch.testing.assert_close(softmax(x), torch.softmax(x, dim=-1), equal_nan=True)


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_large_logits_do_not_overflow(device: str, n_cols: int):
    x = 1e4 * torch.randn(3, n_cols, device=device)
    torch.testing.assert_close(softmax(x), torch.softmax(x, dim=-1))
