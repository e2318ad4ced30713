import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.normalisation.add_rms_norm import (
    add_rms_norm,
    add_rms_norm_reference,
)
from roofwatch.kernels.normalisation.reductions import MAX_ROW_BYTES_BACKWARD

LENGTHS = [63, MAX_ROW_BYTES_BACKWARD // 4 + 100]


def test_what_is_normalised_is_the_sum_as_it_is_stored(device: str):
    x = torch.randn(3, 63, device=device, dtype=torch.bfloat16)
    residual = 100 * torch.randn(3, 63, device=device, dtype=torch.bfloat16)
    weight = torch.ones(63, device=device, dtype=torch.bfloat16)
    out, new_residual = add_rms_norm(x, residual, weight)
    assert torch.equal(new_residual, x + residual)
    again, _ = add_rms_norm(torch.zeros_like(x), new_residual, weight)
    assert torch.equal(out, again)


@pytest.mark.parametrize("n_cols", LENGTHS)
def test_the_gradient_through_either_output_alone_is_right(device: str, n_cols: int):
    x, residual = (torch.randn(3, n_cols, device=device, requires_grad=True) for _ in range(2))
    weight = torch.randn(n_cols, device=device, requires_grad=True)
    operands = x, residual, weight
    for which in (0, 1):
        # summed, so that the gradient is one expanded scalar
        actual = torch.autograd.grad(add_rms_norm(*operands)[which].sum(), operands, materialize_grads=True)
        expected = torch.autograd.grad(add_rms_norm_reference(*operands)[which].sum(), operands, materialize_grads=True)
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_a_row_that_cancels_to_zero_stays_finite(device: str):
    x = torch.randn(2, 63, device=device, requires_grad=True)
    out, new_residual = add_rms_norm(x, -x.detach(), torch.ones(63, device=device))
    out.sum().backward()
    assert torch.equal(out, torch.zeros_like(out))
    assert torch.equal(new_residual, torch.zeros_like(out))
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_a_residual_of_another_dtype_is_refused():
    with pytest.raises(KernelError, match="add_rms_norm: the dtypes must be equal"):
        add_rms_norm(torch.randn(2, 3), torch.randn(2, 3).bfloat16(), torch.randn(3))
