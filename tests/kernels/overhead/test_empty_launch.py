import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.overhead.empty_launch import MAX_ELEMENTS, empty_launch


@pytest.mark.parametrize("n_elements", [1, MAX_ELEMENTS])
def test_every_element_is_one_more_and_x_stays(device: str, n_elements: int):
    x = torch.randn(n_elements, device=device)
    before = x.clone()
    assert torch.equal(empty_launch(x), before + 1)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.randn(1025), r"x has 1025 elements, more than 1024; pass x\[:1024\]"),
        (torch.randn(8)[::2], r"x\.contiguous\(\)"),
        (torch.randn(2, 2), r"x must have 1 dims.*x\.reshape"),
        (torch.randn(2, requires_grad=True), r"x\.detach\(\)"),
    ],
)
def test_what_one_program_cannot_hold_is_refused_with_the_way_out(x: torch.Tensor, message: str):
    with pytest.raises(KernelError, match=message):
        empty_launch(x)
