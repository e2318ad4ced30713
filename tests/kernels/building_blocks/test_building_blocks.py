import pytest
import torch
import triton
import triton.language as tl

from roofwatch.kernels.building_blocks.formats import (
    as_kernel_operand,
    from_e4m3,
    halved_in_e4m3fnuz,
    has_e4m3,
)
from roofwatch.kernels.building_blocks.rows import MAX_COLS_IN_REGISTERS, piece_of_row, row_config
from roofwatch.kernels.building_blocks.target import DeviceTarget
from roofwatch.kernels.building_blocks.tiles import by_chiplet, tile_of

EVERY_BYTE = torch.arange(256, dtype=torch.uint8)
IS_NUMBER = EVERY_BYTE % 128 != 127


@triton.jit
def _decode_kernel(code_ptr, out_ptr, halved_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    code = tl.load(code_ptr + offs)
    tl.store(out_ptr + offs, from_e4m3(code).to(tl.float32))
    tl.store(halved_ptr + offs, halved_in_e4m3fnuz(code))


def test_every_byte_is_read_as_the_number_that_torch_reads(device: str):
    out, halved = (
        torch.empty(256, device=device),
        torch.empty(256, dtype=torch.uint8, device=device),
    )
    _decode_kernel[(1,)](EVERY_BYTE.to(device), out, halved, BLOCK=256)
    numbers = EVERY_BYTE.view(torch.float8_e4m3fn).float()[IS_NUMBER]
    assert torch.equal(out.cpu()[IS_NUMBER], numbers)
    assert torch.equal(2 * halved.cpu().view(torch.float8_e4m3fnuz).float()[IS_NUMBER], numbers)


def test_targets_without_e4m3_are_given_its_bytes(monkeypatch):
    tensor = torch.ones(3).to(torch.float8_e4m3fn)
    for backend, arch, has_it in [
        ("cuda", "sm_80", False),
        ("cuda", "sm_89", True),
        ("cuda", "sm_90", True),
        ("cuda", "sm_120", True),
        ("hip", "gfx942", False),
        ("hip", "gfx950", True),
        ("interpreter", "", False),
    ]:
        target = DeviceTarget(backend, arch)
        assert has_e4m3(target) is has_it
        monkeypatch.setattr(
            "roofwatch.kernels.building_blocks.formats.current_target", lambda target=target: target
        )
        assert as_kernel_operand(tensor).dtype == (torch.float8_e4m3fn if has_it else torch.uint8)


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
    [
        (1, 1, 1),
        (1000, 1024, 2),
        (4096, 4096, 8),
        (MAX_COLS_IN_REGISTERS, 16_384, 16),
        (16_385, 4096, 8),
    ],
)
def test_a_row_is_held_whole_until_it_is_too_long_and_then_read_in_tiles(
    n_cols: int, block: int, num_warps: int
):
    assert row_config(n_cols) == {"BLOCK": block, "num_warps": num_warps}


@triton.jit
def _tile_visits_kernel(visits_ptr, n_tiles_m, n_tiles_n, GROUP_M: tl.constexpr):
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
    _tile_visits_kernel[(n_tiles_m * 5,)](visits, n_tiles_m, 5, GROUP_M=4)
    assert sorted(visits.flatten().tolist()) == list(range(n_tiles_m * 5))


def test_neighbouring_programs_share_a_column_of_tiles(device: str):
    visits = torch.full((4, 3), -1, device=device, dtype=torch.int32)
    _tile_visits_kernel[(12,)](visits, 4, 3, GROUP_M=2)
    assert visits.tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]


@pytest.mark.parametrize("n_programs", [3, 8, 16, 21])
def test_programs_of_one_chiplet_become_neighbours(device: str, n_programs: int):
    numbers = torch.full((n_programs,), -1, device=device, dtype=torch.int32)
    _renumber_kernel[(n_programs,)](numbers, N_CHIPLETS=8)
    # the hardware deals programs 0, 8, 16 … to the first chiplet
    dealt = [program for chiplet in range(8) for program in range(chiplet, n_programs, 8)]
    assert numbers[torch.tensor(dealt, device=device)].tolist() == list(range(n_programs))


@pytest.mark.parametrize(
    ("target", "has_tma"),
    [
        (DeviceTarget("cuda", "sm_80"), False),
        (DeviceTarget("cuda", "sm_90"), True),
        (DeviceTarget("cuda", "sm_120"), not triton.__version__.startswith("3.6.")),
        (DeviceTarget("hip", "gfx942"), False),
        (DeviceTarget("interpreter", ""), True),
    ],
)
def test_tiles_are_copied_by_an_engine_from_hopper_on_and_in_the_interpreter(
    target: DeviceTarget, has_tma: bool
):
    assert target.has_tma is has_tma


def test_the_amd_targets_have_chiplets():
    assert [
        DeviceTarget("hip", arch).chiplet_count for arch in ("gfx942", "gfx950", "gfx1100")
    ] == [
        8,
        8,
        1,
    ]
    assert DeviceTarget("cuda", "sm_100").chiplet_count == 1
