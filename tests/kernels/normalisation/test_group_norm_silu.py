import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.normalisation.group_norm_silu import (
    group_norm_silu,
    group_norm_silu_reference,
    part_length,
)


def make_operands(*shape: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.randn(shape, device=device),
        torch.rand(shape[1], device=device) + 0.5,
        torch.randn(shape[1], device=device),
    )


def test_a_group_of_more_tiles_than_parts_agrees_with_the_reference(device: str):
    x, weight, bias = make_operands(1, 2, 3, 88_000, device=device)
    assert part_length(3 * 88_000) == 2 * 4096  # two tiles to a part
    actual = group_norm_silu(x, weight, bias, n_groups=2)
    torch.testing.assert_close(actual, group_norm_silu_reference(x, weight, bias, n_groups=2))


def test_a_mean_far_from_zero_does_not_cancel_the_variance(device: str):
    x, weight, bias = make_operands(1, 2, 80, 80, device=device)
    x += 1e4
    expected = group_norm_silu_reference(x.double(), weight.double(), bias.double(), n_groups=1)
    torch.testing.assert_close(group_norm_silu(x, weight, bias, n_groups=1).double(), expected, atol=5e-3, rtol=0)


def test_what_it_would_read_wrongly_is_refused_with_a_way_out():
    x, weight, bias = make_operands(2, 4, 3, 5)
    with pytest.raises(KernelError, match=r"group_norm_silu: x must be contiguous.*call x\.contiguous\(\)"):
        group_norm_silu(x.transpose(0, 1).contiguous().transpose(0, 1), weight, bias, n_groups=2)
    with pytest.raises(KernelError, match=r"4 channels cannot be split into 3 groups; pass an n_groups that divides"):
        group_norm_silu(x, weight, bias, n_groups=3)
    with pytest.raises(KernelError, match="the channels must be equal"):
        group_norm_silu(x, weight, bias[:3], n_groups=2)
