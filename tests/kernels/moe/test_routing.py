import pytest
import torch

from roofwatch import Case, InputMaker
from roofwatch.kernels.moe.moe_permute import ROUTINGS, chosen_experts, expert_offsets
from tests.kernels.builders import make_case


def choices(routing: str, T: int = 4000, E: int = 16, top_k: int = 1) -> tuple[Case, torch.Tensor]:
    case = make_case("moe", T=T, E=E, top_k=top_k, routing=routing)
    return case, chosen_experts(case, InputMaker(case))


@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_token_chooses_different_experts_that_exist(routing: str):
    _, experts = choices(routing, T=100, E=9, top_k=4)
    assert experts.dtype == torch.int32
    assert experts.shape == (100, 4)
    assert 0 <= int(experts.min()) <= int(experts.max()) < 9
    assert all(len(set(row)) == 4 for row in experts.tolist())


def test_uniform_routing_gives_every_expert_about_as_many_tokens():
    _, experts = choices("uniform")
    counts = torch.bincount(experts.flatten())
    # 250 each, with a standard deviation of 15
    assert 175 < int(counts.min()) <= int(counts.max()) < 325


def test_zipf_routing_gives_the_second_expert_half_the_tokens_of_the_first():
    _, experts = choices("zipf")
    first, second, *_, last = torch.bincount(experts.flatten()).sort(descending=True).values.tolist()
    # the sum of 1 / rank over 16 experts is 3.38
    assert first == pytest.approx(4000 / 3.38, rel=0.1)
    assert second == pytest.approx(4000 / 3.38 / 2, rel=0.1)
    assert last < 150


def test_all_to_one_routing_sends_every_token_to_the_same_experts():
    _, experts = choices("all_to_one", top_k=2)
    assert experts.unique().numel() == 2


def test_offsets_are_where_each_experts_rows_begin():
    experts = torch.tensor([[2, 0], [0, 3], [2, 0]], dtype=torch.int32)
    assert expert_offsets(experts, 5).tolist() == [0, 3, 3, 5, 6, 6]
