import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.low_precision.quantise import quantise_int8


def test_halves_go_to_the_even_level(device: str):
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]], device=device)
    levels, scale = quantise_int8(x)
    assert scale.item() == 1.0
    assert levels.tolist() == [[127, 0, 2, 2, 0, -2, -2]]


def test_each_row_reaches_127_and_none_128(device: str):
    levels, _ = quantise_int8(torch.randn(20, 63, device=device))
    assert levels.abs().amax(dim=1).tolist() == [127] * 20
    assert levels.min() >= -127


def test_the_product_of_levels_and_scale_is_within_half_a_step(device: str):
    x = torch.randn(5, 300, device=device)
    levels, scale = quantise_int8(x)
    assert ((levels * scale - x).abs() <= 0.5001 * scale).all()


def test_a_row_of_zeros_stays_zero(device: str):
    levels, scale = quantise_int8(torch.zeros(2, 70, device=device))
    assert not levels.any()
    assert (scale > 0).all()


def test_rows_without_columns_are_refused():
    with pytest.raises(KernelError, match=r"without a maximum.*at least one column"):
        quantise_int8(torch.empty(3, 0))


def test_a_gradient_is_not_cut_off_without_a_word():
    with pytest.raises(KernelError, match=r"forward only.*x\.detach\(\)"):
        quantise_int8(torch.ones(2, 3, requires_grad=True))
