"""What is told after a run of `roofwatch watch`, and what waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from roofwatch.ci.watching.news import News, NewsKind, list_news
from roofwatch.model.agenda import SuspectCase, WatchState
from roofwatch.model.history import Regression
from roofwatch.model.verdict import Verdict
from tests.builders import CASE_ID, NOON, make_change_point, make_commit_ref, make_regression

COMMITS = tuple(make_commit_ref(number) for number in range(10))


def regression(number: int = 4, base: int | None = None) -> Regression:
    before = number - 1 if base is None else base
    point = make_change_point(number, previous_commit=COMMITS[before])
    return make_regression(number, change_points=(point,), is_confirmed=True)


def suspect(base: int, head: int) -> SuspectCase:
    return SuspectCase(
        subject=(CASE_ID, "torch"),
        evidence="+20.0% in one pair",
        weight=9.0,
        base=COMMITS[base],
        head=COMMITS[head],
        since=NOON,
    )


def news(
    *regressions: Regression,
    suspects: tuple[SuspectCase, ...] = (),
    told: list[News] | None = None,
    nights: int = 0,
) -> list[News]:
    state = WatchState(commits=COMMITS, measured=frozenset(), suspects=suspects)
    now = NOON + timedelta(days=nights)
    return list_news(state, regressions, told or [], now=now)


def kinds_of(told: list[News]) -> list[NewsKind]:
    return [message.kind for message in told]


def test_a_confirmed_regression_is_told_once() -> None:
    first = news(regression())

    assert kinds_of(first) == [NewsKind.REGRESSED]
    assert first[0].sha == COMMITS[4].sha
    assert first[0].is_alert
    assert news(regression(), told=first) == []


def test_a_change_that_one_pair_shows_waits_for_the_second() -> None:
    assert news(regression(), suspects=(suspect(3, 4),)) == []
    assert news(regression(), suspects=(suspect(6, 7),)) != []


def test_an_improvement_is_not_told() -> None:
    assert news(replace(regression(), verdict=Verdict.IMPROVED)) == []


def test_an_unconfirmed_change_is_not_told() -> None:
    assert news(replace(regression(), is_confirmed=False)) == []


def test_a_range_that_was_narrowed_to_a_commit_is_told_as_located() -> None:
    told = news(regression(6, base=2))

    located = news(regression(4), told=told)

    assert kinds_of(told) == [NewsKind.REGRESSED]
    assert kinds_of(located) == [NewsKind.LOCATED]
    assert located[0].sha == COMMITS[4].sha
    assert news(regression(4), told=[*told, *located]) == []


def test_the_end_of_a_regression_that_was_told_is_told_once() -> None:
    told = news(regression())
    repaired = replace(regression(), recovered_at=COMMITS[7])

    ended = news(repaired, told=told)

    assert kinds_of(ended) == [NewsKind.RECOVERED]
    assert news(repaired, told=[*told, *ended]) == []
    assert news(repaired, told=told, suspects=(suspect(6, 7),)) == []


def test_a_second_regression_of_a_kernel_is_told_too() -> None:
    told = news(regression(4))

    assert kinds_of(news(regression(4), regression(7), told=told)) == [NewsKind.REGRESSED]


def test_a_suspicion_that_waited_two_nights_is_told_once_as_unconfirmed() -> None:
    waiting = (suspect(3, 4),)

    told = news(suspects=waiting, nights=2)

    assert news(suspects=waiting, nights=1) == []
    assert kinds_of(told) == [NewsKind.UNCONFIRMED]
    assert news(suspects=waiting, told=told, nights=3) == []


def test_a_suspicion_that_pairs_cannot_decide_is_told_at_once() -> None:
    given_up = replace(suspect(3, 4), is_given_up=True)

    told = news(suspects=(given_up,))

    assert kinds_of(told) == [NewsKind.UNCONFIRMED]
    assert kinds_of(news(regression(), suspects=(given_up,), told=told)) == [NewsKind.REGRESSED]
