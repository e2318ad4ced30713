import pytest
import torch
import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS, piece_of_row, row_config


@triton.jit
def _visits_kernel(visits_ptr, n_cols, BLOCK: tl.constexpr):
    row, offs, mask = piece_of_row(n_cols, BLOCK)
    tl.store(visits_ptr + row * n_cols + offs, tl.program_id(0), mask=mask)


def test_the_pieces_of_a_row_are_neighbours_and_leave_nothing_out(device: str):
    visits = torch.full((2, 10), -1, device=device, dtype=torch.int32)
    _visits_kernel[(6,)](visits, 10, BLOCK=4)
    assert visits.tolist() == [[0] * 4 + [1] * 4 + [2] * 2, [3] * 4 + [4] * 4 + [5] * 2]


@pytest.mark.parametrize(
    ("n_cols", "block", "num_warps"),
    [(1, 1, 1), (1000, 1024, 2), (4096, 4096, 8), (MAX_COLS_IN_REGISTERS, 16_384, 16), (16_385, 4096, 8)],
)
def test_a_row_is_held_whole_until_it_is_too_long_and_then_read_in_tiles(n_cols: int, block: int, num_warps: int):
    assert row_config(n_cols) == {"BLOCK": block, "num_warps": num_warps}
