"""Instructions counted from lines as the disassemblers write them, and occupancy as the vendors
print it.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.compile.instructions import count_amdgcn, count_sass
from roofwatch.collector.compile.targets import DEFAULT_TARGETS, LIMITS, theoretical_occupancy


def sass(*instructions: str) -> dict[str, int]:
    lines = (
        f"        /*{16 * step:04x}*/                   {text} ;"
        for step, text in enumerate(instructions)
    )
    counts = count_sass("_kernel:\n.text._kernel:\n.L_x_1:\n" + "\n".join(lines) + "\n")
    assert counts.pop("total") == len([text for text in instructions if text != "NOP"])
    return counts


def amdgcn(*instructions: str) -> dict[str, int]:
    text = "kernel:\n\t.loc 1 2 3 ; kernel.py:2:3\n; %bb.0:\n" + "".join(
        f"\t{line}\n" for line in instructions
    )
    counts = count_amdgcn(text + "\t.vgpr_count: 3\n")
    assert counts.pop("total") == len(instructions)
    return counts


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("LDG.E R2, desc[UR4][R2.64]", "global_load.32"),
        ("@!P0 LDG.E.128.CONSTANT R4, desc[UR8][R2.64]", "global_load.128"),
        ("LDG.E.ENL2.256 R12, R8, desc[UR8][R2.64]", "global_load.256"),
        ("STG.E.64 desc[UR4][R2.64], R4", "global_store.64"),
        ("LDGSTS.E.BYPASS.LTC128B.128 [R5], desc[UR4][R2.64]", "async_copy.128"),
        ("UTMALDG.2D [UR8], [UR6], desc[UR10]", "tma"),
        ("HMMA.16816.F32.BF16 R4, R8, R10, R4", "tensor.HMMA"),
        ("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24", "tensor.HGMMA"),
        ("UTCHMMA gdesc[UR6], gdesc[UR8], tmem[UR4]", "tensor.UTCHMMA"),
        ("IMMA.16832.S8.S8 R4, R8.ROW, R10.COL, R4", "tensor.IMMA"),
        ("LDL.64 R2, [R1]", "local_load"),
        ("LDSM.16.MT88.4 R4, [R2]", "shared_load"),
        ("BAR.SYNC.DEFER_BLOCKING 0x0", "barrier"),
        ("MUFU.EX2 R2, R3", "special_function"),
        ("F2FP.BF16.F32.PACK_AB R2, R3, R4", "conversion"),
        ("ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R2.64], R5", "atomic"),
    ],
)
def test_nvidia_instructions_have_one_kind(instruction: str, kind: str) -> None:
    assert sass(instruction) == {kind: 1}


@pytest.mark.parametrize(
    "instruction",
    ["FFMA R2, R3, R4, R5", "LDC.64 R2, c[0x0][0x210]", "IMAD.WIDE R2, R3, R4, R5", "NOP"],
)
def test_other_instructions_count_only_in_the_total(instruction: str) -> None:
    assert sass(instruction) == {}


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("global_load_dwordx4 v[2:5], v1, s[0:1]", "global_load.128"),
        ("buffer_load_dwordx4 v1, s[0:3], 0 offen lds", "async_copy.128"),
        ("global_load_lds_dwordx4 v[2:3], off", "async_copy.128"),
        ("buffer_store_dwordx2 v[2:3], v1, s[0:3], 0 offen", "global_store.64"),
        ("buffer_store_short_d16_hi v2, v1, s[0:3], 0 offen", "global_store.16"),
        ("v_mfma_f32_32x32x8_bf16_1k a[0:15], v[2:3], v[4:5], a[0:15]", "tensor.mfma"),
        ("scratch_store_dword off, v2, s32", "local_store"),
        ("ds_read_b128 v[2:5], v1", "shared_load"),
        ("s_barrier", "barrier"),
        ("v_exp_f32_e32 v1, v2", "special_function"),
        ("v_cvt_f32_u32_e32 v1, v2", "conversion"),
        ("global_atomic_add_f32 v1, v2, s[0:1]", "atomic"),
    ],
)
def test_amd_instructions_have_one_kind(instruction: str, kind: str) -> None:
    assert amdgcn(instruction) == {kind: 1}


# --- occupancy


@pytest.mark.parametrize(
    ("threads", "registers", "expected"),
    # CUDA C++ Best Practices Guide, "Calculating Occupancy": 65536 registers, 64 warps
    [(128, 37, 0.75), (320, 37, 0.625), (1024, 32, 1.0), (1024, 64, 0.5)],
)
def test_the_examples_of_nvidias_guide(threads: int, registers: int, expected: float) -> None:
    share, limited_by = theoretical_occupancy(
        LIMITS["sm_80"], threads=threads, registers=registers, shared_bytes=0
    )
    assert share == expected
    assert ("registers" in limited_by) is (registers > 32 or threads == 1024)


@pytest.mark.parametrize(
    ("registers", "wavefronts_per_simd"),
    # AMD's table for CDNA 2, whose register file CDNA 3 and 4 have too: Register pressure in AMD
    # CDNA 2 GPUs
    [(64, 8), (72, 7), (80, 6), (96, 5), (128, 4), (168, 3), (256, 2), (512, 1)],
)
def test_amds_table_of_wavefronts_by_registers(registers: int, wavefronts_per_simd: int) -> None:
    share, _ = theoretical_occupancy(
        LIMITS["gfx942"], threads=256, registers=registers, shared_bytes=0
    )
    assert share * 8 == wavefronts_per_simd


@settings(deadline=None)
@given(
    target=st.sampled_from(DEFAULT_TARGETS),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 255),
    shared_bytes=st.integers(0, 64 * 1024),
)
def test_more_of_anything_never_raises_occupancy(
    target: str, threads: int, registers: int, shared_bytes: int
) -> None:
    limits = LIMITS[target]
    share, limited_by = theoretical_occupancy(
        limits, threads=threads, registers=registers, shared_bytes=shared_bytes
    )
    assert 0 <= share <= 1
    assert limited_by
    for more in ((registers + 1, shared_bytes), (registers, shared_bytes + 1)):
        assert (
            theoretical_occupancy(limits, threads=threads, registers=more[0], shared_bytes=more[1])[
                0
            ]
            <= share
        )
