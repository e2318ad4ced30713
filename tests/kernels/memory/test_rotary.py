import math

import pytest
import torch

from roofwatch.kernels import KernelError
from roofwatch.kernels.memory.rotary import rotary


def make_operands(B: int, T: int, H: int, H_KV: int, D: int, device: str = "cpu") -> dict[str, torch.Tensor]:
    angles = torch.randn(T, D // 2, device=device)
    return {
        "q": torch.randn(B, T, H, D, device=device),
        "k": torch.randn(B, T, H_KV, D, device=device),
        "cos": angles.cos(),
        "sin": angles.sin(),
    }


def test_a_quarter_turn_swaps_the_halves_of_a_head(device: str):
    operands = make_operands(1, 1, 1, 1, 6, device)
    operands["cos"], operands["sin"] = torch.zeros(1, 3, device=device), torch.ones(1, 3, device=device)
    q_out, _ = rotary(**operands)
    first, second = operands["q"].chunk(2, dim=-1)
    assert torch.equal(q_out, torch.cat([-second, first], dim=-1))


def test_slices_of_a_joint_projection_are_read_where_they_lie(device: str):
    operands = make_operands(2, 5, 3, 2, 8, device)
    joint = torch.cat([operands["q"].flatten(2), operands["k"].flatten(2)], dim=-1)
    q, k = (part.unflatten(-1, (-1, 8)) for part in joint.split([24, 16], dim=-1))
    assert not q.is_contiguous()
    for found, expected in zip(rotary(q, k, operands["cos"], operands["sin"]), rotary(**operands), strict=True):
        assert torch.equal(found, expected)
        assert found.is_contiguous()


def test_angles_in_half_precision_are_taken_as_they_are(device: str):
    operands = make_operands(1, 5, 3, 2, 8, device)
    half = {name: operands[name].half() for name in ("cos", "sin")}
    wide = {name: operands[name].half().float() for name in ("cos", "sin")}
    assert torch.equal(rotary(operands["q"], operands["k"], **half)[0], rotary(operands["q"], operands["k"], **wide)[0])


def test_turning_there_and_back_gives_what_was(device: str):
    operands = make_operands(2, 5, 40, 2, 8, device)
    there = rotary(**operands)
    back = rotary(*there, operands["cos"], -operands["sin"])
    torch.testing.assert_close(back, (operands["q"], operands["k"]), atol=1e-5, rtol=1e-5)
    lengths = [math.sqrt(float(x.square().sum())) for x in (there[0], operands["q"])]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": torch.randn(1, 5, 0, 8)}, "q has no heads; pass at least one"),
        ({"q": torch.randn(1, 5, 3, 7)}, "the head dim must be even, got 7; pad"),
        ({"k": torch.randn(1, 4, 2, 8)}, "batch, tokens and head dim must be equal"),
        ({"cos": torch.randn(5, 8)}, "tokens and pairs must be equal"),
        ({"sin": torch.randn(5, 6)[:, :4]}, r"sin must be contiguous.*sin\.contiguous\(\)"),
        ({"cos": torch.randn(5, 4, requires_grad=True)}, r"cos requires a gradient.*cos\.detach\(\)"),
    ],
)
def test_operands_that_would_be_read_wrongly_are_refused_with_the_way_out(
    changed: dict[str, torch.Tensor], message: str
):
    with pytest.raises(KernelError, match=message):
        rotary(**{**make_operands(1, 5, 3, 2, 8), **changed})
