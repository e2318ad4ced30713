import pytest

from roofwatch.dashboard.charts.spending import (
    by_runner,
    hours_by_activity,
    in_readable_time,
    money_of,
    price_of,
    runner_table,
)
from roofwatch.dashboard.wording import counter_text, duration_text
from roofwatch.db.queries.results import KernelCost
from tests.builders import make_commit_ref, make_environment
from tests.dashboard.gpu_history import gpu
from tests.dashboard.values import make_fleet_run

HALF_HOUR_NS = 1_800_000_000_000


def make_cost(number: int = 0, *, family: str = "matmul", timed_ns: float = 1e9) -> KernelCost:
    return KernelCost(f"run {number}", "gemm", family, 2, 0, timed_ns, None)


@pytest.mark.parametrize(
    ("hours", "value", "counted"),
    [(2.0, 2.0, "device-hours"), (0.5, 30.0, "device-minutes"), (0.005, 18.0, "device-seconds")],
)
def test_short_device_times_are_told_in_a_unit_that_has_whole_numbers(hours: float, value: float, counted: str) -> None:
    spent, told, _ = in_readable_time({make_commit_ref(): {"timing": hours}})
    assert spent[make_commit_ref()]["timing"] == pytest.approx(value)
    assert told == counted


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("l2_hit_share", 0.12, "12.0%"),
        ("dram_bytes", 2.0**21, "2 MiB"),
        ("dram_bytes_per_s", 4.1e12, "4.1 TB/s"),
        ("duration_ns", 4_100.0, "4.1 µs"),
        ("instructions", 1_234_567.0, "1,234,567"),
        ("waves", 1.25, "1.25"),
    ],
)
def test_a_counter_is_told_in_the_unit_of_its_name(name: str, value: float, text: str) -> None:
    assert counter_text(name, value) == text


def test_what_no_activity_claims_is_part_of_the_bill() -> None:
    runs = [make_fleet_run(spent_ns={"timing": HALF_HOUR_NS // 2}), make_fleet_run()]
    assert hours_by_activity(runs) == {make_commit_ref(): {"timing": 0.25, "not counted": 0.75}}


def test_amounts_that_are_not_known_are_left_out_rather_than_nothing() -> None:
    runs = [make_fleet_run(0), make_fleet_run(1)]
    spent = by_runner(runs, lambda run: 7.0 if run.run_id == "run 1" else None)
    assert spent == {make_commit_ref(1): {gpu().runner_class: 7.0}}


def test_the_first_pattern_that_matches_a_runner_class_is_its_price() -> None:
    prices = {"NVIDIA H200*": 6.0, "NVIDIA*": 2.0}
    assert price_of(gpu().runner_class, prices) == 6.0
    assert price_of("NVIDIA L4, 24 GiB", prices) == 2.0
    assert price_of(make_environment().runner_class, prices) is None
    assert money_of(make_fleet_run(), prices) == 3.0


def test_a_runner_class_without_a_price_has_no_money_and_the_dearest_in_time_comes_first() -> None:
    cpu = make_environment()
    runs = [make_fleet_run(0, environment=cpu), make_fleet_run(1), make_fleet_run(2)]
    table = runner_table(runs, {"run 1": 100.0, "run 2": 300.0}, {"NVIDIA*": 2.0})
    assert table["runner class"].tolist() == [gpu().runner_class, cpu.runner_class]
    assert table["energy of a run"].tolist()[0] == 200.0
    assert table["money"].tolist()[0] == 2.0
    assert table[["money", "energy"]].iloc[1].isna().all()


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (1_500_000, "1.5 ms"),
        (90e9, "1.5 min"),
        (2.5 * 3_600e9, "2.5 h"),
        (12_345 * 3_600e9, "12,345 h"),
    ],
)
def test_long_times_are_told_in_hours(ns: float, text: str) -> None:
    assert duration_text(ns) == text
