import pytest
import torch

from roofwatch.kernels.errors import KernelError
from roofwatch.kernels.overhead.empty_launch import MAX_ELEMENTS, empty_launch, empty_launch_spec
from tests.kernels.builders import make_case


def test_cost_of_one_element():
    case = make_case("empty_launch", n_elements=1)
    assert empty_launch_spec.flop_count(case) == 1
    # a float of 4 bytes in, one out
    assert empty_launch_spec.memory_bytes(case) == 4 + 4


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
