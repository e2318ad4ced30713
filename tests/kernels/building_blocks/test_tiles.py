import pytest
import torch
import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.tiles import by_chiplet, tile_of


@triton.jit
def _visits_kernel(visits_ptr, n_tiles_m, n_tiles_n, GROUP_M: tl.constexpr):
    program = tl.program_id(0)
    tile_m, tile_n = tile_of(program, n_tiles_m, n_tiles_n, GROUP_M)
    tl.store(visits_ptr + tile_m * n_tiles_n + tile_n, program)


@triton.jit
def _renumber_kernel(numbers_ptr, N_CHIPLETS: tl.constexpr):
    number = by_chiplet(tl.program_id(0), tl.num_programs(0), N_CHIPLETS)
    tl.store(numbers_ptr + tl.program_id(0), number)


@pytest.mark.parametrize("n_tiles_m", [1, 4, 7])  # the last group has all its rows, or fewer
def test_every_tile_has_one_program(device: str, n_tiles_m: int):
    visits = torch.full((n_tiles_m, 5), -1, device=device, dtype=torch.int32)
    _visits_kernel[(n_tiles_m * 5,)](visits, n_tiles_m, 5, GROUP_M=4)
    assert sorted(visits.flatten().tolist()) == list(range(n_tiles_m * 5))


def test_neighbouring_programs_share_a_column_of_tiles(device: str):
    visits = torch.full((4, 3), -1, device=device, dtype=torch.int32)
    _visits_kernel[(12,)](visits, 4, 3, GROUP_M=2)
    assert visits.tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]


@pytest.mark.parametrize("n_programs", [3, 8, 16, 21])
def test_programs_of_one_chiplet_become_neighbours(device: str, n_programs: int):
    numbers = torch.full((n_programs,), -1, device=device, dtype=torch.int32)
    _renumber_kernel[(n_programs,)](numbers, N_CHIPLETS=8)
    # the hardware deals programs 0, 8, 16 … to the first chiplet
    dealt = [program for chiplet in range(8) for program in range(chiplet, n_programs, 8)]
    assert numbers[torch.tensor(dealt, device=device)].tolist() == list(range(n_programs))
