"""Functions are matched and judged."""

from typing import Any

import pytest

from roofwatch.ci.static.comparison import StaticJudgement, compare_static
from roofwatch.ci.verdicts import Reason
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.db.values import Cause, Verdict
from tests.builders import make_static_facts

OLD, NEW = {"triton": "3.6.0"}, {"triton": "3.7.1"}


def only(base: list[StaticFacts], head: list[StaticFacts], **fields: Any) -> StaticJudgement:
    (item,) = compare_static(base, head, **fields).judged
    return item


def test_identical_code_is_only_counted() -> None:
    facts = [make_static_facts(), make_static_facts(target="gfx942")]

    compared = compare_static(facts, facts)

    assert compared.judged == ()
    assert compared.unchanged_by_target == {"gfx942": 1, "sm_90": 1}


def test_renamed_functions_are_matched_by_code() -> None:
    base = [make_static_facts(function="_a"), make_static_facts(function="_b", code="b")]
    head = [make_static_facts(function="_y", code="b"), make_static_facts(function="_x")]

    compared = compare_static(base, head)

    assert compared.judged == ()
    assert compared.unchanged_by_target == {"sm_90": 2}


def test_the_only_unmatched_functions_are_compared() -> None:
    item = only([make_static_facts(function="_old")], [make_static_facts(function="_new", code="b", local_bytes=8)])

    assert (item.function, item.verdict, item.reason) == ("_new", Verdict.REGRESSED, Reason.SPILLS_CHANGED)


def test_the_same_code_in_another_launch_is_listed() -> None:
    item = only(
        [make_static_facts(theoretical_occupancy=0.5)],
        [make_static_facts(theoretical_occupancy=0.25, shared_bytes=65_536)],
    )

    assert (item.verdict, item.reason) == (Verdict.UNCHANGED, Reason.LAUNCH_CHANGED)
    assert item.is_listed


def test_a_failed_launch_loses_all_its_functions() -> None:
    base = [make_static_facts(function="_a"), make_static_facts(function="_b", code="b")]
    failure = make_static_facts(function="triton", outcome=Outcome.COMPILE_ERROR, message="no such dtype")

    lost = compare_static(base, [failure]).judged
    found = compare_static([failure], base).judged

    assert [(item.function, item.verdict, item.reason) for item in lost] == [
        ("_a", Verdict.REGRESSED, Reason.TARGET_LOST),
        ("_b", Verdict.REGRESSED, Reason.TARGET_LOST),
    ]
    assert str(lost[0].detail) == "no such dtype"
    assert {item.reason for item in found} == {Reason.FIXED}


def test_a_case_that_only_the_base_has_is_no_regression() -> None:
    compared = compare_static([make_static_facts()], [])

    assert compared.judged == ()
    assert compared.gone == (("rms_norm/n_rows=64,n_cols=128/float32/fwd", "triton"),)


@pytest.mark.parametrize("source", ["facts", "environment"])
def test_under_different_toolchains_only_facts_decide(source: str) -> None:
    old, new = (OLD, NEW) if source == "facts" else ({}, {})
    of_all = {} if source == "facts" else {"base_toolchain": OLD, "head_toolchain": NEW}
    base = [make_static_facts(toolchain=old)]

    same = only(base, [make_static_facts(code="b", toolchain=new)], **of_all)
    worse = only(base, [make_static_facts(code="b", local_bytes=8, toolchain=new)], **of_all)

    assert (same.verdict, same.reason, same.cause) == (Verdict.UNCHANGED, Reason.TOOLCHAIN_CHANGED, Cause.TOOLCHAIN)
    assert not same.is_listed
    assert (worse.verdict, worse.reason, worse.cause) == (Verdict.REGRESSED, Reason.SPILLS_CHANGED, Cause.TOOLCHAIN)
