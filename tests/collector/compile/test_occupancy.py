"""Occupancy against examples that the vendors print."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.compile.targets import DEFAULT_TARGETS, LIMITS, theoretical_occupancy


@pytest.mark.parametrize(
    ("threads", "registers", "expected"),
    # CUDA C++ Best Practices Guide, "Calculating Occupancy": 65536 registers, 64 warps
    [(128, 37, 0.75), (320, 37, 0.625), (1024, 32, 1.0), (1024, 64, 0.5)],
)
def test_the_examples_of_nvidias_guide(threads: int, registers: int, expected: float) -> None:
    share, limited_by = theoretical_occupancy(LIMITS["sm_80"], threads=threads, registers=registers, shared_bytes=0)
    assert share == expected
    assert ("registers" in limited_by) is (registers > 32 or threads == 1024)


@pytest.mark.parametrize(
    ("registers", "wavefronts_per_simd"),
    # AMD's table for CDNA 2, whose register file CDNA 3 and 4 have too: Register pressure in AMD CDNA 2 GPUs
    [(64, 8), (72, 7), (80, 6), (96, 5), (128, 4), (168, 3), (256, 2), (512, 1)],
)
def test_amds_table_of_wavefronts_by_registers(registers: int, wavefronts_per_simd: int) -> None:
    share, _ = theoretical_occupancy(LIMITS["gfx942"], threads=256, registers=registers, shared_bytes=0)
    assert share * 8 == wavefronts_per_simd


@settings(deadline=None)
@given(
    target=st.sampled_from(DEFAULT_TARGETS),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 255),
    shared_bytes=st.integers(0, 64 * 1024),
)
def test_more_of_anything_never_raises_occupancy(target: str, threads: int, registers: int, shared_bytes: int) -> None:
    limits = LIMITS[target]
    share, limited_by = theoretical_occupancy(limits, threads=threads, registers=registers, shared_bytes=shared_bytes)
    assert 0 <= share <= 1
    assert limited_by
    for more in ((registers + 1, shared_bytes), (registers, shared_bytes + 1)):
        assert theoretical_occupancy(limits, threads=threads, registers=more[0], shared_bytes=more[1])[0] <= share
