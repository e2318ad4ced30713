import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.normalisation.layer_norm import layer_norm, layer_norm_reference
from roofwatch.kernels.normalisation.reductions import MAX_ROW_BYTES_BACKWARD

LENGTHS = [63, MAX_ROW_BYTES_BACKWARD // 4 + 100]


@pytest.mark.parametrize("n_cols", [63, MAX_COLS_IN_REGISTERS + 100])
def test_a_mean_far_from_zero_does_not_cancel_the_variance(device: str, n_cols: int):
    x = torch.randn(2, n_cols, device=device) + 1e4
    weight, bias = torch.ones(n_cols, device=device), torch.zeros(n_cols, device=device)
    expected = layer_norm_reference(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(layer_norm(x, weight, bias).double(), expected, atol=5e-3, rtol=0)


def test_parameters_of_another_dtype_keep_it_in_their_gradients(device: str):
    x = torch.randn(5, 63, device=device, dtype=torch.bfloat16)
    weight, bias = (torch.randn(63, device=device, requires_grad=True) for _ in range(2))
    out = layer_norm(x, weight, bias)
    out.sum().backward()
    assert out.dtype is torch.bfloat16
    assert weight.grad is not None
    assert bias.grad is not None
    assert weight.grad.dtype is bias.grad.dtype is torch.float32


def test_a_row_of_equal_numbers_gives_the_bias(device: str):
    x = torch.full((2, 63), 3.0, device=device)
    weight, bias = torch.randn(2, 63, device=device)
    torch.testing.assert_close(layer_norm(x, weight, bias), bias.expand(2, 63))


def test_a_bias_of_another_length_is_refused():
    with pytest.raises(KernelError, match=r"layer_norm: the columns must be equal, .*bias \(4,\)"):
        layer_norm(torch.randn(2, 3), torch.randn(3), torch.randn(4))
