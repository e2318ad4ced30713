"""Functions are matched, judged by their facts and explained."""

from typing import Any

import pytest

from roofwatch.ci.static.comparison import StaticChange, is_listed, judge_static
from roofwatch.ci.static.explanation import explain
from roofwatch.ci.static.facts import CodeFacts, code_facts, judge_code
from roofwatch.model.history import Cause
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Reason, Verdict
from tests.builders import make_static_facts

OLD, NEW = {"triton": "3.6.0"}, {"triton": "3.7.1"}


def only(base: list[StaticFacts], head: list[StaticFacts], **fields: Any) -> StaticChange:
    (item,) = judge_static(base, head, **fields).changes
    return item


def test_identical_code_is_only_counted() -> None:
    facts = [make_static_facts(), make_static_facts(target="gfx942")]

    compared = judge_static(facts, facts)

    assert compared.changes == ()
    assert compared.unchanged_by_target == {"gfx942": 1, "sm_90": 1}


def test_renamed_functions_are_matched_by_code() -> None:
    base = [make_static_facts(function="_a"), make_static_facts(function="_b", code="b")]
    head = [make_static_facts(function="_y", code="b"), make_static_facts(function="_x")]

    compared = judge_static(base, head)

    assert compared.changes == ()
    assert compared.unchanged_by_target == {"sm_90": 2}


def test_the_only_unmatched_functions_are_compared() -> None:
    item = only(
        [make_static_facts(function="_old")],
        [make_static_facts(function="_new", code="b", local_bytes=8)],
    )

    assert (item.subject.part, item.verdict, item.reason) == (
        "_new",
        Verdict.REGRESSED,
        Reason.SPILLS_CHANGED,
    )


def test_the_same_code_in_another_launch_is_listed() -> None:
    item = only(
        [make_static_facts(theoretical_occupancy=0.5)],
        [make_static_facts(theoretical_occupancy=0.25, shared_bytes=65_536)],
    )

    assert (item.verdict, item.reason) == (Verdict.UNCHANGED, Reason.LAUNCH_CHANGED)
    assert is_listed(item)


def test_a_failed_launch_loses_all_its_functions() -> None:
    base = [make_static_facts(function="_a"), make_static_facts(function="_b", code="b")]
    failure = make_static_facts(
        function="triton", outcome=Outcome.COMPILE_ERROR, message="no such dtype"
    )

    lost = judge_static(base, [failure]).changes
    found = judge_static([failure], base).changes

    assert [(item.subject.part, item.verdict, item.reason) for item in lost] == [
        ("_a", Verdict.REGRESSED, Reason.TARGET_LOST),
        ("_b", Verdict.REGRESSED, Reason.TARGET_LOST),
    ]
    assert str(lost[0].detail) == "no such dtype"
    assert {item.reason for item in found} == {Reason.FIXED}


def test_a_case_that_only_the_base_has_is_no_regression() -> None:
    compared = judge_static([make_static_facts()], [])

    assert compared.changes == ()
    assert compared.gone == (("rms_norm/n_rows=64,n_cols=128/float32/fwd", "triton"),)


@pytest.mark.parametrize("source", ["facts", "environment"])
def test_under_different_toolchains_only_facts_decide(source: str) -> None:
    old, new = (OLD, NEW) if source == "facts" else ({}, {})
    of_all = {} if source == "facts" else {"base_toolchain": OLD, "head_toolchain": NEW}
    base = [make_static_facts(toolchain=old)]

    same = only(base, [make_static_facts(code="b", toolchain=new)], **of_all)
    worse = only(base, [make_static_facts(code="b", local_bytes=8, toolchain=new)], **of_all)

    assert (same.verdict, same.reason, same.cause) == (
        Verdict.UNCHANGED,
        Reason.TOOLCHAIN_CHANGED,
        Cause.TOOLCHAIN,
    )
    assert not is_listed(same)
    assert (worse.verdict, worse.reason, worse.cause) == (
        Verdict.REGRESSED,
        Reason.SPILLS_CHANGED,
        Cause.TOOLCHAIN,
    )


def compiled(
    *, occupancy: float | None = None, local_bytes: int = 0, **instructions: int
) -> CodeFacts:
    """Facts of a function; `load_128=4` are four loads of 128 bits,
    `HMMA=2` two such instructions.
    """
    names = {"load": "global_load", "store": "global_store", "copy": "async_copy"}
    counts = {"barrier": 1}
    for name, count in instructions.items():
        kind, _, width = name.partition("_")
        counts[f"{names[kind]}.{width}" if kind in names else f"tensor.{name}"] = count
    return code_facts(
        make_static_facts(
            theoretical_occupancy=occupancy, local_bytes=local_bytes, instructions=counts
        )
    )


def with_facts(**facts: Any) -> CodeFacts:
    return code_facts(make_static_facts(**{"spilled_registers": 0} | facts))


FLIPPED = {Verdict.REGRESSED: Verdict.IMPROVED, Verdict.UNCHANGED: Verdict.UNCHANGED}


CODE_RULES = [
    # data that each thread keeps in memory, with equal bytes twice as many instructions for it
    (with_facts(), with_facts(local_bytes=8), Verdict.REGRESSED, Reason.SPILLS_CHANGED),
    (
        with_facts(spill_store_count=16, local_bytes=64),
        with_facts(spill_store_count=31, local_bytes=64),
        Verdict.UNCHANGED,
        Reason.CODE_CHANGED,
    ),
    (
        with_facts(spill_store_count=16, local_bytes=64),
        with_facts(spill_store_count=32, local_bytes=64),
        Verdict.REGRESSED,
        Reason.SPILLS_CHANGED,
    ),
    # spills that take no memory, and a change of existing ones below 1 %
    (with_facts(), with_facts(spilled_registers=8), Verdict.UNCHANGED, Reason.CODE_CHANGED),
    (
        with_facts(local_bytes=1_232),
        with_facts(local_bytes=1_240),
        Verdict.UNCHANGED,
        Reason.CODE_CHANGED,
    ),
    # resources are budgets
    (with_facts(), with_facts(registers=255), Verdict.UNCHANGED, Reason.CODE_CHANGED),
    (with_facts(), with_facts(shared_bytes=2**18), Verdict.UNCHANGED, Reason.CODE_CHANGED),
    (with_facts(), with_facts(code_bytes=2**20), Verdict.UNCHANGED, Reason.CODE_CHANGED),
    # the same bytes in narrower steps
    (compiled(load_128=2), compiled(load_32=8), Verdict.REGRESSED, Reason.ACCESS_WIDTH_CHANGED),
    (
        compiled(store_128=2),
        compiled(store_16=16),
        Verdict.REGRESSED,
        Reason.ACCESS_WIDTH_CHANGED,
    ),
    (
        compiled(copy_128=4),
        compiled(load_16=32),
        Verdict.REGRESSED,
        Reason.ACCESS_WIDTH_CHANGED,
    ),
    # less work for each thread
    (compiled(load_128=2), compiled(load_32=2), Verdict.UNCHANGED, Reason.CODE_CHANGED),
    # a few scalars beside the same vectors
    (
        compiled(load_128=2),
        compiled(load_128=2, load_32=5),
        Verdict.UNCHANGED,
        Reason.CODE_CHANGED,
    ),
    (compiled(load_128=2), compiled(), Verdict.UNCHANGED, Reason.CODE_CHANGED),
    # lesser tensor cores
    (compiled(HMMA=8), compiled(), Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
    (compiled(HGMMA=8), compiled(HMMA=64), Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
    (compiled(UTCHMMA=2), compiled(HMMA=64), Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
    (compiled(mfma=8), compiled(), Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED),
    (compiled(HMMA=8), compiled(IMMA=4), Verdict.UNCHANGED, Reason.CODE_CHANGED),
    (compiled(HMMA=8), compiled(HMMA=4), Verdict.UNCHANGED, Reason.CODE_CHANGED),
    # occupancy is a budget, until nothing fits
    (
        compiled(occupancy=0.5),
        compiled(occupancy=0.125),
        Verdict.UNCHANGED,
        Reason.CODE_CHANGED,
    ),
    (compiled(occupancy=0.5), compiled(occupancy=0.0), Verdict.REGRESSED, Reason.FIT_CHANGED),
]


@pytest.mark.parametrize(("base", "head", "verdict", "reason"), CODE_RULES)
def test_each_rule_decides(
    base: CodeFacts, head: CodeFacts, verdict: Verdict, reason: Reason
) -> None:
    assert judge_code(base, head) == (verdict, reason)


@pytest.mark.parametrize(("base", "head", "verdict", "reason"), CODE_RULES)
def test_the_opposite_of_a_regression_is_an_improvement(
    base: CodeFacts, head: CodeFacts, verdict: Verdict, reason: Reason
) -> None:
    assert judge_code(head, base)[0] is FLIPPED[verdict]


def test_one_regression_outweighs_improvements() -> None:
    base = compiled(local_bytes=64, HGMMA=8)
    head = compiled(local_bytes=0, HMMA=8)

    assert judge_code(base, head) == (Verdict.REGRESSED, Reason.TENSOR_CORES_CHANGED)
    assert judge_code(head, base) == (Verdict.REGRESSED, Reason.SPILLS_CHANGED)


def test_code_without_disassembly_has_lost_no_instructions() -> None:
    unknown = code_facts(make_static_facts())

    assert judge_code(compiled(HMMA=8, load_128=4), unknown) == (
        Verdict.UNCHANGED,
        Reason.CODE_CHANGED,
    )
    assert judge_code(unknown, compiled(HMMA=8, load_128=4)) == (
        Verdict.UNCHANGED,
        Reason.CODE_CHANGED,
    )


TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4}


def facts(**fields: Any) -> StaticFacts:
    return make_static_facts(**{"configuration": TILE, "shared_bytes": None} | fields)


def with_instructions(**counts: int) -> StaticFacts:
    return facts(
        instructions={"barrier": 1}
        | {name.replace("__", "."): count for name, count in counts.items()}
    )


EAGER, HMMA, HGMMA = (
    with_instructions(),
    with_instructions(tensor__HMMA=64),
    with_instructions(tensor__HGMMA=4),
)


@pytest.mark.parametrize(
    ("base", "head", "sentence"),
    [
        (
            facts(local_bytes=16),
            facts(local_bytes=8),
            "memory per thread 16 B → 8 B: more of the tile of 128 × 128 (BLOCK_M, BLOCK_N) fits "
            "into the registers of "
            "4 warps",
        ),
        (
            HGMMA,
            HMMA,
            "tensor-core instructions 4 HGMMA → 64 HMMA: instructions of one warp or wavefront "
            "use less of the tensor "
            "cores than warpgroup instructions",
        ),
        (
            EAGER,
            HGMMA,
            "tensor-core instructions 0 → 4 HGMMA: matrix products now use warpgroup instructions",
        ),
        (
            with_instructions(async_copy__128=8),
            with_instructions(global_load__128=8),
            "asynchronous copies 8 → 0: loads no longer overlap with arithmetic through shared "
            "memory",
        ),
        (
            facts(theoretical_occupancy=0.1, shared_bytes=65_536),
            facts(theoretical_occupancy=0.0, shared_bytes=262_144),
            "shared memory 64 KiB → 256 KiB, occupancy 10.0% → 0.0%: no block fits on a "
            "multiprocessor of sm_90: the "
            "kernel cannot be launched",
        ),
        (
            facts(configuration={"BLOCK_M": 64, "num_warps": 8, "num_stages": 2}),
            facts(
                configuration={"BLOCK_M": 128, "GROUP": 4, "num_warps": 4, "num_stages": 2},
                registers=64,
            ),
            "registers 32 → 64; configuration: num_warps 8 → 4, BLOCK_M 64 → 128, GROUP – → 4",
        ),
        (facts(code_bytes=2048), facts(code_bytes=4096), "code 2 KiB → 4 KiB"),
    ],
    ids=["fewer spills", "lesser path", "better path", "copies", "fit", "configuration", "size"],
)
def test_a_change_is_explained_with_its_numbers(
    base: StaticFacts, head: StaticFacts, sentence: str
) -> None:
    assert str(explain(base, head)) == sentence


def test_names_from_a_record_are_kept_apart_from_the_sentence() -> None:
    remark = explain(facts(), facts(configuration=TILE | {"{0} <b>": "{}"}, local_bytes=8))

    assert remark is not None
    assert remark.words == ("BLOCK_M", "BLOCK_N", "{0} <b>", "–", "{}")
    assert str(remark).endswith("configuration: {0} <b> – → {}")
