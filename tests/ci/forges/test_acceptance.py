"""What an acceptance covers."""

from collections.abc import Sequence
from typing import Any

import pytest

from roofwatch.ci.forges.acceptance import Acceptance, findings_of
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.machine import Outcome
from tests.builders import make_accuracy, make_static_facts, make_tensor_error, sha_of
from tests.ci.situations import head_timed
from tests.ci.values import SOFTMAX, Result, make_records, make_timed


def covers(base: Sequence[Result], accepted: Sequence[Result], later: Sequence[Result]) -> bool:
    """Whether an acceptance of one head covers a later head."""
    then, now = (
        findings_of([judge_pull_request(*make_records(base, head))], sha_of(1))
        for head in (accepted, later)
    )
    assert then is not None
    assert now is not None
    return Acceptance(comment_id=1, most=then.most, wrong_results=True).covers(now)


def slower(first: float, second: float) -> list[Result]:
    return [head_timed(median_ns=first * 1e6), head_timed(SOFTMAX, median_ns=second * 1e6)]


def spilling(local_bytes: int, **fields: Any) -> Result:
    return make_static_facts(code=f"spills {local_bytes}", local_bytes=local_bytes, **fields)


def wrong(rmse_ratio: float, **fields: Any) -> Result:
    return make_accuracy(outcome=Outcome.INCORRECT, rmse_ratio=rmse_ratio, **fields)


TIMED = [make_timed(), make_timed(SOFTMAX)]
RIGHT = [make_accuracy()]
NAN: dict[str, Any] = {"tensors": ()}
CRASHED, TIMED_OUT = (
    make_accuracy(outcome=outcome) for outcome in (Outcome.CRASHED, Outcome.TIMED_OUT)
)


@pytest.mark.parametrize(
    ("base", "accepted", "later", "is_covered"),
    [
        pytest.param(TIMED, slower(2.3, 1.08), slower(2.3, 1.08), True, id="the same"),
        pytest.param(
            TIMED,
            slower(2.3, 1.08),
            slower(2.3, 2.2),
            False,
            id="one case far worse, less than another",
        ),
        pytest.param(TIMED, slower(2.3, 1.08), slower(2.3, 1.0), True, id="one case fixed"),
        pytest.param(TIMED, slower(2.3, 1.0), slower(2.3, 1.08), False, id="one case more"),
        pytest.param([spilling(0)], [spilling(16)], [spilling(16)], True, id="the same spills"),
        pytest.param([spilling(0)], [spilling(16)], [spilling(512)], False, id="more spills"),
        pytest.param(
            [spilling(0)],
            [spilling(16)],
            [spilling(16, spill_store_count=9)],
            True,
            id="unknown before",
        ),
        pytest.param(RIGHT, [wrong(0.3)], [wrong(0.31)], True, id="the same error"),
        pytest.param(RIGHT, [wrong(0.3)], [wrong(3.0)], False, id="a larger error"),
        pytest.param(RIGHT, [wrong(0.3)], [wrong(0.3, **NAN)], False, id="NaN"),
        pytest.param(RIGHT, [wrong(0.3, **NAN)], [wrong(0.3)], True, id="no NaN any more"),
        pytest.param(RIGHT, [TIMED_OUT], [TIMED_OUT], True, id="the same failure"),
        pytest.param(RIGHT, [TIMED_OUT], [CRASHED], False, id="another failure"),
    ],
)
def test_an_acceptance_is_bounded_for_each_finding(
    base: Sequence[Result], accepted: Sequence[Result], later: Sequence[Result], is_covered: bool
) -> None:
    assert covers(base, accepted, later) is is_covered


def test_a_second_tensor_with_nan_is_not_covered() -> None:
    good, bad = (
        make_tensor_error(tensor="out", rmse_ratio=0.3, passed=passed) for passed in (True, False)
    )
    other = make_tensor_error(tensor="grad_x")

    base, accepted = [make_accuracy(tensors=(good, other))], [wrong(0.3, tensors=(bad, other))]

    assert covers(base, accepted, accepted)
    assert not covers(base, accepted, [wrong(0.3, tensors=(bad,))]), (
        "a tensor with NaN is not in the record"
    )
