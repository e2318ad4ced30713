"""Ceilings of a device as they are measured, and the timer that measures them."""

import pytest
import torch

from roofwatch.collector.compile.binary import instruction_bytes, sass
from roofwatch.collector.compile.launches import compiling_for
from roofwatch.collector.device.ceilings import ceiling_method, copy_in_rounds, measure_ceilings, whole_blocks
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.method import TimingMethod

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: its ceilings cannot be measured")


def test_the_ceilings_of_this_machine_are_measured_for_the_dtypes_of_the_suite() -> None:
    ceilings = list(measure_ceilings("cpu", ["int8", "int32"], Timer.PERF_COUNTER))
    kinds = [(ceiling.resource, ceiling.level, ceiling.dtype, ceiling.source) for ceiling in ceilings]
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
def test_ceilings_use_the_timer_of_the_run_without_rotation(device: str, timer: Timer, cache: CacheState) -> None:
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
    measured = {each.level or each.dtype: each.per_s for each in ceilings if each.source == "measured"}
    assert {"dram", "cache", "float32", "bfloat16"} <= measured.keys()
    assert measured["cache"] > measured["dram"]
    assert measured["bfloat16"] > measured["float32"]
    published = {each.level or each.dtype: each.per_s for each in ceilings if each.source == "datasheet"}
    for kind in measured.keys() & published.keys():
        # below a third of what the vendor says, something else than the device was measured
        assert published[kind] / 3 < measured[kind], kind
    assert torch.backends.cuda.matmul.allow_tf32 is False
