"""Rules on compiled facts."""

import pytest

from roofwatch.ci.static.facts import CodeFacts, code_facts, judge_code, judge_facts
from roofwatch.ci.verdicts import Reason
from roofwatch.db.values import Verdict
from tests.builders import make_static_facts

BASE = {"registers": 64.0, "spilled_registers": 0.0, "local_bytes": 0.0, "shared_bytes": 1024.0, "code_bytes": 4096.0}


@pytest.mark.parametrize("name", ["local_bytes", "spilled_registers"])
def test_more_memory_per_thread_is_a_regression_and_less_an_improvement(name: str) -> None:
    worse = BASE | {name: 8.0}

    assert judge_facts(BASE, worse) is Verdict.REGRESSED
    assert judge_facts(worse, BASE) is Verdict.IMPROVED


@pytest.mark.parametrize("name", ["registers", "shared_bytes", "code_bytes"])
def test_a_resource_does_not_decide(name: str) -> None:
    assert judge_facts(BASE, BASE | {name: 1e6}) is Verdict.UNCHANGED


@pytest.mark.parametrize(
    ("stores", "verdict"),
    [(16, Verdict.UNCHANGED), (31, Verdict.UNCHANGED), (32, Verdict.REGRESSED), (8, Verdict.IMPROVED)],
)
def test_with_equal_bytes_twice_as_many_spill_instructions_decide(stores: int, verdict: Verdict) -> None:
    base = BASE | {"local_bytes": 64.0, "spill_store_count": 16.0}

    assert judge_facts(base, base | {"spill_store_count": float(stores)}) is verdict


def compiled(*, occupancy: float | None = None, local_bytes: int = 0, **instructions: int) -> CodeFacts:
    """Facts of a function; `load_128=4` are four loads of 128 bits, `HMMA=2` two such instructions."""
    names = {"load": "global_load", "store": "global_store", "copy": "async_copy"}
    counts = {"barrier": 1}
    for name, count in instructions.items():
        kind, _, width = name.partition("_")
        counts[f"{names[kind]}.{width}" if kind in names else f"tensor.{name}"] = count
    return code_facts(make_static_facts(theoretical_occupancy=occupancy, local_bytes=local_bytes, instructions=counts))


FLIPPED = {Verdict.REGRESSED: Verdict.IMPROVED, Verdict.UNCHANGED: Verdict.UNCHANGED}


@pytest.mark.parametrize(
    ("base", "head", "verdict", "reason"),
    [
        # the same bytes in narrower steps
        (compiled(load_128=2), compiled(load_32=8), Verdict.REGRESSED, Reason.ACCESS_WIDTH_CHANGED),
        (compiled(store_128=2), compiled(store_16=16), Verdict.REGRESSED, Reason.ACCESS_WIDTH_CHANGED),
        (compiled(copy_128=4), compiled(load_16=32), Verdict.REGRESSED, Reason.ACCESS_WIDTH_CHANGED),
        # less work for each thread
        (compiled(load_128=2), compiled(load_32=2), Verdict.UNCHANGED, Reason.CODE_CHANGED),
        # a few scalars beside the same vectors
        (compiled(load_128=2), compiled(load_128=2, load_32=5), Verdict.UNCHANGED, Reason.CODE_CHANGED),
        (compiled(load_128=2), compiled(), Verdict.UNCHANGED, Reason.CODE_CHANGED),
        # lesser tensor cores
        (compiled(HMMA=8), compiled(), Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
        (compiled(HGMMA=8), compiled(HMMA=64), Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
        (compiled(UTCHMMA=2), compiled(HMMA=64), Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
        (compiled(mfma=8), compiled(), Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
        (compiled(HMMA=8), compiled(IMMA=4), Verdict.UNCHANGED, Reason.CODE_CHANGED),
        (compiled(HMMA=8), compiled(HMMA=4), Verdict.UNCHANGED, Reason.CODE_CHANGED),
        # occupancy is a budget, until nothing fits
        (compiled(occupancy=0.5), compiled(occupancy=0.125), Verdict.UNCHANGED, Reason.CODE_CHANGED),
        (compiled(occupancy=0.5), compiled(occupancy=0.0), Verdict.REGRESSED, Reason.FIT_CHANGED),
    ],
)
def test_each_rule_decides_and_its_opposite_is_an_improvement(
    base: CodeFacts, head: CodeFacts, verdict: Verdict, reason: Reason
) -> None:
    assert judge_code(base, head) == (verdict, reason)
    assert judge_code(head, base)[0] is FLIPPED[verdict]


def test_one_regression_outweighs_improvements() -> None:
    base = compiled(local_bytes=64, HGMMA=8)
    head = compiled(local_bytes=0, HMMA=8)

    assert judge_code(base, head) == (Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED)
    assert judge_code(head, base) == (Verdict.REGRESSED, Reason.SPILLS_CHANGED)


def test_code_without_disassembly_has_lost_no_instructions() -> None:
    unknown = code_facts(make_static_facts())

    assert judge_code(compiled(HMMA=8, load_128=4), unknown) == (Verdict.UNCHANGED, Reason.CODE_CHANGED)
    assert judge_code(unknown, compiled(HMMA=8, load_128=4)) == (Verdict.UNCHANGED, Reason.CODE_CHANGED)
