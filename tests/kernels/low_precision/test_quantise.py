import pytest
import torch

from roofwatch.kernels.building_blocks.errors import KernelError
from roofwatch.kernels.building_blocks.formats import (
    E4M3_MAX,
    pack_int4,
    pack_ternary,
    unpack_int4,
    unpack_ternary,
)
from roofwatch.kernels.low_precision.quantise import (
    quantise_fp8,
    quantise_fp8_reference,
    quantise_int8,
)


def test_halves_go_to_the_even_level(device: str):
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]], device=device)
    levels, scale = quantise_int8(x)
    assert scale.item() == 1.0
    assert levels.tolist() == [[127, 0, 2, 2, 0, -2, -2]]


def test_a_row_of_zeros_stays_zero(device: str):
    levels, scale = quantise_int8(torch.zeros(2, 70, device=device))
    assert not levels.any()
    assert (scale > 0).all()


def test_rows_without_columns_are_refused():
    with pytest.raises(KernelError, match=r"without a maximum.*at least one column"):
        quantise_int8(torch.empty(3, 0))


def every_number_and_what_lies_between() -> torch.Tensor:
    """One row that is quantised with scale 1: each number of e4m3, its neighbours in float32, and
    the ties.
    """
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    numbers = numbers[numbers.isfinite()].unique()
    ties = (numbers[1:] + numbers[:-1]) / 2
    exact = torch.cat([numbers, ties])
    above = torch.nextafter(exact, torch.full_like(exact, torch.inf))
    below = torch.nextafter(exact, torch.full_like(exact, -torch.inf))
    row = torch.cat([exact, above, below])
    return row[row.abs() <= E4M3_MAX][None, :]


def test_every_number_and_every_tie_is_rounded_as_torch_rounds_it(device: str):
    x = every_number_and_what_lies_between().to(device)
    out, scale = quantise_fp8(x)
    assert scale.item() == 1.0
    assert torch.equal(out.float(), x.to(torch.float8_e4m3fn).float())


def test_the_reference_rounds_as_torch_does():
    x = every_number_and_what_lies_between()
    out, _ = quantise_fp8_reference(x.double())
    assert torch.equal(out.float(), x.to(torch.float8_e4m3fn).float())


def test_no_row_becomes_infinite_or_not_a_number(device: str):
    x = torch.randn(4, 200, device=device)
    x[1] *= 1e30
    x[2] *= 1e-38
    x[3] = 0
    out, scale = quantise_fp8(x)
    assert out.float().isfinite().all()
    assert scale.isfinite().all()
    assert out.float()[:2].abs().amax(dim=1).tolist() == [E4M3_MAX, E4M3_MAX]
    assert not out.float()[3].any()


def test_four_bit_levels_come_back_from_their_words():
    levels = torch.randint(0, 16, (5, 64))
    packed = pack_int4(levels)
    assert packed.dtype == torch.int32
    assert packed.shape == (5, 8)
    assert torch.equal(unpack_int4(packed).long(), levels)


def test_a_word_holds_its_columns_in_the_order_of_awq():
    # nibbles from the lowest on: columns 0, 2, 4, 6, 1, 3, 5, 7
    assert pack_int4(torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7]])).item() == 0x75316420
    # a word whose highest bit is set is negative
    assert pack_int4(torch.tensor([[0, 0, 0, 0, 0, 0, 0, 15]])).item() == 0xF0000000 - 2**32


def test_ternary_levels_come_back_from_their_bytes():
    levels = torch.randint(-1, 2, (5, 384))
    packed = pack_ternary(levels)
    assert packed.dtype == torch.uint8
    assert packed.shape == (5, 96)
    assert torch.equal(unpack_ternary(packed).long(), levels)


def test_a_byte_holds_columns_that_lie_32_apart():
    levels = torch.zeros(1, 128, dtype=torch.int8)
    levels[0, [3, 35, 67, 99]] = torch.tensor([1, -1, 0, 1], dtype=torch.int8)
    # two bits each, from the lowest on: 01, 11, 00, 01
    assert pack_ternary(levels)[0, 3].item() == 0b01_00_11_01
