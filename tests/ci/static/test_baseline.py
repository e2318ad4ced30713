"""Accepted regressions do not fail again, and improvements of them are noted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.report.comment import to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.ci.static.baseline import (
    AppliedBaseline,
    Baseline,
    BaselineError,
    apply_baseline,
    judge_without_base,
    parse_baseline,
    tightened,
    to_toml,
    with_accepted,
)
from roofwatch.ci.static.comparison import judge_static
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Reason, Verdict, exit_code
from tests.builders import make_static_facts
from tests.ci.values import SOFTMAX, make_records, make_timed

BASE = make_static_facts()
SPILLS = make_static_facts(
    code="b", local_bytes=96, instructions={"global_load.128": 4, "barrier": 1}
)
ACCEPTED = with_accepted({}, [SPILLS], "the tile pays for it")


def spilling(local_bytes: int, **fields: Any) -> StaticFacts:
    return SPILLS.model_copy(update={"local_bytes": local_bytes, **fields})


def applied(head: StaticFacts, baseline: Baseline = ACCEPTED) -> AppliedBaseline:
    return apply_baseline(baseline, judge_static([BASE], [head]).changes, [head])


@pytest.mark.parametrize("local_bytes", [96, 48])
def test_accepted_code_does_not_fail(local_bytes: int) -> None:
    (item,) = applied(spilling(local_bytes)).changes

    assert (item.verdict, item.reason) == (Verdict.UNCHANGED, Reason.ACCEPTED)
    assert str(item.detail) == "accepted: the tile pays for it"


def test_code_that_is_worse_than_accepted_fails_with_the_difference() -> None:
    (item,) = applied(spilling(128)).changes

    assert (item.verdict, item.reason) == (Verdict.REGRESSED, Reason.SPILLS_CHANGED)
    assert str(item.detail).endswith("worse than accepted (local memory per thread 96 B to 128 B)")


def test_better_code_is_noted() -> None:
    better = applied(spilling(48))

    assert [str(note) for note in better.notes] == [
        "_rms_norm_kernel for sm_90 is better than the baseline: update it with --tighten"
    ]


def test_better_code_tightens_the_baseline() -> None:
    updated = tightened(ACCEPTED, applied(spilling(48)))

    assert applied(spilling(48), updated).better == ()
    assert applied(spilling(96), updated).changes[0].verdict is Verdict.REGRESSED
    assert next(iter(updated.values())).reason == "the tile pays for it"


def test_a_compile_error_can_be_accepted() -> None:
    failing = make_static_facts(outcome=Outcome.COMPILE_ERROR)
    baseline = with_accepted({}, [failing], "sm_90 comes later")

    assert applied(failing, baseline).changes[0].reason is Reason.ACCEPTED
    assert len(applied(BASE, baseline).better) == 1
    assert applied(failing).changes[0].verdict is Verdict.REGRESSED


@pytest.mark.parametrize(
    ("head", "is_complete", "is_stale"),
    [
        (make_static_facts(function="_other"), False, True),
        (make_static_facts(SOFTMAX), True, True),
        (make_static_facts(SOFTMAX), False, False),
        (make_static_facts(SOFTMAX, target="sm_80"), True, False),
        (make_static_facts("rms_norm/n=1/float32/fwd"), True, False),
    ],
    ids=["function", "kernel", "kernel not chosen", "target not compiled", "case of another tag"],
)
def test_an_entry_of_a_deleted_function_is_stale(
    head: StaticFacts, is_complete: bool, is_stale: bool
) -> None:
    found = apply_baseline(ACCEPTED, (), [head], is_complete=is_complete)

    assert bool(found.stale) is is_stale
    assert bool(tightened(ACCEPTED, found)) is not is_stale


def test_without_a_base_code_is_compared_with_the_baseline() -> None:
    assert judge_without_base(ACCEPTED, [SPILLS, make_static_facts(SOFTMAX, local_bytes=999)]) == ()
    (item,) = judge_without_base(ACCEPTED, [spilling(128)])
    assert (item.verdict, item.reason) == (Verdict.REGRESSED, Reason.WORSE_THAN_ACCEPTED)


def test_the_comment_uses_the_same_baseline_as_the_gate() -> None:
    timed = make_timed(implementation="triton")
    records = make_records([timed, BASE], [timed, SPILLS])

    judgement = judge_pull_request(*records, baseline=ACCEPTED)

    assert exit_code(judge_pull_request(*records).verdict) == 1
    assert exit_code(judgement.verdict) == 0
    assert "| accepted: local memory per thread " in to_markdown(judgement)
    assert "accepted: `the tile pays for it`" in to_markdown(judgement)


# --- the file


@given(reason=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), share=st.floats(0, 1))
def test_a_written_baseline_reads_back_equal(reason: str, share: float) -> None:
    facts = [
        make_static_facts(
            function=reason[:100], theoretical_occupancy=round(share, 6), registers=2**31
        )
    ]
    baseline = with_accepted({}, [*facts, make_static_facts(outcome=Outcome.UNSUPPORTED)], reason)

    assert parse_baseline(to_toml(baseline), name="f") == baseline


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = ", "f: cannot be read as TOML"),
        ("version = 2", "f: version: Input should be 1"),
        (
            "version = 1\n[[accepted]]\ncase_id = 'c'",
            "f: accepted.0.implementation: Field required",
        ),
        (to_toml(ACCEPTED) + to_toml(ACCEPTED).split("version = 1\n")[1], "is accepted twice"),
        (
            to_toml(ACCEPTED).replace("= 96", "= -1"),
            "f: accepted.0.local_bytes: Input should be greater",
        ),
    ],
)
def test_an_invalid_file_is_reported_with_its_place(text: str, words: str) -> None:
    with pytest.raises(BaselineError, match=r"f: .*|accepted twice") as error:
        parse_baseline(text, name="f")
    assert words in str(error.value)
