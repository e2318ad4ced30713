from typing import Any

import pytest
import torch

from roofwatch import InputMaker, UnsupportedError
from roofwatch.kernels import KernelError
from roofwatch.kernels.sparsity.matmul_2_4 import matmul_2_4, matmul_2_4_spec, unfold_2_4
from tests.kernels.builders import make_case


def make_operands(M: int = 3, N: int = 5, K: int = 16, device: str = "cpu") -> dict[str, torch.Tensor]:
    case = make_case("matmul_2_4", "float16", M=M, N=N, K=K)
    inputs = matmul_2_4_spec.inputs(case, InputMaker(case, device))
    return {name: inputs[name] for name in ("values", "metadata", "x")}


def test_a_row_unfolds_as_its_metadata_says():
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    # the first four columns keep places 0 and 3, the next 1 and 2: 2 bits for each, the first in the lowest
    metadata = torch.tensor([[0b10_01_11_00]], dtype=torch.uint8)
    assert unfold_2_4(values, metadata).tolist() == [[1.0, 0.0, 0.0, 2.0, 0.0, 3.0, 4.0, 0.0]]


def test_every_group_of_four_keeps_two_and_all_six_pairs_occur():
    case = make_case("matmul_2_4", "float16", M=8, N=1, K=64)
    weight = matmul_2_4_spec.inputs(case, InputMaker(case))["weight"]
    kept = weight.reshape(-1, 4) != 0
    assert (kept.sum(dim=1) == 2).all()
    assert len(kept.unique(dim=0)) == 6


@pytest.mark.parametrize("N", [3, 70])  # narrow and wide tiles
def test_each_pair_of_places_is_multiplied_with_its_columns(device: str, N: int):
    for bits in (0b01_00, 0b10_00, 0b11_00, 0b10_01, 0b11_01, 0b11_10):
        operands = make_operands(3, N, 24, device)
        operands["metadata"] = torch.full_like(operands["metadata"], bits | bits << 4)
        expected = unfold_2_4(operands["values"].double(), operands["metadata"]) @ operands["x"].double()
        torch.testing.assert_close(matmul_2_4(**operands).double(), expected, atol=2e-3, rtol=2e-3)


def test_the_vendor_path_says_what_it_needs_where_there_is_no_gpu():
    case = make_case("matmul_2_4", "float16", M=64, N=64, K=64)
    with pytest.raises(UnsupportedError, match=r"needs a GPU .* 8\.0"):
        matmul_2_4_spec.implementations["semi_structured"].launch(**matmul_2_4_spec.inputs(case, InputMaker(case)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"values": torch.randn(3, 8), "x": torch.randn(16, 5)}, r"values\.bfloat16\(\)"),
        ({"x": torch.randn(12, 5).half()}, "x has 12 rows; pad it and the weight to a multiple of 8"),
        ({"x": torch.randn(24, 5).half()}, r"values must be equal, got expected \(3, 12\), values \(3, 8\)"),
        ({"metadata": torch.zeros(2, 3, dtype=torch.uint8).t()}, r"metadata\.contiguous\(\)"),
        ({"metadata": torch.zeros(3, 4, dtype=torch.uint8)}, r"metadata must be equal, got expected \(3, 2\)"),
    ],
)
def test_operands_that_would_be_read_wrongly_are_refused_with_the_way_out(changed: dict[str, Any], message: str):
    with pytest.raises(KernelError, match=message):
        matmul_2_4(**{**make_operands(), **changed})
