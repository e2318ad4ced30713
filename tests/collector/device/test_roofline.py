import pytest

from roofwatch.collector.device.roofline import binding_level, level_positions, roof_of
from roofwatch.model.machine import Ceiling
from roofwatch.model.measurement import CacheState
from tests.builders import make_case, make_ceiling


def compute(dtype: str, gigaflops: float) -> Ceiling:
    return make_ceiling(resource="compute", level=None, dtype=dtype, per_s=gigaflops * 1e9)


DRAM = make_ceiling(resource="memory", level="dram", per_s=10e9)
CACHE = make_ceiling(resource="memory", level="cache", per_s=100e9, up_to_bytes=32 * 2**20)
FLOAT32 = compute("float32", 200)
BFLOAT16 = compute("bfloat16", 1000)
ALL = [DRAM, CACHE, FLOAT32, BFLOAT16]

LARGE = float(64 * 2**20)


@pytest.mark.parametrize(
    ("flop_count", "memory_bytes", "bound", "least_ns"),
    [
        (1e6, LARGE, "memory", 6.710886e6),  # 64 MiB at 10 GB/s
        (1e9, 1e6, "compute", 5e6),  # 1 GFLOP at 200 GFLOP/s
        (0.0, 1e6, "memory", 10e3),  # from the cache, at 100 GB/s
    ],
)
def test_the_slower_measured_ceiling_binds(
    flop_count: float, memory_bytes: float, bound: str, least_ns: float
) -> None:
    case = make_case(flop_count=flop_count, memory_bytes=memory_bytes)
    roof = roof_of(case, ALL)
    assert roof.bound == bound
    assert roof.ideal_ns == pytest.approx(least_ns)
    published = [
        ceiling.model_copy(update={"source": "datasheet", "per_s": 1e15}) for ceiling in ALL
    ]
    assert roof_of(case, [*published, *ALL]) == roof_of(case, [*ALL, *published]) == roof
    assert roof_of(case, published).ideal_ns is None


def test_a_cold_cache_uses_the_memory_ceiling() -> None:
    roof = roof_of(make_case(flop_count=0.0, memory_bytes=1e6), ALL, CacheState.COLD)
    assert [roof.ideal_ns, roof.least_ns] == pytest.approx([100e3, 10e3])


@pytest.mark.parametrize(
    ("dtype", "least"),
    [
        ("bfloat16", 1e6),
        ("float8_e4m3fn", 0.5e6),
        ("float8_e5m2", 1e6),  # no ceiling of its own: bfloat16
        ("int8", 0.25e6),
        ("int64", 0.25e6),  # unknown dtype: the fastest
    ],
)
def test_low_precision_uses_the_roof_that_applies(dtype: str, least: float) -> None:
    case = make_case(f"matmul/M=8/{dtype}/fwd", flop_count=1e9, memory_bytes=0.0)
    ceilings = [*ALL, compute("float8_e4m3fn", 2000), compute("int8", 4000)]
    assert roof_of(case, ceilings).ideal_ns == pytest.approx(least)
    slow_bfloat16 = roof_of(
        case.model_copy(update={"dtype": "bfloat16"}), [FLOAT32, compute("bfloat16", 1)]
    )
    assert slow_bfloat16.ideal_ns == pytest.approx(5e6)


def test_float32_on_tensor_cores_takes_three_tf32_products() -> None:
    case = make_case("matmul/M=8/float32/fwd", flop_count=3e9, memory_bytes=0.0)
    roof = roof_of(case, [FLOAT32, compute("tf32", 3000)])
    assert [roof.ideal_ns, roof.least_ns] == pytest.approx([3e6, 1e6])


def test_the_ridge_is_where_both_ceilings_take_as_long() -> None:
    roof = roof_of(
        make_case("matmul/M=8/bfloat16/fwd", flop_count=100.0 * LARGE, memory_bytes=LARGE), ALL
    )
    assert roof.ridge == pytest.approx(100.0)
    assert roof.memory_ns == pytest.approx(roof.compute_ns)


# --- level by level


def test_each_memory_level_has_its_utilisation() -> None:
    counted = {"dram_bytes": 5e6, "l2_bytes": 40e6, "l1_bytes": 80e6, "dram_read_bytes": 1.0}
    dram, l2, l1 = level_positions(counted, 1e6, ALL)
    # in 1 ms DRAM can move 10 MB and the cache 100 MB
    assert [place.level for place in (dram, l2, l1)] == ["dram", "l2", "l1"]
    assert [dram.utilisation, l2.utilisation] == pytest.approx([0.5, 0.4])
    assert l1.utilisation is None


def test_the_memory_level_nearest_to_its_ceiling_binds() -> None:
    through_l2 = level_positions({"dram_bytes": 1e6, "l2_bytes": 90e6}, 1e6, ALL)
    through_dram = level_positions({"dram_bytes": 9e6, "l2_bytes": 9e6}, 1e6, ALL)
    bound = [binding_level(levels) for levels in (through_l2, through_dram)]
    assert [place.level for place in bound if place is not None] == ["l2", "dram"]
