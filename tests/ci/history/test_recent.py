"""The newest runs: noise, changes too new to judge, and two runs side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofwatch.ci.history.recent import (
    is_judged,
    noise_from_history,
    possible_changes,
)
from roofwatch.model.history import Pair
from roofwatch.model.stored_results import RecentRuns, RecentSeries
from tests.builders import make_change_point, make_commit_ref, make_regression, make_series_key
from tests.ci.values import make_pair, stepped

COUNT = 30


def runs(*series: list[float], runner_class: str = "H200") -> RecentRuns:
    """One series per implementation over the same commits."""
    return RecentRuns(
        runner_class,
        tuple(make_commit_ref(number) for number in range(COUNT)),
        tuple(
            RecentSeries(
                make_series_key(implementation=f"way {number}", runner_class=runner_class),
                "events, cold",
                tuple(range(COUNT)),
                tuple(values),
            )
            for number, values in enumerate(series)
        ),
    )


@pytest.mark.parametrize("count", [1, 3])
def test_a_step_in_the_newest_runs_is_a_possible_change_until_it_is_judged(count: int) -> None:
    recent = runs(
        *(stepped(count=COUNT, at=COUNT - count, factor=1.5, seed=seed) for seed in range(2))
    )

    (found,) = possible_changes([recent], [])

    assert (found.kernel, found.runner_class) == ("rms_norm", "H200")
    assert (found.series_count, found.run_count) == (2, count)
    assert found.relative_change == pytest.approx(0.5, abs=0.05)
    assert (found.base, found.head) == (
        make_commit_ref(COUNT - count - 1),
        make_commit_ref(COUNT - 1),
    )
    points = tuple(make_change_point(COUNT - count, series=one.key) for one in recent.series)
    assert possible_changes([recent], [make_regression(change_points=points)]) == []


def few(*values: float) -> list[str]:
    recent = replace(
        runs([value * 1e6 for value in values]),
        commits=tuple(make_commit_ref(number) for number in range(len(values))),
    )
    series = replace(recent.series[0], places=tuple(range(len(values))))
    return [change.claim for change in possible_changes([replace(recent, series=(series,))], [])]


def test_a_change_among_too_few_values_is_undecided() -> None:
    slower = (1.0, 1.02, 10.1, 10.8, 10.4, 11.9)

    assert few(*slower) == [
        "undecided: 4 values since a possible change of +949 %; judged after a pair or 1 more and "
        "1 more of earlier commits"
    ]
    assert not is_judged(slower)
    assert few(*slower[:3]) == [
        "undecided: 1 value since a possible change of +900 %; judged after a pair or 4 more and "
        "1 more of earlier commits"
    ]
    assert few(1.0, 1.3) == []
    assert not is_judged((1.0, 1.3))
    assert few(1.0, 1.1, 0.95, 1.2, 1.05, 1.0) == []
    assert is_judged((1.0, 1.1, 0.95, 1.2, 1.05, 1.0))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(stepped(count=COUNT, at=COUNT - 8), id="old"),
        pytest.param(stepped(count=COUNT, at=COUNT - 2, factor=1.03), id="small"),
        pytest.param([*stepped(count=COUNT - 1, at=COUNT - 2, factor=1.5), 1e6], id="ended"),
    ],
)
def test_a_step_without_news_is_no_possible_change(values: list[float]) -> None:
    assert possible_changes([runs(values)], []) == []


SLOWER_NS = [1e6, 1.01e6, 0.99e6, 1e6, 1.5e6, 1.51e6]


def possible(values: list[float], *pairs: Pair) -> list[float]:
    """The relative changes that are possible after some pairs."""
    commits = tuple(make_commit_ref(number) for number in range(len(values)))
    key = make_series_key(implementation="torch")
    series = RecentSeries(key, "events, cold", tuple(range(len(values))), tuple(values))
    runner = RecentRuns("H200", commits, (series,), pairs)
    return [change.relative_change for change in possible_changes([runner], [])]


def test_a_possible_change_ends_with_its_pair() -> None:
    unchanged = make_pair(3, 4)

    assert len(possible(SLOWER_NS)) == 1
    assert possible(SLOWER_NS, unchanged) == []
    assert possible([*SLOWER_NS, 1.49e6], unchanged) == []


def test_an_undecided_pair_ends_no_possible_change() -> None:
    assert len(possible(SLOWER_NS, make_pair(3, 4, noise=0.5))) == 1


def test_a_possible_change_comes_back_with_other_values() -> None:
    (again,) = possible([*SLOWER_NS, 1.49e6, 2.5e6], make_pair(3, 4))

    assert again == pytest.approx(0.66, abs=0.02)


def test_noise_alone_is_rarely_a_possible_change() -> None:
    found = [
        change
        for seed in range(20)
        for change in possible_changes(
            [
                runs(
                    *(
                        stepped(count=COUNT, factor=1.0, noise=0.03, seed=100 * seed + one)
                        for one in range(50)
                    )
                )
            ],
            [],
        )
    ]
    # of a thousand series
    assert sum(one.series_count for one in found) <= 10


def test_the_noise_of_a_runner_is_that_of_its_runs_whatever_the_steps() -> None:
    noisy = [stepped(count=COUNT, at=15, noise=0.07, seed=seed) for seed in range(9)]
    found = noise_from_history([runs(*noisy), runs(stepped(count=COUNT)[:5], runner_class="new")])
    assert set(found) == {"H200"}
    assert found["H200"].deviation == pytest.approx(0.07, rel=0.3)
    assert found["H200"].series_count == 9
