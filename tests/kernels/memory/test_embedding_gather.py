import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.memory.embedding_gather import embedding_gather


@pytest.mark.parametrize("hidden", [3, 2048, 2100])
def test_an_index_outside_of_the_table_gives_a_row_of_nan_and_leaves_the_others(device: str, hidden: int):
    table = torch.randn(4, hidden, device=device)
    out = embedding_gather(table, torch.tensor([3, 4, 0, -1, 2**40], device=device))
    assert torch.equal(out[[0, 2]], table[[3, 0]])
    assert out[[1, 3, 4]].isnan().all()


@pytest.mark.parametrize(
    ("indices", "way_out"),
    [
        (torch.tensor([1], dtype=torch.int32), r"indices\.to\(torch\.int64\)"),
        (torch.tensor([[1]]), r"indices\.reshape"),
        (torch.arange(4)[::2], r"indices\.contiguous\(\)"),
    ],
)
def test_indices_that_would_be_read_wrongly_are_refused_with_the_way_out(indices: torch.Tensor, way_out: str):
    with pytest.raises(KernelError, match=way_out):
        embedding_gather(torch.randn(5, 4), indices)


def test_a_gradient_is_refused_with_the_way_out():
    with pytest.raises(KernelError, match=r"table\.detach\(\)"):
        embedding_gather(torch.randn(2, 2, requires_grad=True), torch.tensor([0]))
