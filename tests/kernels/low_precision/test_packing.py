import torch

from roofwatch.kernels.low_precision.packing import pack_int4, pack_ternary, unpack_int4, unpack_ternary


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
