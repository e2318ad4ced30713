"""What runs spent, in hours, energy and money."""

from __future__ import annotations

from roofwatch.dashboard.charts.spending import hours_by_activity
from roofwatch.dashboard.views.fleet import Spent
from tests.builders import make_commit_ref, make_environment
from tests.dashboard.values import make_fleet_run

HALF_HOUR_NS = 1_800_000_000_000


def test_time_without_an_activity_is_not_counted() -> None:
    runs = [make_fleet_run(spent_ns={"timing": HALF_HOUR_NS // 2}), make_fleet_run()]
    commit = make_commit_ref()
    assert list(hours_by_activity(runs)) == [
        (commit, "timing", 0.25),
        (commit, "not counted", 0.25),
        (commit, "not counted", 0.5),
    ]


def test_the_first_pattern_that_matches_a_runner_class_is_its_price() -> None:
    spent = Spent([make_fleet_run()], {}, {"NVIDIA H200*": 6.0, "NVIDIA*": 2.0}, "USD")
    assert spent.money == 3.0
    assert Spent(spent.runs, {}, {"NVIDIA L4*": 6.0, "NVIDIA*": 2.0}, "USD").money == 1.0
    assert spent.money_of(make_fleet_run(environment=make_environment())) is None


def test_energy_and_money_are_sums_of_what_is_known() -> None:
    runs = [make_fleet_run(0, environment=make_environment()), make_fleet_run(1), make_fleet_run(2)]
    spent = Spent(runs, {"run 1": 100.0, "run 2": 300.0}, {"NVIDIA*": 2.0}, "USD")
    assert (spent.energy_j, spent.money, spent.watched.commit_count) == (400.0, 2.0, 2)
    unknown = Spent(runs[:1], {}, {}, "USD")
    assert (unknown.energy_j, unknown.money) == (None, None)
