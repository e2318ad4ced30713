"""What a change of a kernel costs a step of a workload."""

import math
from dataclasses import replace

import pytest

from roofwatch.ci.ab.prediction import changes_of, functions_of, predict_steps
from roofwatch.ci.judge.change import Change, ChangeSubject
from roofwatch.model.stored_results import StepShare
from roofwatch.model.verdict import Reason
from tests.builders import make_change_point, make_static_facts

STEP = "transformer_training/B=1,T=128/bfloat16/fwd"
FORWARD, BACKWARD = (
    f"rms_norm/n_rows=64,n_cols=128/bfloat16/{direction}" for direction in ("fwd", "bwd")
)


def make_change(
    case_id: str = FORWARD,
    *,
    implementation: str = "triton",
    change: float = 0.08,
    interval: tuple[float, float] = (0.05, 0.11),
    reason: Reason = Reason.BEYOND_THRESHOLD,
) -> Change[None]:
    """A relative change of the time of a case."""
    low, high = interval
    return Change(
        subject=ChangeSubject(case_id, implementation),
        metric="median_ns",
        log_ratio=math.log1p(change),
        log_interval=(math.log1p(low), math.log1p(high)),
        reason=reason,
        evidence=None,
    )


SLOWER = make_change()
FUNCTIONS = functions_of(
    [make_static_facts(FORWARD), make_static_facts(BACKWARD, function="_rms_norm_grad_kernel#2")]
)
SHARES = [
    StepShare(STEP, "triton", "_rms_norm_kernel", 0.1),
    StepShare(STEP, "triton", "_rms_norm_grad_kernel", 0.3),
    StepShare(STEP, "triton", "_rotary_kernel", 0.2),
    StepShare(STEP, "torch", "aten::mm", 0.7),
]


@pytest.mark.parametrize(("case_id", "share"), [(FORWARD, 0.1), (BACKWARD, 0.3)])
def test_a_step_changes_by_the_share_of_the_changed_functions(case_id: str, share: float) -> None:
    repeated = replace(SHARES[0], share=0.12)  # of one function and step, the first counts

    (found,) = predict_steps([make_change(case_id)], FUNCTIONS, [*SHARES, repeated])

    assert found.subject == ChangeSubject(STEP, "triton")
    assert found.evidence.share == share
    assert found.relative_change == pytest.approx(0.08 * share)
    assert found.relative_interval == pytest.approx((0.05 * share, 0.11 * share))


def test_the_interval_covers_the_spread_of_the_share_over_the_recorded_steps() -> None:
    share = StepShare(STEP, "triton", "_rms_norm_kernel", 0.1, low=0.09, high=0.11)

    (found,) = predict_steps([SLOWER], FUNCTIONS, [share])

    spread = 0.01 * 1.96 / 0.6745  # quartiles to the 95 % of a normal distribution
    assert found.evidence.share == pytest.approx(0.1)
    assert found.relative_change == pytest.approx(0.008)
    assert found.relative_interval == pytest.approx(
        (0.05 * (0.1 - spread), 0.11 * (0.1 + spread)), rel=1e-3
    )


def test_the_interval_covers_cases_that_changed_differently() -> None:
    longer = FORWARD.replace("128", "8192")
    same = make_change(longer, change=0.0, interval=(-0.01, 0.01), reason=Reason.WITHIN_THRESHOLD)
    changes = [SLOWER, same]

    (found,) = predict_steps(changes, FUNCTIONS, SHARES)

    assert found.evidence.kernel_change == pytest.approx(0.04)
    assert found.relative_interval == pytest.approx((-0.001, 0.011))


@pytest.mark.parametrize(
    "change",
    [
        make_change(reason=Reason.WITHIN_THRESHOLD),
        make_change(implementation="torch"),
        make_change(FORWARD.replace("bfloat16", "float32")),
        make_change(STEP),
    ],
    ids=["no reported change", "functions unknown", "another dtype", "the workload itself"],
)
def test_nothing_is_predicted_without_a_change_of_a_function_of_the_step(
    change: Change[None],
) -> None:
    assert (
        predict_steps([change], FUNCTIONS | {(STEP, "triton"): {"_rms_norm_kernel"}}, SHARES) == ()
    )


def test_a_change_point_has_the_interval_of_its_standard_errors() -> None:
    point = make_change_point(before=10_000.0, after=11_000.0, standard_errors=10.0)

    (change,) = changes_of([point, make_change_point(is_gradual=True)])

    assert change.relative_change == pytest.approx(0.1)
    assert change.relative_interval == pytest.approx((1.1**0.804 - 1, 1.1**1.196 - 1), rel=1e-3)
