from collections.abc import Callable

import pytest
import torch

from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS, MAX_ROW_BYTES_BACKWARD
from roofwatch.kernels.normalisation.add_rms_norm import add_rms_norm, add_rms_norm_reference
from roofwatch.kernels.normalisation.group_norm_silu import (
    group_norm_silu,
    group_norm_silu_reference,
    part_length,
)
from roofwatch.kernels.normalisation.layer_norm import (
    adaln_modulate,
    adaln_modulate_reference,
    layer_norm,
    layer_norm_reference,
)
from roofwatch.kernels.normalisation.rms_norm import rms_norm


@pytest.mark.parametrize(("normalise", "parameter_count"), [(rms_norm, 1), (layer_norm, 2)])
def test_parameters_of_another_dtype_keep_it_in_their_gradients(
    device: str, normalise, parameter_count: int
):
    x = torch.randn(5, 63, device=device, dtype=torch.bfloat16)
    parameters = [
        torch.randn(63, device=device, requires_grad=True) for _ in range(parameter_count)
    ]
    out = normalise(x, *parameters)
    assert out.dtype is torch.bfloat16
    gradients = torch.autograd.grad(out.sum(), parameters)
    assert {gradient.dtype for gradient in gradients} == {torch.float32}


@pytest.mark.parametrize(
    "normalise", [rms_norm, lambda x, weight: add_rms_norm(x + 1, x - 1, weight)[0]]
)
def test_a_row_of_zeros_stays_finite(device: str, normalise: Callable[..., torch.Tensor]):
    x = torch.zeros(2, 63, device=device, requires_grad=True)
    out = normalise(x, torch.ones(63, device=device))
    out.sum().backward()
    assert torch.equal(out, torch.zeros_like(out))
    assert x.grad is not None
    assert x.grad.isfinite().all()


LENGTHS = [63, MAX_ROW_BYTES_BACKWARD // 4 + 100]


@pytest.mark.parametrize("n_cols", [63, MAX_COLS_IN_REGISTERS + 100])
def test_a_mean_far_from_zero_does_not_cancel_the_variance(device: str, n_cols: int):
    x = torch.randn(2, n_cols, device=device) + 1e4
    weight, bias = torch.ones(n_cols, device=device), torch.zeros(n_cols, device=device)
    expected = layer_norm_reference(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(layer_norm(x, weight, bias).double(), expected, atol=5e-3, rtol=0)


def test_a_bias_of_another_length_is_refused():
    with pytest.raises(KernelError, match=r"layer_norm: the columns must be equal, .*bias \(4,\)"):
        layer_norm(torch.randn(2, 3), torch.randn(3), torch.randn(4))


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
        actual = torch.autograd.grad(
            add_rms_norm(*operands)[which].sum(), operands, materialize_grads=True
        )
        expected = torch.autograd.grad(
            add_rms_norm_reference(*operands)[which].sum(), operands, materialize_grads=True
        )
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_the_chunks_of_one_conditioning_matrix_are_read_where_they_lie(device: str):
    x = torch.randn(2, 5, 63, device=device)
    conditioning = torch.randn(2, 6 * 63, device=device, requires_grad=True)
    shift, scale = conditioning.chunk(6, dim=-1)[:2]
    upstream = torch.randn(2, 5, 63, device=device)
    (actual,) = torch.autograd.grad(
        adaln_modulate(x, scale, shift), conditioning, upstream, retain_graph=True
    )
    (expected,) = torch.autograd.grad(
        adaln_modulate_reference(x, scale, shift), conditioning, upstream
    )
    torch.testing.assert_close(actual, expected)


def test_a_scale_per_token_is_refused():
    with pytest.raises(
        KernelError, match=r"adaln_modulate: images and columns must be equal, .*scale \(2, 5, 63\)"
    ):
        adaln_modulate(torch.randn(2, 5, 63), torch.randn(2, 5, 63), torch.randn(2, 63))


def group_norm_operands(
    *shape: int, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.randn(shape, device=device),
        torch.rand(shape[1], device=device) + 0.5,
        torch.randn(shape[1], device=device),
    )


def test_a_group_of_more_tiles_than_parts_agrees_with_the_reference(device: str):
    x, weight, bias = group_norm_operands(1, 2, 3, 88_000, device=device)
    assert part_length(3 * 88_000) == 2 * 4096  # two tiles to a part
    actual = group_norm_silu(x, weight, bias, n_groups=2)
    torch.testing.assert_close(actual, group_norm_silu_reference(x, weight, bias, n_groups=2))


def test_a_mean_far_from_zero_does_not_cancel_the_variance_of_a_group(device: str):
    x, weight, bias = group_norm_operands(1, 2, 80, 80, device=device)
    x += 1e4
    expected = group_norm_silu_reference(x.double(), weight.double(), bias.double(), n_groups=1)
    torch.testing.assert_close(
        group_norm_silu(x, weight, bias, n_groups=1).double(), expected, atol=5e-3, rtol=0
    )


def test_what_it_would_read_wrongly_is_refused_with_a_way_out():
    x, weight, bias = group_norm_operands(2, 4, 3, 5)
    with pytest.raises(
        KernelError, match=r"group_norm_silu: x must be contiguous.*call x\.contiguous\(\)"
    ):
        group_norm_silu(x.transpose(0, 1).contiguous().transpose(0, 1), weight, bias, n_groups=2)
    with pytest.raises(
        KernelError,
        match=r"4 channels cannot be split into 3 groups; pass an n_groups that divides",
    ):
        group_norm_silu(x, weight, bias, n_groups=3)
    with pytest.raises(KernelError, match="the channels must be equal"):
        group_norm_silu(x, weight, bias[:3], n_groups=2)
