"""A possible slowdown that nobody decided raises one alert."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from roofwatch.ci.alerts.project_state import ProjectState
from roofwatch.ci.alerts.rules import RegressionRule
from roofwatch.ci.alerts.suspicions import suspicion_conditions
from roofwatch.ci.history.recent import KernelSuspicion
from roofwatch.model.stored_results import RunnerRun
from tests.builders import NOON, make_commit_ref

H100 = "H100, 80 GiB"
RULE = RegressionRule(name="regressions", kind="regression", channels=["chat"])
SLOWER = KernelSuspicion(
    kernel="gemm",
    runner_class=H100,
    relative_change=0.2,
    is_worse=True,
    is_imported=False,
    series_count=1,
    run_count=1,
    count_before=20,
    base=make_commit_ref(5),
    head=make_commit_ref(6),
)


def state_of(change: KernelSuspicion, seen_at: datetime = NOON) -> ProjectState:
    runs = [
        RunnerRun(
            run_id=UUID(int=number),
            device_name="H100",
            started_at=seen_at - timedelta(days=6 - number),
            harness_version="1",
            commit=make_commit_ref(number),
        )
        for number in (5, 6)
    ]
    return ProjectState(project="acme/kernels", runs={H100: runs}, possible_changes=[change])


@pytest.mark.parametrize(("waiting_days", "is_told"), [(0, False), (1.9, False), (2.1, True)])
def test_a_suspicion_is_told_when_nobody_decided_it_for_two_nights(
    waiting_days: float, is_told: bool
) -> None:
    now = NOON + timedelta(days=waiting_days)

    conditions = suspicion_conditions(RULE, state_of(SLOWER), now)

    assert [condition.message.title for condition in conditions] == (
        ["unconfirmed: gemm +20 % on H100, not measured as a pair yet"] if is_told else []
    )


def test_later_nights_are_the_same_cause() -> None:
    now = NOON + timedelta(days=3)
    later = replace(SLOWER, run_count=2, head=make_commit_ref(7))

    (first,) = suspicion_conditions(RULE, state_of(SLOWER), now)
    (second,) = suspicion_conditions(RULE, state_of(later), now)

    assert first.cause == second.cause


@pytest.mark.parametrize(
    "change",
    [
        replace(SLOWER, is_worse=False),
        replace(SLOWER, is_imported=True),
        replace(SLOWER, relative_change=0.01),
    ],
)
def test_a_suspicion_that_matters_to_nobody_is_not_told(change: KernelSuspicion) -> None:
    rule = RULE.model_copy(update={"min_relative_change": 0.05})

    assert suspicion_conditions(rule, state_of(change), NOON + timedelta(days=9)) == []
