import pytest
import torch

from roofwatch.kernels.building_blocks.row_tiles import MAX_COLS_IN_REGISTERS
from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.normalisation.add_rms_norm import (
    add_rms_norm,
    add_rms_norm_reference,
    add_rms_norm_spec,
)
from roofwatch.kernels.normalisation.column_gradients import MAX_ROW_BYTES_BACKWARD
from tests.kernels.builders import make_case

LENGTHS = [63, MAX_ROW_BYTES_BACKWARD // 4 + 100]


def test_forward_cost_of_two_rows_of_three():
    case = make_case("add_rms_norm", n_rows=2, n_cols=3)
    # 6 elements: 6 additions, 12 for the sums of squares, 6 times 1/rms, 6 times the weight
    assert add_rms_norm_spec.flop_count(case) == 6 + 12 + 6 + 6
    # floats of 4 bytes: 6 each of x and the residual and 3 of the weight in, 6 each of the result and the sum out
    assert add_rms_norm_spec.memory_bytes(case) == 24 + 24 + 12 + 24 + 24


def test_backward_cost_of_two_rows_of_three():
    case = make_case("add_rms_norm", "bfloat16", "bwd", n_rows=2, n_cols=3)
    # 6 elements: 6 to normalise, 6 times the weight, 12 for the rows' sums, 24 for the sum's gradient, 12 for the
    # weight's
    assert add_rms_norm_spec.flop_count(case) == 6 + 6 + 12 + 24 + 12
    # elements of 2 bytes: 6 each of the sum and two gradients and 3 of the weight in, 6 and 3 of their gradients out
    assert add_rms_norm_spec.memory_bytes(case) == 12 + 12 + 12 + 6 + 12 + 6


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


@pytest.mark.parametrize("n_cols", [63, MAX_COLS_IN_REGISTERS + 100])
def test_rows_of_wider_matrices_are_read_where_they_lie(device: str, n_cols: int):
    x, residual = torch.randn(2, 3, n_cols + 7, device=device)[:, :, :n_cols]
    weight = torch.randn(n_cols, device=device)
    there = add_rms_norm(x, residual, weight)
    here = add_rms_norm(x.contiguous(), residual.contiguous(), weight)
    assert torch.equal(there[0], here[0])
    assert torch.equal(there[1], here[1])


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


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_batch_gives_empty_results_and_a_weights_gradient_of_zero(shape: tuple[int, int]):
    x, residual = (torch.empty(shape, requires_grad=True) for _ in range(2))
    weight = torch.ones(shape[1], requires_grad=True)
    out, new_residual = add_rms_norm(x, residual, weight)
    (out + new_residual).sum().backward()
    assert out.shape == new_residual.shape == shape
    assert x.grad is not None
    assert x.grad.shape == shape
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.zeros(shape[1]))
