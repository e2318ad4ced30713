import pytest
import torch

from roofwatch import UnsupportedError
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.overhead import launch_chain, launch_chain_spec


@pytest.mark.parametrize(
    ("x", "n_launches", "message"),
    [
        (torch.randn(1025), 1, r"x has 1025 elements, more than 1024; pass x\[:1024\]"),
        (torch.randn(8)[::2], 1, r"x\.contiguous\(\)"),
        (torch.randn(2, 2), 1, r"x must have 1 dims.*x\.reshape"),
        (torch.randn(2, requires_grad=True), 1, r"x\.detach\(\)"),
        (torch.zeros(5), 0, "n_launches is 0; pass 1 or more"),
    ],
)
def test_what_cannot_be_launched_is_refused_with_the_way_out(
    x: torch.Tensor, n_launches: int, message: str
):
    with pytest.raises(KernelError, match=message):
        launch_chain(x, n_launches)


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
