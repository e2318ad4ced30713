"""Datasheets of devices, and measured ceilings compared with them."""

import pytest

from roofwatch.collector.device.datasheets import DATASHEETS, Datasheet, compare_with_datasheet, datasheet_ceilings
from tests.builders import make_ceiling

H200 = "NVIDIA H200"


@pytest.mark.parametrize("sheet", DATASHEETS, ids=lambda sheet: sheet.names[0])
def test_all_peaks_imply_plausible_clocks(sheet: Datasheet) -> None:
    """A peak that was copied wrongly, or counts the zeros of a sparse operand, needs a clock far from the others."""
    clocks = {dtype: sheet.clock_mhz(dtype) for dtype in sheet.teraflops}
    arithmetic = [clock for dtype, clock in clocks.items() if dtype != "float32"]
    assert max(arithmetic) / min(arithmetic) < 1.04, clocks
    # the vector units may be stated at a higher clock than the tensor cores
    assert 0.97 < clocks["float32"] / clocks["float16"] < 1.1, clocks
    assert 1_400 < min(clocks.values()) < 2_600


@pytest.mark.parametrize(
    ("name", "terabytes_per_s", "half_teraflops"),
    [(H200, 4.8, 989.5), ("AMD Instinct MI355X", 8.0, 2516.6)],
)
def test_known_devices_have_their_vendors_figures(name: str, terabytes_per_s: float, half_teraflops: float) -> None:
    memory, half = datasheet_ceilings(name, ["bfloat16"])
    assert [memory.per_s, half.per_s] == pytest.approx([terabytes_per_s * 1e12, half_teraflops * 1e12])
    assert {memory.source, half.source} == {"datasheet"}
    assert half.dtype == "bfloat16"


@pytest.mark.parametrize("name", ["NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "Example CPU", ""])
def test_unlisted_devices_have_no_datasheet(name: str) -> None:
    assert datasheet_ceilings(name, ["bfloat16"]) == []


@pytest.mark.parametrize(
    ("per_s", "sm_clock_mhz", "is_suspicious"),
    [
        (989.5e12, None, False),
        (1030e12, None, False),  # 4 % above
        (1060e12, None, True),  # 7 % above
        (1060e12, 1_980, False),  # at 8 % more than the stated clock
        (1060e12, 1_200, True),  # a lower clock explains nothing
    ],
)
def test_a_measured_ceiling_above_the_datasheet_is_suspicious_unless_the_clock_explains_it(
    per_s: float, sm_clock_mhz: float | None, is_suspicious: bool
) -> None:
    measured = make_ceiling(resource="compute", level=None, dtype="bfloat16", per_s=per_s)
    [found] = compare_with_datasheet([measured], H200, sm_clock_mhz=sm_clock_mhz)
    assert found.is_suspicious is is_suspicious


def test_a_ceiling_is_compared_at_the_clock_of_the_run() -> None:
    half = make_ceiling(resource="compute", level=None, dtype="bfloat16", per_s=600e12)
    published = make_ceiling(resource="compute", level=None, dtype="bfloat16", per_s=1.0, source="datasheet")
    cache = make_ceiling(resource="memory", level="cache", per_s=9e12)

    memory, found = compare_with_datasheet([make_ceiling(per_s=4.0e12), published, half, cache], H200, sm_clock_mhz=915)

    assert [memory.share, memory.at_clock_per_s] == pytest.approx([4.0 / 4.8, 4.8e12])
    # stated at 1830 MHz
    assert [found.published_per_s, found.at_clock_per_s] == pytest.approx([989.5e12, 989.5e12 / 2], rel=0.001)
