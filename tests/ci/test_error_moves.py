"""Results that got less accurate within their tolerance: told, and no reason to fail."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofwatch.ci.ab.changes import Change, find_accuracy_changes
from roofwatch.ci.gate import exit_code
from roofwatch.ci.reason import Reason
from roofwatch.ci.report.comment import tally, to_markdown
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import Accuracy
from roofwatch.db.values import Verdict
from tests.builders import CASE_ID, make_accuracy, make_environment, make_tensor_error
from tests.ci.values import make_records, make_timed

FLIPPED = {Reason.LESS_ACCURATE: Reason.MORE_ACCURATE, Reason.MORE_ACCURATE: Reason.LESS_ACCURATE}


def moves(base: Accuracy, head: Accuracy, *, of_head: dict[str, Any] | None = None) -> list[tuple[Reason, str]]:
    found = find_accuracy_changes(*make_records([base], [head], head_fields=of_head), relative_change=0.5)
    return [(move.reason, move.part) for move in found]


@pytest.mark.parametrize(
    ("base", "head", "reason"),
    [
        (1e-6, 1e-6, None),
        (1e-6, 1.4e-6, None),
        (1e-6, 1.6e-6, Reason.LESS_ACCURATE),
        (1.6e-6, 1e-6, Reason.MORE_ACCURATE),
        (0.0, 1e-6, Reason.LESS_ACCURATE),
        (1e-6, 0.0, Reason.MORE_ACCURATE),
        (0.0, 0.0, None),
        (1e-9, 1e-7, None),
        (1e-9, 2e-7, Reason.LESS_ACCURATE),
    ],
)
def test_an_error_that_half_as_much_was_added_to_is_told_unless_one_rounding_is_as_large(
    base: float, head: float, reason: Reason | None
) -> None:
    found = moves(make_accuracy(rmse_ratio=base), make_accuracy(rmse_ratio=head))

    assert found == ([] if reason is None else [(reason, "out")])


def test_in_double_precision_the_rounding_is_a_double_s() -> None:
    case_id = CASE_ID.replace("float32", "float64")

    assert moves(make_accuracy(case_id, rmse_ratio=1e-15), make_accuracy(case_id, rmse_ratio=4e-15))


def test_each_result_is_compared_with_itself() -> None:
    def checked(out: float, grad: float) -> Accuracy:
        return make_accuracy(
            tensors=(make_tensor_error(rmse_ratio=out), make_tensor_error(tensor="grad_x", rmse_ratio=grad))
        )

    assert moves(checked(5e-6, 1e-6), checked(5e-6, 4e-6)) == [(Reason.LESS_ACCURATE, "grad_x")]
    assert moves(checked(5e-6, 1e-6), checked(1e-6, 5e-6)) == [
        (Reason.LESS_ACCURATE, "grad_x"),
        (Reason.MORE_ACCURATE, "out"),
    ]


@pytest.mark.parametrize("failing", ["base", "head"])
def test_a_wrong_result_is_a_verdict_and_no_matter_of_degree(failing: str) -> None:
    wrong = make_accuracy(outcome=Outcome.INCORRECT, rmse_ratio=0.3)

    assert moves(*((wrong, make_accuracy()) if failing == "base" else (make_accuracy(), wrong))) == []


def test_errors_of_another_device_do_not_compare_and_those_of_the_interpreter_do() -> None:
    other = {"environment": make_environment(device_name="Other CPU")}
    base, head = make_accuracy(rmse_ratio=1e-7), make_accuracy(rmse_ratio=1e-5)

    assert moves(base, head, of_head=other) == []
    interpreted = [one.model_copy(update={"executor": "interpreter"}) for one in (base, head)]
    assert moves(*interpreted, of_head=other) == [(Reason.LESS_ACCURATE, "out")]
    assert moves(base, interpreted[1]) == []


@given(base=st.floats(0, 1e-2), head=st.floats(0, 1e-2))
def test_swapping_the_sides_flips_the_word_and_nothing_else(base: float, head: float) -> None:
    there = moves(make_accuracy(rmse_ratio=base), make_accuracy(rmse_ratio=head))
    back = moves(make_accuracy(rmse_ratio=head), make_accuracy(rmse_ratio=base))

    assert back == [(FLIPPED[reason], tensor) for reason, tensor in there]


def test_it_is_told_and_fails_nothing() -> None:
    base, head = make_records(
        [make_timed(), make_accuracy(rmse_ratio=1e-7)], [make_timed(), make_accuracy(rmse_ratio=8e-6)]
    )

    judgement = judge_pull_request(base, head)

    assert judgement.verdict is Verdict.UNCHANGED
    assert exit_code(judgement) == 0
    assert tally(judgement) == "1 unchanged; 1 result less accurate"
    assert "| less accurate | `rms_norm/" in to_markdown(judgement)
    assert "| 1.00e-07 → 8.00e-06 | × 80 |" in to_markdown(judgement)


def test_an_exact_result_has_no_factor() -> None:
    move = Change(CASE_ID, "eager", "rmse_ratio", 0.0, 2e-7, reason=Reason.LESS_ACCURATE, part="out")

    assert move.log_ratio == math.inf
    (told,) = find_accuracy_changes(
        *make_records([make_accuracy(rmse_ratio=0.0)], [make_accuracy(rmse_ratio=2e-7)]), relative_change=0.5
    )
    assert told == move
