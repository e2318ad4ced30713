from roofwatch.dashboard.charts.spending import (
    hours_by_activity,
    money_of,
    price_of,
    runner_table,
)
from roofwatch.db.queries.results import KernelCost
from tests.builders import make_commit_ref, make_environment
from tests.dashboard.gpu_history import gpu
from tests.dashboard.values import make_fleet_run

HALF_HOUR_NS = 1_800_000_000_000


def make_cost(number: int = 0, *, family: str = "matmul", timed_ns: float = 1e9) -> KernelCost:
    return KernelCost(f"run {number}", "gemm", family, 2, 0, timed_ns, None)


def test_what_no_activity_claims_is_part_of_the_bill() -> None:
    runs = [make_fleet_run(spent_ns={"timing": HALF_HOUR_NS // 2}), make_fleet_run()]
    assert hours_by_activity(runs) == {make_commit_ref(): {"timing": 0.25, "not counted": 0.75}}


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
