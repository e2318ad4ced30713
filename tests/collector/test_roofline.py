import pytest

from collector.ceilings import measure_ceilings
from collector.machine import Ceiling
from collector.roofline import position
from tests.builders import make_case, make_ceiling

DRAM = make_ceiling(resource="memory", level="dram", per_s=10e9)
CACHE = make_ceiling(resource="memory", level="cache", per_s=100e9, up_to_bytes=32 * 2**20)
FLOAT32 = make_ceiling(resource="compute", level=None, dtype="float32", per_s=200e9)
BFLOAT16 = make_ceiling(resource="compute", level=None, dtype="bfloat16", per_s=1000e9)
ALL = [DRAM, CACHE, FLOAT32, BFLOAT16]

LARGE = float(64 * 2**20)


def test_a_case_with_little_arithmetic_is_bound_by_memory() -> None:
    # 64 MiB at 10 GB/s take 6.71 ms; 1 MFLOP at 200 GFLOP/s take 5 µs
    place = position(make_case(flop_count=1e6, memory_bytes=LARGE), 13.421772e6, ALL)
    assert place is not None
    assert place.bound == "memory"
    assert place.least_ns == pytest.approx(6.710886e6)
    assert place.utilisation == pytest.approx(0.5)


def test_a_case_with_much_arithmetic_is_bound_by_compute() -> None:
    # 1 GFLOP at 200 GFLOP/s take 5 ms
    place = position(make_case(flop_count=1e9, memory_bytes=1e6), 10e6, ALL)
    assert place is not None
    assert place.bound == "compute"
    assert place.least_ns == pytest.approx(5e6)
    assert place.utilisation == pytest.approx(0.5)


def test_a_working_set_that_caches_may_hold_is_held_against_the_cache() -> None:
    place = position(make_case(flop_count=0.0, memory_bytes=1e6), 100e3, ALL)
    assert place is not None
    assert place.least_ns == pytest.approx(1e6 / 100e9 * 1e9)


def test_the_roof_is_that_of_the_dtype_and_never_below_float32s() -> None:
    half = make_case("matmul/M=8/bfloat16/fwd", flop_count=1e9, memory_bytes=0.0)
    slow_half: Ceiling = BFLOAT16.model_copy(update={"per_s": 1e9})
    fast, slow = position(half, 1e6, ALL), position(half, 1e6, [FLOAT32, slow_half])
    assert fast is not None
    assert slow is not None
    assert fast.least_ns == pytest.approx(1e6)
    assert slow.least_ns == pytest.approx(5e6)


def test_without_a_ceiling_there_is_no_position() -> None:
    assert position(make_case(), 1e6, []) is None


def test_the_ceilings_of_this_machine_are_measured_per_dtype() -> None:
    ceilings = measure_ceilings("cpu", ["bfloat16", "int8"])
    kinds = [(ceiling.resource, ceiling.level, ceiling.dtype) for ceiling in ceilings]
    assert kinds == [
        ("memory", "dram", None),
        ("memory", "cache", None),
        ("compute", None, "float32"),
        ("compute", None, "bfloat16"),
    ]
    assert ceilings[1].up_to_bytes
    assert ceilings[1].up_to_bytes >= 2**18
    # any machine that runs torch moves more than 100 MB/s and computes more than 100 MFLOP/s
    assert all(1e8 < ceiling.per_s < 1e16 for ceiling in ceilings)
