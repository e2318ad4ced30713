"""Ceilings of a device as they are measured, the timer that measures them,
and those of datasheets.
"""

import pytest
import torch

import roofwatch.collector.device.ceilings as ceilings_of_device
from roofwatch.collector.compile.binary import instruction_bytes, sass
from roofwatch.collector.compile.launches import compiling_for
from roofwatch.collector.device.ceilings import (
    ceiling_method,
    copy_in_rounds,
    measure_ceilings,
    whole_blocks,
)
from roofwatch.collector.device.datasheets import (
    DATASHEETS,
    Datasheet,
    compare_with_datasheet,
    datasheet_ceilings,
)
from roofwatch.collector.device.roofline import TF32
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.timing_method import TimingMethod
from tests.builders import make_ceiling

GPU = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU here: its ceilings cannot be measured"
)


def test_the_ceilings_of_this_machine_are_measured_for_the_dtypes_of_the_suite() -> None:
    ceilings = list(measure_ceilings("cpu", ["int8", "int32"], Timer.PERF_COUNTER))
    kinds = [
        (ceiling.resource, ceiling.level, ceiling.dtype, ceiling.source) for ceiling in ceilings
    ]
    assert kinds == [
        ("memory", "dram", None, "measured"),
        ("memory", "cache", None, "measured"),
        ("compute", None, "float32", "measured"),  # wider dtypes are measured too
        ("compute", None, "float16", "measured"),
        ("compute", None, "bfloat16", "measured"),
        ("compute", None, "int8", "measured"),
    ]
    assert ceilings[1].up_to_bytes
    assert ceilings[1].up_to_bytes >= 2**18
    # any machine that runs torch moves more than 1 MB/s and computes more than 1 MFLOP/s
    assert all(1e6 < ceiling.per_s < 1e16 for ceiling in ceilings)


@pytest.mark.parametrize("is_allowed", [False, True])
def test_the_suites_choice_of_tf32_outlasts_the_ceilings(
    is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings_of_device, "_CPU_DTYPES", (TF32,))
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", is_allowed)

    ceilings = list(measure_ceilings("cpu", [], Timer.PERF_COUNTER))

    assert ceilings[-1].dtype == TF32
    assert torch.backends.cuda.matmul.allow_tf32 is is_allowed


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_the_l2_copy_bypasses_the_l1(arch: int) -> None:
    with compiling_for(f"sm_{arch}") as launches:
        source = torch.empty(whole_blocks(100_000))
        copy_in_rounds(source, torch.empty_like(source), rounds=4)
    [launch] = launches
    assert launch.compiled is not None, launch.message
    [code] = sass([instruction_bytes(launch.compiled.binary)], arch)
    loads = [line for line in code.splitlines() if " LDG." in line]
    assert loads
    assert all(".128" in line and ".STRONG.GPU" in line for line in loads), loads


@pytest.mark.parametrize(
    ("device", "timer", "cache"),
    [
        ("cpu", Timer.PERF_COUNTER, CacheState.HOT),
        ("cuda", Timer.CUPTI, CacheState.COLD),
        ("cuda", Timer.CUDA_GRAPH, CacheState.HOT),
    ],
)
def test_ceilings_use_the_timer_of_the_run_without_rotation(
    device: str, timer: Timer, cache: CacheState
) -> None:
    assert ceiling_method(device, timer) == TimingMethod(timer, cache)


@pytest.mark.gpu
@GPU
def test_the_rounds_copy_everything() -> None:
    source = torch.randn(whole_blocks(300_000), device="cuda")
    target = torch.full_like(source, float("nan"))
    copy_in_rounds(source, target, rounds=3)
    assert torch.equal(source, target)


@pytest.mark.gpu
@GPU
def test_the_ceilings_of_a_gpu_are_measured_beside_the_datasheets() -> None:
    dtypes = ["float32", "bfloat16", "float8_e4m3fn", "int8"]
    ceilings = list(measure_ceilings("cuda", dtypes, Timer.CUDA_EVENT))
    measured = {
        each.level or each.dtype: each.per_s for each in ceilings if each.source == "measured"
    }
    assert {"dram", "cache", "float32", "bfloat16"} <= measured.keys()
    assert measured["cache"] > measured["dram"]
    assert measured["bfloat16"] > measured["float32"]
    published = {
        each.level or each.dtype: each.per_s for each in ceilings if each.source == "datasheet"
    }
    for kind in measured.keys() & published.keys():
        # below a third of what the vendor says, something else than the device was measured
        assert published[kind] / 3 < measured[kind], kind
    assert torch.backends.cuda.matmul.allow_tf32 is False


# --- datasheets


H200 = "NVIDIA H200"


@pytest.mark.parametrize("sheet", DATASHEETS, ids=lambda sheet: sheet.names[0])
def test_all_peaks_imply_plausible_clocks(sheet: Datasheet) -> None:
    """A peak that was copied wrongly, or counts the zeros of a sparse operand, needs a clock far
    from the others.
    """
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
def test_known_devices_have_their_vendors_figures(
    name: str, terabytes_per_s: float, half_teraflops: float
) -> None:
    memory, half = datasheet_ceilings(name, ["bfloat16"])
    assert [memory.per_s, half.per_s] == pytest.approx(
        [terabytes_per_s * 1e12, half_teraflops * 1e12]
    )
    assert {memory.source, half.source} == {"datasheet"}
    assert half.dtype == "bfloat16"


@pytest.mark.parametrize(
    "name", ["NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "Example CPU", ""]
)
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
    published = make_ceiling(
        resource="compute", level=None, dtype="bfloat16", per_s=1.0, source="datasheet"
    )
    cache = make_ceiling(resource="memory", level="cache", per_s=9e12)

    memory, found = compare_with_datasheet(
        [make_ceiling(per_s=4.0e12), published, half, cache], H200, sm_clock_mhz=915
    )

    assert [memory.share, memory.at_clock_per_s] == pytest.approx([4.0 / 4.8, 4.8e12])
    # stated at 1830 MHz
    assert [found.published_per_s, found.at_clock_per_s] == pytest.approx(
        [989.5e12, 989.5e12 / 2], rel=0.001
    )
