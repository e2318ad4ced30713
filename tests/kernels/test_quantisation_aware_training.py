"""Of ternary_fake_quant and nonary_fake_quant, which share their kernels."""

from collections.abc import Callable

import pytest
import torch

from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.quantisation_aware_training import nonary_fake_quant, ternary_fake_quant

FakeQuant = Callable[[torch.Tensor], torch.Tensor]
EACH = pytest.mark.parametrize(
    ("fake_quant", "highest"),
    [(ternary_fake_quant, 1), (nonary_fake_quant, 4)],
    ids=["ternary", "nonary"],
)


@EACH
@pytest.mark.parametrize("n_cols", [1000, MAX_COLS_IN_REGISTERS + 100])
def test_the_gradient_passes_where_the_level_is_not_clamped(
    device: str, fake_quant: FakeQuant, highest: int, n_cols: int
):
    x = torch.randn(2, n_cols, device=device)
    x[0, :4] = 1e6 * torch.tensor(
        [1.0, -1.0, 0.0, 1.0], device=device
    )  # far beyond, in a row whose rest is near zero
    x.requires_grad_(True)
    upstream = torch.randn(2, n_cols, device=device)
    (gradient,) = torch.autograd.grad(fake_quant(x), x, upstream)
    steps = (x / x.abs().mean(dim=1, keepdim=True)).detach()
    is_near_threshold = (steps.abs() - highest - 0.5).abs() < 1e-4
    expected = torch.where(steps.abs() < highest + 0.5, upstream, 0.0)
    assert torch.equal(gradient[~is_near_threshold], expected[~is_near_threshold])
    assert not gradient[0, [0, 1, 3]].any()


@EACH
def test_a_row_of_zeros_stays_zero(device: str, fake_quant: FakeQuant, highest: int):
    assert not fake_quant(torch.zeros(2, 70, device=device)).any()


@EACH
def test_rows_without_columns_are_refused(fake_quant: FakeQuant, highest: int):
    with pytest.raises(KernelError, match=r"without a mean.*at least one column"):
        fake_quant(torch.empty(5, 0))
