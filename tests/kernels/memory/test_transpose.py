import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.memory.transpose import transpose


@pytest.mark.parametrize("shape", [(1, 1), (64, 64), (65, 127), (600, 3)])
def test_the_result_is_a_matrix_of_its_own(device: str, shape: tuple[int, int]):
    x = torch.randn(shape, device=device)
    out = transpose(x)
    assert torch.equal(out, x.t())
    assert out.is_contiguous()


def test_columns_with_a_stride_are_refused_with_the_way_out():
    with pytest.raises(KernelError, match=r"x\.contiguous\(\)"):
        transpose(torch.randn(4, 6).t())


def test_a_gradient_is_refused_with_the_way_out():
    with pytest.raises(KernelError, match=r"x\.detach\(\)"):
        transpose(torch.randn(2, 2, requires_grad=True))
