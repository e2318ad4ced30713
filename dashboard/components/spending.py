"""What measuring costs: device-hours, energy and money, by commit, runner class, kernel family and
case.
"""

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import pandas as pd
import streamlit as st

from roofwatch.configuration.settings import load_settings
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.runners import (
    Amount,
    hours_by_activity,
    hours_of,
    spending_figure,
    summed,
)
from roofwatch.dashboard.components.page import MAIN_FIGURE, View, note_whole_runs
from roofwatch.dashboard.components.table import SUBJECT, Column, grouped, show_numbers, show_table
from roofwatch.dashboard.wording import duration_text, energy_text, money_text
from roofwatch.db.queries import questions
from roofwatch.model.metrics import format_ns
from roofwatch.model.stored_results import FleetRun, KernelCost

_WINDOWS = ("50", "100", "200")
"""Number of newest runs in the sums."""
_WINDOW_AT_FIRST = "100"
_CASES_SHOWN = 25
_TITLES = {
    "activity": "device time by activity",
    "runner": "device time by runner class",
    "family": "timed seconds by kernel family",
    "runner-energy": "energy by runner class",
    "family-energy": "energy of timed launches by kernel family",
    "runner-money": "cost by runner class",
}
"""What the bars show, by name in the address."""


@dataclass(frozen=True)
class Spent:
    """What some runs spent, and device prices."""

    runs: Sequence[FleetRun]
    energies_j: Mapping[str, float]
    """Energy by run."""
    prices: Mapping[str, float]
    """Per device-hour, by pattern of runner classes."""
    currency: str

    @property
    def device_ns(self) -> float:
        return sum(run.device_ns for run in self.runs)

    @property
    def commit_count(self) -> int:
        shas = {run.commit.sha for run in self.runs}
        return len(shas)

    @property
    def watched(self) -> "Spent":
        """Only runs whose energy was read."""
        runs = [run for run in self.runs if run.run_id in self.energies_j]
        return replace(self, runs=runs)

    @property
    def energy_j(self) -> float | None:
        return _sum_known(self.energies_j.get(run.run_id) for run in self.runs)

    @property
    def money(self) -> float | None:
        return _sum_known(map(self.money_of, self.runs))

    def money_of(self, run: FleetRun) -> float | None:
        """Return the price of a run: that of the first pattern that matches its runner class."""
        # the first pattern wins, so that special prices stand first
        for pattern, price in self.prices.items():
            if fnmatch.fnmatchcase(run.runner_class, pattern):
                return price * hours_of(run)
        return None

    def share_of(self, activity: str) -> float | None:
        """Return an activity's share of wall time, over runs that report activities."""
        # not every run reports its activities
        telling = [run for run in self.runs if run.spent_ns]
        wall_ns = sum(run.wall_ns for run in telling)
        if not wall_ns:
            return None
        spent_ns = sum(run.spent_ns.get(activity, 0) for run in telling)
        return spent_ns / wall_ns


def _sum_known(amounts: Iterable[float | None]) -> float | None:
    priced = [amount for amount in amounts if amount is not None]
    if priced:
        return sum(priced)
    return None


def show_spending(view: View) -> None:
    """Show what the newest runs cost."""
    window = view.link.choose(
        "Newest runs",
        _WINDOWS,
        parameter="last",
        default=_WINDOW_AT_FIRST,
    )
    every_run = view.list_runs(limit=int(window))
    runs = [run for run in every_run if not run.environment.is_imported]
    if not runs:
        st.text(
            "Costs need runs that roofwatch measured: imported results do not say how long they "
            "took."
        )
        return
    imported_count = len(every_run) - len(runs)
    if imported_count:
        st.caption(f"Without {imported_count} imported runs, whose cost is unknown.")
    run_ids = tuple(UUID(run.run_id) for run in runs)
    energies_j = data.ask(questions.read_run_energies, run_ids)
    costs = data.ask(
        questions.list_kernel_costs,
        run_ids,
        case_ids=view.filters.case_ids,
    )
    settings = load_settings()
    spent = Spent(
        runs=runs,
        energies_j=energies_j,
        prices=settings.device_hour_prices,
        currency=settings.currency,
    )
    _show_sums(spent)
    note_whole_runs(view)
    _show_trend(view, spent, costs)
    _show_runners(spent)
    note_whole_runs(view)
    _show_families(costs)
    _show_cases(view, run_ids)


def _show_sums(spent: Spent) -> None:
    watched = spent.watched
    energy = "n/a"
    energy_per_commit = "n/a"
    energy_j = spent.energy_j
    if energy_j is not None:
        energy = energy_text(energy_j)
        energy_per_commit = energy_text(energy_j / watched.commit_count)
    cost = "no price set"
    money = spent.money
    if money is not None:
        cost = money_text(money, spent.currency)
    run_count = len(spent.runs)
    watched_count = len(watched.runs)
    commit_count = spent.commit_count
    device_ns_per_commit = spent.device_ns / commit_count
    show_numbers(
        (
            "Device time",
            duration_text(spent.device_ns),
            f"{run_count} runs of {commit_count} commits.",
        ),
        ("Device time per commit", duration_text(device_ns_per_commit), None),
        (
            "Device energy",
            energy,
            f"From device counters, in {watched_count} of {run_count} runs.",
        ),
        ("Energy per commit", energy_per_commit, None),
        (
            "Cost",
            cost,
            "Device-hours × the price of their runner class. Prices are the setting "
            "device_hour_prices.",
        ),
    )


def _show_trend(view: View, spent: Spent, costs: Sequence[KernelCost]) -> None:
    st.header("Over commits", anchor=False)
    priced = {
        "runner-energy": spent.energy_j is not None,
        "family-energy": any(cost.energy_j is not None for cost in costs),
        "runner-money": spent.money is not None,
    }
    offered = [name for name in _TITLES if priced.get(name, True)]
    box = st.container(width=360)
    name = view.link.choose(
        "Bars",
        offered,
        parameter="bars",
        title=lambda name: _TITLES[name],
        container=box,
    )
    # families are of cases, which the filters narrow
    if not name.startswith("family"):
        note_whole_runs(view)
    amounts, axis, unit = _amounts(name, spent, costs)
    if amounts.empty:
        st.info("Not priced for these runs.")
        return
    figure = spending_figure(
        amounts,
        title=axis,
        unit=unit,
        zone=view.zone,
    )
    st.plotly_chart(figure, key=MAIN_FIGURE)
    st.caption(
        "A commit's bar is the sum of its runs: repeated measurements and more runners cost more. "
        "*Timed* counts timed launches only, without checks, compilation and the time between "
        "launches."
    )


def _amounts(
    name: str,
    spent: Spent,
    costs: Sequence[KernelCost],
) -> tuple[pd.DataFrame, str, str]:
    """Return the amounts by commit and part, the axis title and the unit."""

    def by_runner(amount_of: Callable[[FleetRun], float | None]) -> pd.DataFrame:
        amounts = [(run.commit, run.runner_class, amount_of(run)) for run in spent.runs]
        return summed(amounts)

    def by_family(amount_of: Callable[[KernelCost], float | None]) -> pd.DataFrame:
        commits = {run.run_id: run.commit for run in spent.runs}
        amounts: list[Amount] = []
        for cost in costs:
            commit = commits[cost.run_id]
            amounts.append((commit, cost.family, amount_of(cost)))
        return summed(amounts)

    match name:
        case "family":
            times_s = by_family(lambda cost: cost.timed_ns / 1e9)
            return times_s, "time of timed launches (s)", "s"
        case "family-energy":
            energies_j = by_family(lambda cost: cost.energy_j)
            return energies_j, "energy of timed launches (J)", "J"
        case "runner-energy":
            energies_j = by_runner(lambda run: spent.energies_j.get(run.run_id))
            return energies_j, "energy of the devices (J)", "J"
        case "runner-money":
            money = by_runner(spent.money_of)
            return money, f"cost ({spent.currency})", spent.currency
        case "runner":
            return by_runner(hours_of), "device-hours", "h"
    hours = summed(hours_by_activity(spent.runs))
    return hours, "device-hours", "h"


def _show_runners(spent: Spent) -> None:
    st.header("By runner class", anchor=False)
    runs_of = grouped(spent.runs, lambda run: run.runner_class)
    by_class = [replace(spent, runs=runs) for runs in runs_of.values()]

    def share_column(title: str, activity: str) -> Column[Spent]:
        return Column(
            title,
            lambda part: part.share_of(activity),
            "{:.0%}".format,
            "Share of the wall time of the runs.",
        )

    money_columns: list[Column[Spent]] = []
    # without prices the column would be empty
    if spent.prices:
        money_columns.append(
            Column(
                "cost",
                lambda part: part.money,
                lambda amount: money_text(amount, spent.currency),
            )
        )
    show_table(
        sorted(by_class, key=lambda part: -part.device_ns),
        Column("runner class", lambda part: part.runs[0].runner_class),
        Column("runs", lambda part: len(part.runs)),
        Column("commits", lambda part: part.commit_count),
        Column(
            "device time",
            lambda part: part.device_ns,
            duration_text,
        ),
        Column(
            "per commit",
            lambda part: part.device_ns / part.commit_count,
            duration_text,
        ),
        share_column("timing", "timing"),
        share_column("checks", "check"),
        share_column("compiling", "compile"),
        Column(
            "energy",
            lambda part: part.energy_j,
            energy_text,
        ),
        Column(
            "energy of a run",
            lambda part: part.energy_j and part.energy_j / len(part.watched.runs),
            energy_text,
        ),
        *money_columns,
    )


def _show_families(costs: Sequence[KernelCost]) -> None:
    st.header("By kernel family", anchor=False)
    families = grouped(costs, lambda cost: cost.family)
    timed_ns: dict[str, float] = {}
    for family, of_family in families.items():
        timed_ns[family] = sum(cost.timed_ns for cost in of_family)
    whole_ns = sum(timed_ns.values())

    def share_of(family: str) -> float | None:
        if not whole_ns:
            return None
        return timed_ns[family] / whole_ns

    def kernel_count(family: str) -> int:
        kernels = {cost.kernel for cost in families[family]}
        return len(kernels)

    def energy_j(family: str) -> float | None:
        return _sum_known(cost.energy_j for cost in families[family])

    longest_first = sorted(families, key=lambda family: (-timed_ns[family], family))
    show_table(
        longest_first,
        Column("kernel family", str),
        Column("kernels", kernel_count),
        Column(
            "timed",
            lambda family: timed_ns[family],
            duration_text,
        ),
        Column("share", share_of, "{:.1%}".format),
        Column("energy", energy_j, energy_text),
        if_empty="These runs have no times.",
    )


def _show_cases(view: View, run_ids: tuple[UUID, ...]) -> None:
    st.header("Most expensive cases", anchor=False)
    cases = data.ask(
        questions.list_case_costs,
        run_ids,
        limit=_CASES_SHOWN,
        case_ids=view.filters.case_ids,
    )
    show_table(
        cases,
        *SUBJECT,
        Column("runs", lambda cost: cost.run_count),
        Column(
            "slowest launch",
            lambda cost: cost.median_ns,
            format_ns,
        ),
        Column(
            "timed",
            lambda cost: cost.timed_ns,
            duration_text,
        ),
        Column(
            "energy",
            lambda cost: cost.energy_j,
            energy_text,
        ),
        if_empty="None of these cases has a time.",
    )
