"""Loops are found in listings as nvdisasm and AMD's compiler write them."""

import pytest

from roofwatch.collector.compile.cycles.control_flow import Loop, control_flow
from roofwatch.collector.compile.cycles.costs import ISSUE
from roofwatch.collector.compile.cycles.parse import parse_amdgcn, parse_sass
from roofwatch.collector.compile.cycles.rates import ISSUE_EFFICIENCY, RATES
from roofwatch.collector.compile.cycles.regions import regions_of


def listing(*instructions: str) -> str:
    """Number instructions as nvdisasm does; `@2` in an instruction is the address of the third."""
    lines: list[str] = []
    for step, text in enumerate(instructions):
        head, found, index = text.partition(" @")
        target = f" 0x{16 * int(index):x}" if found else ""
        lines.append(f"        /*{16 * step:04x}*/                   {head}{target} ;")
    return "\n".join(lines)


def spans(loops: list[Loop], text: str) -> list[tuple[int, int]]:
    flow = control_flow(parse_sass(text))
    return [
        (flow.blocks[loop.header].start, max(flow.blocks[block].end for block in loop.blocks))
        for loop in loops
    ]


def test_branches_back_make_nested_loops() -> None:
    text = listing(
        "MOV R1, R2",
        "FADD R1, R1, R2",
        "FMUL R1, R1, R2",
        "@P0 BRA @2",
        "@P1 BRA @1",
        "EXIT",
    )

    flow = control_flow(parse_sass(text))

    assert spans(flow.loops, text) == [(1, 5)]
    assert spans(flow.loops[0].children, text) == [(2, 4)]


def test_a_wait_behind_the_code_that_jumps_back_is_no_loop() -> None:
    """Polling of a barrier is placed at the end, and jumps into the middle of a loop."""
    text = listing(
        "FADD R1, R1, R2",
        "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R4",
        "@!P0 BRA @6",
        "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR24], R24",
        "@P1 BRA @0",
        "EXIT",
        "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R4",
        "@!P0 BRA @6",
        "BRA @3",
    )

    root = regions_of(parse_sass(text), RATES["sm_90"])

    (loop,) = root.loops
    assert loop.loops == []
    # one of four warps of a group counts a quarter of the product
    assert loop.work.tensor_flop == 2 * 64 * 128 * 16 / 4


def test_a_block_behind_a_condition_counts_half() -> None:
    text = listing("@P0 BRA @3", "MUFU.EX2 R1, R2", "MUFU.EX2 R1, R2", "EXIT")

    root = regions_of(parse_sass(text), RATES["sm_90"])

    assert root.work.clocks["special functions"] == 32 / 16
    assert root.guarded.clocks["special functions"] == 2 * 32 / 16


def test_every_instruction_but_padding_takes_an_issue_slot() -> None:
    rates = RATES["sm_90"]
    text = listing("FADD R1, R1, R2", "NOP", "FADD R1, R1, R2", "EXIT")

    root = regions_of(parse_sass(text), rates)

    assert root.work.clocks[ISSUE] == pytest.approx(3 / (rates.issue * ISSUE_EFFICIENCY))


def test_a_guard_of_a_loop_enters_it() -> None:
    text = listing("@P0 BRA @4", "LDG.E.128 R4, [R2]", "FADD R1, R1, R2", "@P1 BRA @1", "EXIT")

    (loop,) = regions_of(parse_sass(text), RATES["sm_90"]).loops

    assert loop.work.access_bytes == 16


def test_amd_code_of_one_function_has_its_loops() -> None:
    assembly = """
other:
\ts_branch other
.Lfunc_end0:
kernel:
\tv_mov_b32_e32 v0, 0
.LBB1_1:                                ; =>This Inner Loop Header: Depth=1
\tbuffer_load_dwordx4 v[18:21], v18, s[36:39], 0 offen
\tv_mfma_f32_32x32x8_bf16 v[0:15], v[18:19], v[20:21], v[0:15]
\tscratch_load_dwordx2 v[0:1], off, s0
\ts_cbranch_scc1 .LBB1_1
\ts_endpgm
.Lfunc_end1:
"""
    root = regions_of(parse_amdgcn(assembly, "kernel"), RATES["gfx942"])

    (loop,) = root.loops
    assert loop.work.access_bytes == 16
    assert loop.work.local_bytes == 8
    assert loop.work.tensor_flop == 2 * 32 * 32 * 8
    assert root.work.instructions == 1


def test_a_call_that_leaves_a_loop_ends_it() -> None:
    """ptxas writes the way out of some loops as a call that never returns."""
    text = listing(
        "LDG.E.128 R4, [R2]", "@P2 CALL.REL.NOINC @3", "BRA @0", "FADD R1, R1, R2", "EXIT"
    )

    root = regions_of(parse_sass(text), RATES["sm_80"])

    assert [loop.work.access_bytes for loop in root.loops] == [16]
    assert root.work.instructions == 2


def test_specialised_warps_have_loops_side_by_side() -> None:
    text = listing(
        "BAR.SYNC 0x1",
        "BRX R2 -0x160",
        "UTMALDG.2D [UR8], [UR6]",
        "@P0 BRA @2",
        "BRA @0",
        "UTCHMMA gdesc[UR6], gdesc[UR8], tmem[UR4]",
        "@P0 BRA @5",
        "BRA @0",
    )

    root = regions_of(parse_sass(text), RATES["sm_100"])

    assert root.is_specialised
    assert [loop.work.async_copies > 0 for loop in root.loops] == [True, False]
    assert [loop.work.has_unknown_products for loop in root.loops] == [False, True]
