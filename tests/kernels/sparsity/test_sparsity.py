from typing import Any

import pytest
import torch

from roofwatch import UnsupportedError
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.sparsity.block_sparse_matmul import block_sparse_matmul, unfold_blocks
from roofwatch.kernels.sparsity.matmul_2_4 import matmul_2_4, matmul_2_4_spec, unfold_2_4
from tests.kernels.builders import make_inputs


def make_operands(
    M: int = 64, N: int = 5, K: int = 96, device: str = "cpu"
) -> dict[str, torch.Tensor]:
    inputs = make_inputs("block_sparse_matmul", device, M=M, N=N, K=K, block=32, percent=50)
    return {name: value for name, value in inputs.items() if name != "weight"}


def test_blocks_stand_where_their_indices_say():
    blocks = torch.arange(1.0, 13.0).reshape(3, 2, 2)
    weight = unfold_blocks(blocks, torch.tensor([0, 0, 2, 3]), torch.tensor([0, 2, 1]), n_columns=6)
    assert weight.tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [1, 2, 0, 0, 5, 6],
        [3, 4, 0, 0, 7, 8],
        [0, 0, 9, 10, 0, 0],
        [0, 0, 11, 12, 0, 0],
    ]


def test_a_weight_without_any_block_gives_zeros(device: str):
    operands = make_operands(device=device)
    empty = {
        "blocks": operands["blocks"][:0],
        "row_pointers": torch.zeros_like(operands["row_pointers"]),
        "column_indices": operands["column_indices"][:0],
    }
    assert torch.equal(
        block_sparse_matmul(**empty, x=operands["x"]), torch.zeros(64, 5, device=device)
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"blocks": torch.randn(3, 48, 48)},
            "blocks of 48 x 48 are not supported; use square blocks of 32, 64, 128",
        ),
        ({"blocks": torch.randn(3, 32, 64)}, "blocks of 32 x 64"),
        ({"blocks": torch.randn(3, 64, 32)[:, ::2]}, r"blocks\.contiguous\(\)"),
        ({"blocks": torch.randn(4, 32, 32)}, "blocks and column indices must be equal"),
        ({"row_pointers": torch.tensor([], dtype=torch.int32)}, "row_pointers is empty"),
        ({"x": torch.randn(100, 5)}, "x has 100 rows; pad it and the weight to a multiple of 32"),
    ],
)
def test_operands_that_would_be_read_wrongly_are_refused_with_the_way_out(
    changed: dict[str, Any], message: str
):
    with pytest.raises(KernelError, match=message):
        block_sparse_matmul(**make_operands() | changed)


def test_a_row_unfolds_as_its_metadata_says():
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    # the first four columns keep places 0 and 3, the next 1 and 2: 2 bits for each, the first in
    # the lowest
    metadata = torch.tensor([[0b10_01_11_00]], dtype=torch.uint8)
    assert unfold_2_4(values, metadata).tolist() == [[1.0, 0.0, 0.0, 2.0, 0.0, 3.0, 4.0, 0.0]]


def test_every_group_of_four_keeps_two_and_all_six_pairs_occur():
    weight = make_inputs("matmul_2_4", dtype="float16", M=8, N=1, K=64)["weight"]
    kept = weight.reshape(-1, 4) != 0
    assert (kept.sum(dim=1) == 2).all()
    assert len(kept.unique(dim=0)) == 6


def test_the_vendor_path_says_what_it_needs_where_there_is_no_gpu():
    inputs = make_inputs("matmul_2_4", dtype="float16", M=64, N=64, K=64)
    with pytest.raises(UnsupportedError, match=r"needs a GPU .* 8\.0"):
        matmul_2_4_spec.implementations["semi_structured"].launch(**inputs)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"values": torch.randn(3, 8), "x": torch.randn(16, 5)}, r"values\.bfloat16\(\)"),
        (
            {"x": torch.randn(12, 5).half()},
            "x has 12 rows; pad it and the weight to a multiple of 8",
        ),
        (
            {"x": torch.randn(24, 5).half()},
            r"values must be equal, got expected \(3, 12\), values \(3, 8\)",
        ),
        ({"metadata": torch.zeros(2, 3, dtype=torch.uint8).t()}, r"metadata\.contiguous\(\)"),
        (
            {"metadata": torch.zeros(3, 4, dtype=torch.uint8)},
            r"metadata must be equal, got expected \(3, 2\)",
        ),
    ],
)
def test_operands_of_2_4_that_would_be_read_wrongly_are_refused(
    changed: dict[str, Any], message: str
):
    inputs = make_inputs("matmul_2_4", dtype="float16", M=3, N=5, K=16) | changed
    del inputs["weight"]
    with pytest.raises(KernelError, match=message):
        matmul_2_4(**inputs)
