import pytest
import torch

from roofwatch import InputMaker
from roofwatch.kernels import KernelError
from roofwatch.kernels.moe.grouped_gemm import grouped_gemm, grouped_gemm_spec
from roofwatch.kernels.moe.moe_permute import chosen_experts
from tests.kernels.builders import make_case


def offsets_of(*counts: int, device: str = "cpu") -> torch.Tensor:
    return torch.tensor([0, *counts], device=device).cumsum(0).to(torch.int32)


def test_weights_of_experts_that_nobody_chose_are_not_counted():
    case = make_case("grouped_gemm", "bfloat16", T=2, E=3, top_k=1, hidden=5, ffn=7, routing="all_to_one")
    # 2 rows of 7 and 1 weight of 35 in, 2 rows of 5 out; 4 offsets
    assert grouped_gemm_spec.memory_bytes(case) == 28 + 70 + 20 + 16


@pytest.mark.parametrize("routing", ["uniform", "zipf"])
def test_every_expert_of_the_decode_cases_has_rows_as_their_cost_says(routing: str):
    found = [case for case in grouped_gemm_spec.cases if case.tags >= {"decode", routing}]
    assert found
    for case in found:
        assert chosen_experts(case, InputMaker(case)).unique().numel() == case["E"]


@pytest.mark.parametrize("counts", [(0, 0, 300), (300, 0, 0), (1, 298, 1), (128, 44, 128), (127, 129, 44)])
@pytest.mark.parametrize("K", [64, 63])  # rows that the copy engine takes, and others
def test_rows_meet_their_own_experts_weights_however_they_are_shared_out(device: str, counts: tuple[int, ...], K: int):
    tokens = torch.randn(300, K, device=device).half()
    weights = torch.randn(3, K, 136, device=device).half()
    parts = zip(tokens.split(counts), weights, strict=True)
    expected = torch.cat([(part.float() @ weight.float()).half() for part, weight in parts])
    torch.testing.assert_close(grouped_gemm(tokens, weights, offsets_of(*counts, device=device)), expected)


@pytest.mark.filterwarnings("ignore:invalid value")  # numpy's, at the infinities that are not stored
def test_what_lies_behind_an_experts_last_row_never_reaches_its_products(device: str):
    # K ends within a tile: a tile of tokens or weights that were read past it would bring infinities in
    tokens = torch.full((4, 40), torch.inf, device=device).half()
    tokens[:2] = 1.0
    weights = torch.full((2, 40, 64), torch.inf, device=device).half()
    weights[0] = 1.0
    product = grouped_gemm(tokens, weights, offsets_of(2, 2, device=device))
    assert torch.equal(product[:2], torch.full((2, 64), 40.0, device=device).half())


@pytest.mark.parametrize(
    ("weights", "offsets", "message"),
    [
        (torch.zeros(2, 5, 3), offsets_of(2, 2), "tokens' and weights' K must be equal, got tokens 4, weights 5"),
        (torch.zeros(2, 4, 3), offsets_of(2, 1, 1), "the experts must be equal, got weights 2, offsets 3"),
        (torch.zeros(2, 3, 4).mT, offsets_of(2, 2), r"weights must be contiguous .*; call weights.contiguous\(\)"),
    ],
)
def test_operands_that_do_not_fit_are_refused_with_what_they_have(weights, offsets, message):
    with pytest.raises(KernelError, match=message):
        grouped_gemm(torch.zeros(4, 4), weights, offsets)
