from collections.abc import Callable

import pytest
import torch

from roofwatch import InputMaker
from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.moe.fp8_grouped_gemm import fp8_grouped_gemm
from roofwatch.kernels.moe.grouped_gemm import grouped_gemm, grouped_gemm_spec
from roofwatch.kernels.moe.moe_permute import (
    chosen_experts,
    expert_offsets,
    moe_permute,
    moe_unpermute,
)
from roofwatch.kernels.moe.moe_topk_routing import MAX_EXPERTS, moe_topk_routing
from tests.kernels.builders import make_case


@pytest.mark.parametrize("n_experts", [1, 3, 8, 33, 256])
@pytest.mark.parametrize("n_tokens", [511, 512, 1500])
def test_places_are_those_of_a_stable_sort(device: str, n_tokens: int, n_experts: int):
    experts = torch.randint(n_experts, (n_tokens, 1), device=device, dtype=torch.int32)
    _, positions, offsets = moe_permute(torch.empty(n_tokens, 0, device=device), experts, n_experts)
    order = experts.flatten().argsort(stable=True)
    assert torch.equal(positions.flatten()[order].long(), torch.arange(n_tokens, device=device))
    assert offsets.tolist() == [int((experts < expert).sum()) for expert in range(n_experts + 1)]


def test_of_equal_logits_the_lower_expert_comes_first(device: str):
    logits = torch.tensor([[1.0, 3.0, 3.0, 1.0, 3.0], [0.0, -0.0, 0.0, -0.0, -1.0]], device=device)
    weights, experts = moe_topk_routing(logits, 4)
    assert experts.tolist() == [[1, 2, 4, 0], [0, 1, 2, 3]]
    assert weights[1].tolist() == [0.25, 0.25, 0.25, 0.25]


def test_masked_experts_come_last_with_weight_zero(device: str):
    logits = torch.tensor([[-torch.inf, -2.0, -torch.inf, -1.0]], device=device)
    weights, experts = moe_topk_routing(logits, 4)
    assert experts.tolist() == [[3, 1, 0, 2]]
    torch.testing.assert_close(
        weights, torch.softmax(torch.tensor([[-1.0, -2.0, -torch.inf, -torch.inf]]), 1).to(device)
    )


def test_large_logits_do_not_overflow(device: str):
    logits = torch.tensor([[1e30, -1e30, 9e29]], device=device)
    weights, experts = moe_topk_routing(logits, 3)
    assert weights.tolist() == [[1.0, 0.0, 0.0]]
    assert experts.tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_give_float32_weights(device: str, dtype: torch.dtype):
    logits = torch.arange(-20, 20, device=device).to(dtype)[None]
    weights, experts = moe_topk_routing(logits, 2)
    assert weights.dtype == torch.float32
    assert experts.tolist() == [[39, 38]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: moe_permute(torch.zeros(3, 4), torch.zeros(2, 2, dtype=torch.int32), 4),
            "the tokens must be equal, got x 3, experts 2",
        ),
        (
            lambda: moe_unpermute(
                torch.zeros(6, 4), torch.zeros(3, 2, dtype=torch.int32), torch.zeros(2, 3)
            ),
            r"the shapes must be equal, got positions \(3, 2\), weights \(2, 3\)",
        ),
        (lambda: moe_topk_routing(torch.zeros(3, 8), 0), "top_k is 0; choose 1 to 8"),
        (lambda: moe_topk_routing(torch.zeros(3, 8), 9), "top_k is 9; choose 1 to 8"),
        (
            lambda: moe_topk_routing(torch.zeros(1, MAX_EXPERTS + 1), 1),
            "4097 experts, at most 4096 .*call torch.topk",
        ),
        (
            lambda: grouped_gemm(torch.zeros(4, 4), torch.zeros(2, 5, 3), offsets_of(2, 2)),
            "tokens' and weights' K must be equal, got tokens 4, weights 5",
        ),
        (
            lambda: grouped_gemm(torch.zeros(4, 4), torch.zeros(2, 4, 3), offsets_of(2, 1, 1)),
            "the experts must be equal, got weights 2, offsets 3",
        ),
        (
            lambda: grouped_gemm(torch.zeros(4, 4), torch.zeros(2, 3, 4).mT, offsets_of(2, 2)),
            r"weights must be contiguous .*; call weights.contiguous\(\)",
        ),
        (
            lambda: fp8_grouped_gemm(*fp8_operands(4, 3), offsets_of(2, 1, 1)),
            "the experts must be equal, got weights 2, offsets 3",
        ),
        (
            lambda: fp8_grouped_gemm(*fp8_operands(4, 3, n_scales=5), offsets_of(2, 2)),
            r"the rows must be equal, got rows \(4,\), row_scale \(5,\)",
        ),
    ],
)
def test_invalid_operands_are_refused_with_the_way_out(call: Callable[[], object], message: str):
    with pytest.raises(KernelError, match=message):
        call()


def fp8_operands(
    n_rows: int, N: int, *, n_scales: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ones for two experts and 16 columns."""
    return (
        torch.ones(n_rows, 16).to(torch.float8_e4m3fn),
        torch.ones(n_rows if n_scales is None else n_scales),
        torch.ones(2, N, 16).to(torch.float8_e4m3fn),
        torch.ones(2, N),
    )


def test_rows_and_output_channels_have_scales_of_their_own(device: str):
    rows, _, weights, _ = (operand.to(device) for operand in fp8_operands(5, 3))
    row_scale = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0], device=device)
    weight_scale = torch.tensor([[1.0, 0.5, 0.25], [32.0, 64.0, 128.0]], device=device)
    offsets = offsets_of(2, 3, device=device)
    out = fp8_grouped_gemm(rows, row_scale, weights, weight_scale, offsets)
    of_experts = weight_scale[torch.tensor([0, 0, 1, 1, 1], device=device)]
    assert torch.equal(out.float(), 16 * row_scale[:, None] * of_experts)


def offsets_of(*counts: int, device: str = "cpu") -> torch.Tensor:
    return torch.tensor([0, *counts], device=device).cumsum(0).to(torch.int32)


def test_weights_of_experts_that_nobody_chose_are_not_counted():
    case = make_case(
        "grouped_gemm", "bfloat16", T=2, E=3, top_k=1, hidden=5, ffn=7, routing="all_to_one"
    )
    # 2 rows of 7 and 1 weight of 35 in, 2 rows of 5 out; 4 offsets
    assert grouped_gemm_spec.memory_bytes(case) == 28 + 70 + 20 + 16


@pytest.mark.parametrize("routing", ["uniform", "zipf"])
def test_every_expert_of_the_decode_cases_has_rows_as_their_cost_says(routing: str):
    found = [case for case in grouped_gemm_spec.cases if case.tags >= {"decode", routing}]
    assert found
    for case in found:
        assert chosen_experts(case, InputMaker(case)).unique().numel() == case["E"]


@pytest.mark.parametrize(
    "counts", [(0, 0, 300), (300, 0, 0), (1, 298, 1), (128, 44, 128), (127, 129, 44)]
)
@pytest.mark.parametrize("K", [64, 63])  # rows that the copy engine takes, and others
def test_rows_meet_their_own_experts_weights_however_they_are_shared_out(
    device: str, counts: tuple[int, ...], K: int
):
    tokens = torch.randn(300, K, device=device).half()
    weights = torch.randn(3, K, 136, device=device).half()
    parts = zip(tokens.split(counts), weights, strict=True)
    expected = torch.cat([(part.float() @ weight.float()).half() for part, weight in parts])
    torch.testing.assert_close(
        grouped_gemm(tokens, weights, offsets_of(*counts, device=device)), expected
    )


@pytest.mark.filterwarnings(
    "ignore:invalid value"
)  # numpy's, at the infinities that are not stored
def test_what_lies_behind_an_experts_last_row_never_reaches_its_products(device: str):
    # K ends within a tile: a tile of tokens or weights that were read past it would bring
    # infinities in
    tokens = torch.full((4, 40), torch.inf, device=device).half()
    tokens[:2] = 1.0
    weights = torch.full((2, 40, 64), torch.inf, device=device).half()
    weights[0] = 1.0
    product = grouped_gemm(tokens, weights, offsets_of(2, 2, device=device))
    assert torch.equal(product[:2], torch.full((2, 64), 40.0, device=device).half())


def choices(routing: str, T: int = 4000, E: int = 16, top_k: int = 1) -> torch.Tensor:
    case = make_case("moe", T=T, E=E, top_k=top_k, routing=routing)
    return chosen_experts(case, InputMaker(case))


@pytest.mark.parametrize("routing", ["uniform", "zipf", "all_to_one"])
def test_a_token_chooses_different_experts_that_exist(routing: str):
    experts = choices(routing, T=100, E=9, top_k=4)
    assert experts.dtype == torch.int32
    assert experts.shape == (100, 4)
    assert 0 <= int(experts.min()) <= int(experts.max()) < 9
    assert all(len(set(row)) == 4 for row in experts.tolist())


def test_the_load_of_the_experts_is_that_of_the_routing():
    uniform, zipf = (torch.bincount(choices(routing).flatten()) for routing in ("uniform", "zipf"))
    # 250 each, with a standard deviation of 15
    assert 175 < int(uniform.min()) <= int(uniform.max()) < 325
    first, second, *_, last = zipf.sort(descending=True).values.tolist()
    # the sum of 1 / rank over 16 experts is 3.38
    assert first == pytest.approx(4000 / 3.38, rel=0.1)
    assert second == pytest.approx(4000 / 3.38 / 2, rel=0.1)
    assert last < 150
    assert choices("all_to_one", top_k=2).unique().numel() == 2


def test_offsets_are_where_each_experts_rows_begin():
    experts = torch.tensor([[2, 0], [0, 3], [2, 0]], dtype=torch.int32)
    assert expert_offsets(experts, 5).tolist() == [0, 3, 3, 5, 6, 6]
