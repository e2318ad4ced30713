import pytest
import torch

from roofwatch import UnsupportedError
from roofwatch.kernels import KernelError
from roofwatch.kernels.overhead import empty_launch, launch_chain, launch_chain_spec


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


GRAPHS = ("triton_graph", "eager_graph")


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_says_what_it_needs_where_there_is_no_gpu(name: str):
    with pytest.raises(UnsupportedError, match="needs a GPU"):
        launch_chain_spec.implementations[name].launch(torch.zeros(5), 3)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_reads_what_its_input_holds_now(device: str, name: str):
    if device == "cpu":
        pytest.skip("a CUDA graph is captured on a GPU")
    replay = launch_chain_spec.implementations[name].launch
    x = torch.zeros(5, device=device)
    assert torch.equal(replay(x, 3), torch.full_like(x, 3))
    x += 10
    assert torch.equal(replay(x, 3), torch.full_like(x, 13))
    assert torch.equal(replay(x, 4), torch.full_like(x, 14))
    assert torch.equal(replay(x + 1, 3), torch.full_like(x, 14))


def test_a_chain_without_a_launch_is_refused_with_the_way_out():
    with pytest.raises(KernelError, match="n_launches is 0; pass 1 or more"):
        launch_chain(torch.zeros(5), 0)
