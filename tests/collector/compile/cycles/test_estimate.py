"""The cycle model on compiled kernels: it ranks what is known to be faster or slower."""

from pathlib import Path

import pytest

from roofwatch.ci.static.prediction import compare_estimates
from roofwatch.collector.compile.cycles.rates import RATES
from roofwatch.model.results import CodeEstimate
from roofwatch.model.verdict import Verdict
from tests.collector.static_suite import GEMM, facts_of, use_caches

ROWS = """
@triton.jit
def _rows_kernel(x_ptr, y_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        offsets = row * n + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets)
        {body}
        tl.store(y_ptr + offsets, x)

def launch(x):
    y = torch.empty_like(x)
    _rows_kernel[({grid},)](x, y, torch.zeros(x.shape[1]), x.shape[0], BLOCK=1024)
    return y

kernel = declare(launch, n={n})
"""
MASKED = """
@triton.jit
def _masked_kernel(x_ptr, y_ptr, row_count, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        offsets = row[:, None] * n + columns[None, :]
        mask = (row[:, None] < row_count) & (n > columns[None, :])
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)

def launch(x):
    y = torch.empty_like(x)
    rows, columns = x.shape
    grid = (triton.cdiv(rows, {rows}),)
    _masked_kernel[grid](x, y, rows, columns, ROWS={rows}, BLOCK={block})
    return y

kernel = declare(launch, n={n})
"""
MANY_LOADS = "for k in tl.static_range(64): x += tl.load(x_ptr + offsets // (k + 2))"


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_caches(tmp_path, monkeypatch)


def rows(folder: Path, body: str, *, n: int = 4096, target: str = "sm_90") -> CodeEstimate:
    (facts,) = facts_of(folder, ROWS.format(body=body, n=n, grid="x.shape[0]"), (target,))
    assert facts.estimate is not None
    return facts.estimate


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950"])
def test_a_copy_is_bound_by_the_bytes_that_it_requests(tmp_path: Path, target: str) -> None:
    estimate = rows(tmp_path, "x = x", target=target)

    assert estimate.limit == "memory"
    assert estimate.requested_bytes == 2 * 2 * 4096 * 4096
    assert estimate.element_count == 4096 * 4096
    assert not estimate.has_unknown_trips


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows_per_program", "block"), [(1, 512), (1, 1024), (4, 4096)], ids=["fits", "tail", "tile"]
)
def test_masked_elements_of_a_tile_are_no_bytes(
    tmp_path: Path, rows_per_program: int, block: int
) -> None:
    suite = MASKED.format(rows=rows_per_program, block=block, n=1536)
    (facts,) = facts_of(tmp_path, suite, ("sm_90",))

    assert facts.estimate is not None
    assert facts.estimate.requested_bytes == pytest.approx(2 * 2 * 1536 * 1536)


@pytest.mark.slow
def test_a_kernel_that_loads_64_times_as_much_is_predicted_slower(tmp_path: Path) -> None:
    base, head = rows(tmp_path, "x = x"), rows(tmp_path, MANY_LOADS)

    assert compare_estimates(base, head).verdict is Verdict.PREDICTED_SLOWER
    assert compare_estimates(head, base).verdict is Verdict.PREDICTED_FASTER


@pytest.mark.slow
def test_atomics_of_every_row_are_predicted_slower(tmp_path: Path) -> None:
    atomics = "tl.atomic_add(sum_ptr + start + tl.arange(0, BLOCK), x.to(tl.float32))"
    base, head = rows(tmp_path, "x = x"), rows(tmp_path, atomics)

    assert head.limit == "atomics"
    assert head.atomics_per_element == 1
    assert compare_estimates(base, head).verdict is Verdict.PREDICTED_SLOWER
    # as in Liger-Kernel #945, which removed them from the backward pass of layer norm
    assert compare_estimates(head, base).verdict is Verdict.PREDICTED_FASTER


@pytest.mark.slow
def test_exponentials_of_base_two_with_a_folded_factor_are_predicted_faster(tmp_path: Path) -> None:
    """As in Liger-Kernel #1266: one multiplication less for each exponential."""
    many = "y = x.to(tl.float32)\n        for k in tl.static_range(16): y -= {}\n        x = y"
    base = rows(tmp_path, many.format("tl.exp(y * 0.125)"))
    head = rows(tmp_path, many.format("tl.exp2(y * 0.18033688)"))

    assert head.instructions_per_element < 0.9 * base.instructions_per_element
    assert compare_estimates(base, head).verdict is Verdict.PREDICTED_FASTER


@pytest.mark.slow
def test_a_renamed_variable_predicts_nothing(tmp_path: Path) -> None:
    base = rows(tmp_path, "x = tl.exp(x.to(tl.float32)).to(tl.float16)")
    head = rows(tmp_path, "u = x.to(tl.float32); x = tl.exp(u).to(tl.float16)")

    assert compare_estimates(base, head).verdict is Verdict.UNCHANGED


@pytest.mark.slow
def test_products_have_the_trips_of_their_loop(tmp_path: Path) -> None:
    (facts,) = facts_of(tmp_path, GEMM.format(m=64, n=64), ("sm_90",))

    estimate = facts.estimate
    assert estimate is not None
    # 16 trips of two tiles of 64 x 32, and the result once; all of float16
    assert estimate.requested_bytes == 16 * 2 * 64 * 32 * 2 + 64 * 64 * 2
    assert estimate.bounds_ns["tensor"] > 0


@pytest.mark.slow
def test_a_loop_over_loaded_bounds_has_unknown_trips(tmp_path: Path) -> None:
    loop = "for k in range(tl.load(sum_ptr).to(tl.int32)): x += 1"
    estimate = rows(tmp_path, loop)

    assert estimate.has_unknown_trips
    assert len(estimate.variants_ns) == 10


STRIDED = """
@triton.jit
def _strided_kernel(x_ptr, y_ptr, index_ptr, stride, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    places = {places}
    {loads}
    tl.store(y_ptr + offsets, x)

def launch(x):
    n = 2**20
    x = torch.empty(n * {stride}, dtype=torch.float16)
    y = torch.empty(n, dtype=torch.float16)
    index = torch.zeros(n, dtype=torch.int32)
    _strided_kernel[(n // 1024,)](x, y, index, {stride}, n, BLOCK=1024)
    return y

kernel = declare(launch, n=8)
"""
LOAD_ONCE = "x = tl.load(x_ptr + places)"


def strided(
    folder: Path,
    places: str,
    *,
    stride: int = 1,
    loads: str = LOAD_ONCE,
    target: str = "sm_90",
) -> CodeEstimate:
    suite = STRIDED.format(places=places, stride=stride, loads=loads)
    (facts,) = facts_of(folder, suite, (target,))
    assert facts.estimate is not None
    return facts.estimate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stride", "target", "moved_bytes"),
    [(1, "sm_90", 2), (4, "sm_90", 8), (16, "sm_90", 32), (64, "sm_90", 32), (64, "gfx950", 64)],
)
def test_a_strided_load_moves_whole_sectors(
    tmp_path: Path, stride: int, target: str, moved_bytes: int
) -> None:
    estimate = strided(tmp_path, "offsets * stride", stride=stride, target=target)

    # and 2 bytes that are stored
    assert estimate.sector_bytes == pytest.approx((moved_bytes + 2) * 2**20, rel=0.01)
    assert estimate.requested_bytes == 4 * 2**20
    assert not estimate.has_unknown_strides


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_load_of_distant_elements_is_predicted_slower(tmp_path: Path, target: str) -> None:
    base = strided(tmp_path, "offsets * stride", target=target)
    head = strided(tmp_path, "offsets * stride", stride=32, target=target)

    assert compare_estimates(base, head).verdict is Verdict.PREDICTED_SLOWER
    assert compare_estimates(head, base).verdict is Verdict.PREDICTED_FASTER


@pytest.mark.slow
def test_two_loads_that_use_all_of_a_sector_move_it_once(tmp_path: Path) -> None:
    loads = "x = tl.load(x_ptr + 2 * offsets) + tl.load(x_ptr + 2 * offsets + 1)"
    estimate = strided(tmp_path, "offsets", stride=2, loads=loads)

    assert estimate.sector_bytes == pytest.approx(estimate.requested_bytes, rel=0.01)


@pytest.mark.slow
def test_loaded_offsets_have_unknown_strides(tmp_path: Path) -> None:
    estimate = strided(tmp_path, "tl.load(index_ptr + offsets)")

    assert estimate.has_unknown_strides
    assert estimate.sector_bytes == estimate.requested_bytes


@pytest.mark.slow
def test_an_unknown_stride_is_no_reason_for_a_verdict(tmp_path: Path) -> None:
    loaded = strided(tmp_path, "tl.load(index_ptr + offsets)", stride=16)
    distant = strided(tmp_path, "offsets * stride", stride=16)

    # the loaded offsets may be as far apart as the others
    assert compare_estimates(loaded, distant).verdict is Verdict.UNCHANGED
    assert compare_estimates(distant, loaded).verdict is Verdict.UNCHANGED


LOADED_LENGTH = """
@triton.jit
def _rows_kernel(x_ptr, y_ptr, length_ptr, n, BLOCK: tl.constexpr):
    length = tl.load(length_ptr).to(tl.int32)
    for {loop}:
        offsets = tl.program_id(0) * n + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets)
        tl.store(y_ptr + offsets, x)

def launch(x):
    y = torch.empty_like(x)
    _rows_kernel[(x.shape[1],)](x, y, torch.zeros(8), x.shape[0], BLOCK={block})
    return y

kernel = declare(launch, n=4096)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "loop", ["start in range(0, length, BLOCK)", "start in range(tl.cdiv(length, BLOCK))"]
)
def test_a_longer_tile_runs_less_often_over_a_loaded_length(tmp_path: Path, loop: str) -> None:
    requested: list[float] = []
    for block in (256, 1024):
        suite = LOADED_LENGTH.format(loop=loop, block=block)
        (facts,) = facts_of(tmp_path, suite, ("sm_90",))
        assert facts.estimate is not None
        assert facts.estimate.has_unknown_trips
        assert facts.estimate.has_trips_of_tiles
        requested.append(facts.estimate.requested_bytes)

    # but for the length itself, which each program loads
    assert requested[0] == pytest.approx(requested[1], rel=0.01)


def test_operands_beyond_the_l2_come_from_the_cache_behind_it() -> None:
    instinct, hopper = RATES["gfx942"], RATES["sm_90"]

    assert instinct.cache_bytes(2**20) > instinct.cache_bytes(2**30)
    assert hopper.cache_bytes(2**20) == hopper.cache_bytes(2**30)
