from typing import Any

import pytest
import torch

from roofwatch import InputMaker
from roofwatch.kernels import KernelError
from roofwatch.kernels.sparsity.block_sparse_matmul import block_sparse_matmul, block_sparse_matmul_spec, unfold_blocks
from tests.kernels.builders import make_case

OPERANDS = ("blocks", "row_pointers", "column_indices", "x")


def make_operands(
    M: int = 64, N: int = 5, K: int = 96, block: int = 32, percent: int = 50, device: str = "cpu"
) -> dict[str, torch.Tensor]:
    case = make_case("block_sparse_matmul", M=M, N=N, K=K, block=block, percent=percent)
    inputs = block_sparse_matmul_spec.inputs(case, InputMaker(case, device))
    return {name: inputs[name] for name in OPERANDS}


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


def test_rows_without_a_block_are_zero_and_a_full_row_is_dense(device: str):
    operands = make_operands(M=96, K=64, device=device)
    operands["blocks"] = torch.randn(2, 32, 32, device=device)
    operands["row_pointers"] = torch.tensor([0, 0, 2, 2], dtype=torch.int32, device=device)
    operands["column_indices"] = torch.tensor([0, 1], dtype=torch.int32, device=device)
    out = block_sparse_matmul(**operands)
    assert not out[:32].any()
    assert not out[64:].any()
    dense = torch.cat(list(operands["blocks"]), dim=1) @ operands["x"]
    torch.testing.assert_close(out[32:64], dense, atol=1e-4, rtol=1e-4)


def test_a_weight_without_any_block_gives_zeros(device: str):
    operands = make_operands(device=device)
    empty = {
        "blocks": operands["blocks"][:0],
        "row_pointers": torch.zeros_like(operands["row_pointers"]),
        "column_indices": operands["column_indices"][:0],
    }
    assert torch.equal(block_sparse_matmul(**empty, x=operands["x"]), torch.zeros(64, 5, device=device))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"blocks": torch.randn(3, 48, 48)}, "blocks of 48 x 48 are not supported; use square blocks of 32, 64, 128"),
        ({"blocks": torch.randn(3, 32, 64)}, "blocks of 32 x 64"),
        ({"blocks": torch.randn(3, 64, 32)[:, ::2]}, r"blocks\.contiguous\(\)"),
        ({"blocks": torch.randn(4, 32, 32)}, "blocks and column indices must be equal"),
        ({"row_pointers": torch.tensor([], dtype=torch.int32)}, "row_pointers is empty"),
        ({"x": torch.randn(100, 5)}, "x has 100 rows; pad it and the weight to a multiple of 32"),
    ],
)
def test_operands_that_would_be_read_wrongly_are_refused_with_the_way_out(changed: dict[str, Any], message: str):
    with pytest.raises(KernelError, match=message):
        block_sparse_matmul(**{**make_operands(), **changed})
