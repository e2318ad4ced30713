"""Changes planted into small kernels: harmless ones leave the code unchanged, others change the
expected fact.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from roofwatch.ci.static.comparison import judge_static
from roofwatch.collector.compile.instructions import widths
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Reason, Verdict
from tests.collector.static_suite import GEMM, facts_of, use_caches

TILED = GEMM.format(m=64, n=64)
DOT = "tl.dot(a, b, accumulator)"
ROW = """
@triton.jit
def _row_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets).to(tl.float32)
    tl.store(y_ptr + offsets, (x * tl.sum(x)).to(tl.float16))

def launch(x):
    y = torch.empty_like(x)
    backend = triton.runtime.driver.active.get_current_target().backend
    few_registers = {"maxnreg": 32} if backend == "cuda" else {"waves_per_eu": 8}
    _row_kernel[(1,)](x, y, BLOCK=16384, num_warps=2, **few_registers)
    return y

kernel = declare(launch, n=512)
"""
SPILLING, ROOMY = ROW, ROW.replace(", num_warps=2, **few_registers", ", num_warps=8")

ByTarget = dict[str, StaticFacts]


def tensor_core_count(fact: StaticFacts) -> int:
    return sum(count for kind, count in fact.instructions.items() if kind.startswith("tensor."))


def widest_read_bits(fact: StaticFacts) -> int:
    kinds = ("global_load", "async_copy")
    return max(width for kind in kinds for width, _ in widths(fact.instructions, kind))


def conversion_count(fact: StaticFacts) -> int:
    return fact.instructions.get("conversion", 0)


HARMLESS = {
    "a comment": TILED.replace(
        "    offs_m, offs_n", "    # where the tile lies\n    offs_m, offs_n"
    ),
    "other names": TILED.replace("_gemm_kernel", "_a_much_longer_name_of_the_kernel").replace(
        "accumulator", "total"
    ),
    "dead code": TILED.replace(
        "    accumulator = tl.zeros",
        "    unused = tl.load(x_ptr + offs_m) * 2\n    accumulator = tl.zeros",
    ),
    "another format": TILED.replace(
        "x_ptr + offs_m[:, None] * n", "(x_ptr\n            + offs_m[:, None] * n)", 1
    ),
}


OTHER_CODE = (Verdict.UNCHANGED, Reason.CODE_CHANGED)
"""Changed, and by none of the facts that decide worse."""

Claim = Callable[[StaticFacts, StaticFacts], bool]
SEEDED: dict[str, tuple[str, str, tuple[Verdict, Reason], Claim]] = {
    "a lost divisibility hint narrows the reads": (
        TILED,
        TILED.replace("@triton.jit", "@triton.jit(do_not_specialize=['n'])"),
        (Verdict.REGRESSED, Reason.ACCESS_WIDTH_CHANGED),
        lambda before, after: (widest_read_bits(before), widest_read_bits(after)) == (128, 16),
    ),
    "fewer warps hold more registers each": (
        TILED,
        TILED.replace("num_warps=4", "num_warps=1"),
        OTHER_CODE,
        lambda before, after: (
            (before.thread_count or 0) == 4 * (after.thread_count or 0)
            and (after.registers or 0) > 1.5 * (before.registers or 0)
            and (after.theoretical_occupancy or 0) < (before.theoretical_occupancy or 0)
        ),
    ),
    "sums in fp16 are other code": (
        TILED,
        TILED.replace("dtype=tl.float32", "dtype=tl.float16").replace(
            DOT, f"{DOT[:-1]}, out_dtype=tl.float16)"
        ),
        OTHER_CODE,
        # NVIDIA's tensor cores sum in fp16, so nothing is left to convert; AMD's have no such mode,
        # so each sum is
        lambda before, after: (
            conversion_count(after) == 0
            if before.target.startswith("sm_")
            else conversion_count(after) > 2 * conversion_count(before)
        ),
    ),
    "a lost tensor-core path": (
        TILED,
        TILED.replace(
            DOT,
            "accumulator + tl.sum(a[:, :, None].to(tl.float32) * b[None, :, :].to(tl.float32), 1)",
        ).replace("BLOCK_M=64, BLOCK_N=64", "BLOCK_M=16, BLOCK_N=16"),
        (Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
        lambda before, after: tensor_core_count(before) > 0 and tensor_core_count(after) == 0,
    ),
    "an added spill": (
        ROOMY,
        SPILLING,
        (Verdict.REGRESSED, Reason.SPILLS_CHANGED),
        lambda before, after: (
            (before.local_bytes, before.spill_store_count, before.spill_load_count) == (0, 0, 0)
            and bool(after.local_bytes and after.spill_store_count and after.spill_load_count)
        ),
    ),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ByTarget]:
    """Every suite of this file, compiled once for all targets."""
    folder: Path = tmp_path_factory.mktemp("truth")
    bodies = [TILED, *HARMLESS.values()]
    bodies += [body for source, changed, *_ in SEEDED.values() for body in (source, changed)]
    known: dict[str, ByTarget] = {}
    with pytest.MonkeyPatch.context() as patch:
        use_caches(folder, patch)
        for number, body in enumerate(dict.fromkeys(bodies)):
            facts = facts_of(folder, body, DEFAULT_TARGETS, f"suite_{number}")
            assert [(fact.target, fact.outcome) for fact in facts] == [
                (name, Outcome.OK) for name in DEFAULT_TARGETS
            ]
            known[body] = {fact.target: fact for fact in facts}
    return known.__getitem__


@pytest.mark.slow
@pytest.mark.parametrize("change", HARMLESS)
def test_a_harmless_change_leaves_the_code_unchanged(
    compiled: Callable[[str], ByTarget], change: str
) -> None:
    before, after = compiled(TILED), compiled(HARMLESS[change])

    compared = judge_static([*before.values()], [*after.values()])

    assert HARMLESS[change] != TILED
    assert compared.changes == ()
    assert compared.unchanged_by_target == dict.fromkeys(DEFAULT_TARGETS, 1)


# a warp group is 4 warps: below that Hopper's and Blackwell's own tensor instructions are out of
# reach
LESS_THAN_A_WARP_GROUP = {
    ("fewer warps hold more registers each", target): (
        Verdict.REGRESSED,
        Reason.TENSOR_CORES_CHANGED,
    )
    for target in ("sm_90", "sm_100")
}


@pytest.mark.slow
@pytest.mark.parametrize("change", SEEDED)
def test_a_planted_change_is_judged_by_its_fact_on_every_target(
    compiled: Callable[[str], ByTarget], change: str
) -> None:
    source, changed, judged, is_as_expected = SEEDED[change]
    before, after = compiled(source), compiled(changed)
    compared = judge_static([*before.values()], [*after.values()])

    assert [name for name in DEFAULT_TARGETS if not is_as_expected(before[name], after[name])] == []
    observed = {}
    for item in compared.changes:
        is_estimate = item.reason is Reason.TIME_PREDICTED
        # what the cycle model predicts of other code decides nothing
        verdict = OTHER_CODE if is_estimate else (item.verdict, item.reason)
        observed[item.subject.target] = verdict
    assert observed == {
        target: LESS_THAN_A_WARP_GROUP.get((change, target), judged) for target in DEFAULT_TARGETS
    }
