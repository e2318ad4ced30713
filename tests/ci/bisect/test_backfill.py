"""The order in which commits are measured."""

from collections.abc import Collection

from roofwatch.ci.bisect.backfill_order import Aim, KnownChange, choose_order

CHANGE = KnownChange(before=2, after=9, summary="rms_norm 20 % slower")


def places(
    count: int, measured: Collection[int] = (), skipped: Collection[int] = (), *changes: KnownChange
) -> list[int]:
    order = choose_order(count, measured=measured, skipped=skipped, changes=changes)
    return [choice.position for choice in order]


def test_known_changes_are_narrowed_down_first() -> None:
    order = choose_order(20, measured=[2, 9], skipped=[], changes=[CHANGE])

    assert {choice.position for choice in order[:6]} == {3, 4, 5, 6, 7, 8}
    assert order[0].position == 6
    assert order[0].aim is Aim.CHANGE
    assert order[0].reason == "halves 6 unmeasured commits: rms_norm 20 % slower"


def test_then_the_newest_then_the_longest_gap_halved() -> None:
    order = choose_order(17, measured=[0, 4], skipped=[], changes=[])

    assert [(choice.position, choice.aim) for choice in order[:2]] == [(16, Aim.NEWEST), (10, Aim.GAP)]
    assert order[1].reason == "halves 11 unmeasured commits"
    assert order[-1].reason == "fills the gap"


def test_measured_and_skipped_commits_are_left_out() -> None:
    found = places(30, [3, 17], [5, 6, 29], CHANGE)

    assert sorted(found) == sorted(set(range(30)) - {3, 17, 5, 6, 29})
