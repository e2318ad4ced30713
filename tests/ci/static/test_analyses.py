"""Overflows, smaller limits, more bytes and new waits are regressions without any measured time."""

from typing import Any

from roofwatch.ci.judge.change import Change
from roofwatch.ci.static.analyses import AnalysisEvidence, analyses_of, judge_analyses
from roofwatch.ci.static.baseline import (
    AppliedBaseline,
    Baseline,
    apply_baseline,
    parse_baseline,
    tightened,
    to_toml,
    with_accepted,
)
from roofwatch.ci.static.comparison import is_listed
from roofwatch.model.proofs import (
    OperatorCost,
    OverflowProof,
    Proof,
    SizeLimit,
    UnprovenAccess,
)
from roofwatch.model.verdict import Reason, Verdict

NAMED = {"case_id": "swiglu/n_rows=8192/bfloat16/fwd", "implementation": "triton"}
OVERFLOW = UnprovenAccess(
    function="_swiglu_kernel",
    pointer="x_ptr",
    kind="load",
    proof=Proof.UNSAFE,
    reason="a 32-bit integer reaches 3,758,082,048",
    file="swiglu.py",
    line=20,
)


def proof(largest: int | None = None, *, is_unsafe: bool = False) -> OverflowProof:
    limit = SizeLimit(dimension="n_rows", declared=8_192, largest=largest or 1, first=OVERFLOW)
    return OverflowProof(
        **NAMED,
        proof=Proof.UNSAFE if is_unsafe else Proof.FITS,
        access_count=3,
        unproven=(OVERFLOW,) if is_unsafe else (),
        limits=() if largest is None else (limit,),
        searched=() if is_unsafe else ("n_rows",),
    )


def cost(**fields: Any) -> OperatorCost:
    usual = {"kernel_bytes": 3_000_000, "peak_bytes": 1_000_000, "launch_count": 1}
    return OperatorCost(**NAMED, target="sm_90", **{**usual, **fields})


Result = OverflowProof | OperatorCost


def judged(base: Result | None, head: Result) -> list[Change[AnalysisEvidence]]:
    sides = []
    for result in (base, head):
        proofs = [result] if isinstance(result, OverflowProof) else []
        costs = [result] if isinstance(result, OperatorCost) else []
        sides.append(analyses_of(proofs, costs))
    return judge_analyses(*sides)


def test_an_overflow_at_a_declared_size_is_a_regression_with_any_base() -> None:
    for base in (proof(), None):
        (item,) = judged(base, proof(is_unsafe=True))

        assert (item.verdict, item.reason) == (Verdict.REGRESSED, Reason.OFFSET_OVERFLOW)
        assert str(item.detail) == (
            "overflows: load of x_ptr in _swiglu_kernel: a 32-bit integer reaches 3,758,082,048 "
            "(swiglu.py:20)"
        )


def test_an_overflow_that_the_base_has_too_is_no_regression() -> None:
    (item,) = judged(proof(is_unsafe=True), proof(is_unsafe=True))

    assert (item.verdict, item.reason) == (Verdict.UNCHANGED, Reason.ALREADY_FAILING)
    assert is_listed(item)


def test_a_smaller_limit_is_a_regression() -> None:
    (smaller,) = judged(proof(149_797), proof(74_898))

    assert smaller.verdict is Verdict.REGRESSED
    assert str(smaller.detail) == "offsets fit up to n_rows = 149,797 → 74,898"


def test_a_larger_limit_is_an_improvement() -> None:
    (larger,) = judged(proof(149_797), proof())

    assert larger.verdict is Verdict.IMPROVED
    assert str(larger.detail) == "offsets fit up to n_rows = 149,797 → at any size"


def test_a_limit_where_there_was_none_is_a_regression() -> None:
    base = proof().model_copy(update={"limits": ()})
    (limited,) = judged(base, proof(8_388_608))

    assert (limited.verdict, limited.reason) == (Verdict.REGRESSED, Reason.OFFSET_LIMIT_CHANGED)
    assert str(limited.detail) == "offsets fit at any n_rows → only up to 8,388,608"


def test_an_equal_limit_is_no_change() -> None:
    assert judged(proof(149_797), proof(149_797)) == []


def test_a_limit_that_was_not_searched_on_both_sides_is_not_compared() -> None:
    unfinished = proof().model_copy(update={"searched": ()})

    assert judged(unfinished, proof(149_797)) == []


def test_an_extra_copy_in_a_launcher_is_a_regression() -> None:
    copied = cost(
        calls={"clone": 1}, read_bytes=1_000_000, written_bytes=1_000_000, peak_bytes=2_000_000
    )
    (item,) = judged(cost(), copied)

    assert (item.verdict, item.reason) == (Verdict.REGRESSED, Reason.OPERATOR_COST_CHANGED)
    assert str(item.detail) == (
        "bytes moved 2.861 MiB → 4.768 MiB, memory of temporaries and results 976.6 KiB → "
        "1.907 MiB, clone 0 → 1"
    )


def test_a_new_wait_for_the_device_is_a_regression() -> None:
    (item,) = judged(cost(), cost(wait_count=1, calls={"item": 1}))

    assert item.verdict is Verdict.REGRESSED
    assert str(item.detail) == "waits for the device 0 → 1, item 0 → 1"


def test_reading_a_flag_of_a_few_bytes_is_no_change() -> None:
    assert judged(cost(), cost(read_bytes=64)) == []


def test_more_launches_decide_nothing() -> None:
    assert judged(cost(), cost(launch_count=2, allocation_count=5)) == []


# --- the baseline


def applied(baseline: Baseline, head: Result) -> AppliedBaseline:
    before = cost() if isinstance(head, OperatorCost) else proof()
    proofs = [head] if isinstance(head, OverflowProof) else []
    costs = [head] if isinstance(head, OperatorCost) else []
    return apply_baseline(baseline, judged(before, head), analyses_of(proofs, costs))


def accepting(head: Result) -> Baseline:
    proofs = [head] if isinstance(head, OverflowProof) else []
    costs = [head] if isinstance(head, OperatorCost) else []
    return with_accepted({}, analyses_of(proofs, costs), "the caller needs a copy")


def test_an_accepted_cost_does_not_fail_again_unless_it_grows() -> None:
    accepted = accepting(cost(read_bytes=1_000_000))

    (same,) = applied(accepted, cost(read_bytes=1_000_000)).changes
    (more,) = applied(accepted, cost(read_bytes=2_000_000)).changes

    assert (same.verdict, same.reason) == (Verdict.UNCHANGED, Reason.ACCEPTED)
    assert more.verdict is Verdict.REGRESSED
    assert str(more.detail).endswith("worse than accepted")


def test_an_accepted_overflow_stays_accepted() -> None:
    unsafe = proof(is_unsafe=True)
    (item,) = applied(accepting(unsafe), unsafe).changes

    assert (item.verdict, item.reason) == (Verdict.UNCHANGED, Reason.ACCEPTED)


def test_the_file_keeps_accepted_analyses() -> None:
    accepted = accepting(cost(read_bytes=1_000_000))
    text = to_toml(accepted)

    assert parse_baseline(text, name="file") == accepted
    assert "[[accepted_analysis]]" in text


def test_a_lower_cost_tightens_the_accepted_one() -> None:
    accepted = accepting(cost(read_bytes=1_000_000))
    better = applied(accepted, cost(read_bytes=100_000))
    (entry,) = tightened(accepted, better).values()
    assert entry == next(iter(accepting(cost(read_bytes=100_000)).values()))
