"""The order in which commits are measured."""

from collections.abc import Sequence

from roofwatch.bisection.backfill import Aim, Backfill, plan_backfill
from roofwatch.model.history import Regression
from tests.builders import make_change_point, make_commit_ref, make_regression, sha_of


def planned(
    count: int,
    measured: Sequence[int],
    *,
    skipped: Sequence[int] = (),
    changed_at: int | None = None,
) -> Backfill:
    refs = [make_commit_ref(number) for number in range(count)]
    regressions: list[Regression] = []
    if changed_at is not None:
        regressions.append(
            make_regression(changed_at, change_points=(make_change_point(changed_at),))
        )
    reasons = {sha_of(number): "same sources" for number in skipped}
    return plan_backfill(refs, {sha_of(number) for number in measured}, regressions, reasons)


def test_known_changes_are_narrowed_down_first() -> None:
    todo = planned(20, [2, 15], changed_at=8).todo

    assert todo[0].commit == make_commit_ref(9)
    assert todo[0].aim is Aim.CHANGE
    assert todo[0].reason.startswith("halves 12 unmeasured commits: ")
    assert todo[1].commit == make_commit_ref(6)


def test_then_the_newest_then_the_longest_gap_halved() -> None:
    todo = planned(17, [0, 4]).todo

    assert [(choice.commit, choice.aim) for choice in todo[:2]] == [
        (make_commit_ref(16), Aim.NEWEST),
        (make_commit_ref(10), Aim.GAP),
    ]
    assert todo[1].reason == "halves 11 unmeasured commits"
    assert todo[-1].reason == "fills the gap"


def test_measured_and_skipped_commits_are_left_out() -> None:
    plan = planned(30, [3, 17], skipped=[3, 5, 6, 29])

    left_out = {*plan.measured, *(ref for ref, _ in plan.skipped)}
    assert left_out == {make_commit_ref(number) for number in (3, 17, 5, 6, 29)}
    assert len(plan.todo) == 25
    assert {choice.commit for choice in plan.todo}.isdisjoint(left_out)
