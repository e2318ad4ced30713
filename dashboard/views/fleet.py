"""What measuring costs: device-hours, energy and money, by commit, runner class, kernel family and case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import streamlit as st

from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.spending import (
    Spending,
    by_family,
    by_runner,
    case_table,
    family_table,
    hours_by_activity,
    hours_of,
    in_readable_time,
    money_of,
    runner_table,
    spending_figure,
)
from roofwatch.dashboard.components.page import MAIN_FIGURE, View, open_view, show_no_runs
from roofwatch.dashboard.components.table import show_table
from roofwatch.dashboard.wording import duration_text, energy_text, money_text
from roofwatch.db.queries import questions
from roofwatch.db.queries.results import FleetRun, KernelCost
from roofwatch.settings import load_settings

_WINDOWS = ("50", "100", "200")
"""Number of newest runs in the sums."""
_WINDOW_AT_FIRST = "100"
_CASES_SHOWN = 25
_SHARES = ("timing", "checks", "compiling")
_TITLES = {
    "activity": "device time by activity",
    "runner": "device time by runner class",
    "family": "timed seconds by kernel family",
    "runner-energy": "energy by runner class",
    "family-energy": "energy of timed launches by kernel family",
    "runner-money": "money by runner class",
}
"""What the bars show, by name in the address."""


@dataclass(frozen=True)
class _Fleet:
    """What some runs spent, and device prices."""

    runs: Sequence[FleetRun]
    energies_j: Mapping[str, float]
    """Energy by run."""
    costs: Sequence[KernelCost]
    """Costs by kernel and run, within the filters."""
    prices: Mapping[str, float]
    currency: str

    def offered(self) -> list[str]:
        """Return the known kinds of bars."""
        known = {
            "runner-energy": bool(self.energies_j),
            "family-energy": any(cost.energy_j is not None for cost in self.costs),
            "runner-money": any(money_of(run, self.prices) is not None for run in self.runs),
        }
        return [name for name in _TITLES if known.get(name, True)]

    def spending(self, name: str) -> tuple[Spending, str, str]:
        """Return the amounts, the axis title and the unit."""
        if name == "family":
            return by_family(self.runs, self.costs, lambda cost: cost.timed_ns / 1e9), "time of timed launches (s)", "s"
        if name == "family-energy":
            spent = by_family(self.runs, self.costs, lambda cost: cost.energy_j)
            return spent, "energy of timed launches (J)", "J"
        if name == "runner-energy":
            spent = by_runner(self.runs, lambda run: self.energies_j.get(run.run_id))
            return spent, "energy of the devices (J)", "J"
        if name == "runner-money":
            spent = by_runner(self.runs, lambda run: money_of(run, self.prices))
            return spent, f"money ({self.currency})", self.currency
        return in_readable_time(hours_by_activity(self.runs) if name == "activity" else by_runner(self.runs, hours_of))


def show() -> None:
    with open_view(
        "fleet", "Fleet economics", ("What measuring costs, by commit, runner, kernel family and case.")
    ) as view:
        place = st.container(width=200)
        window = view.link.choose("Newest runs", _WINDOWS, parameter="last", default=_WINDOW_AT_FIRST, place=place)
        runs = data.ask(
            questions.list_fleet_runs,
            view.project,
            limit=int(window),
            runner_classes=view.filters.runner_classes,
            branches=view.filters.branches,
        )
        if not runs:
            show_no_runs(view)
            return
        run_ids = tuple(UUID(run.run_id) for run in runs)
        energies_j = data.ask(questions.read_run_energies, run_ids)
        costs = data.ask(questions.list_kernel_costs, run_ids, case_ids=view.filters.case_ids)
        settings = load_settings()
        fleet = _Fleet(runs, energies_j, costs, settings.device_hour_prices, settings.currency)
        _show_sums(fleet)
        _note_whole_runs(view)
        _show_trend(view, fleet)
        _show_runners(fleet)
        _note_whole_runs(view)
        _show_families(costs)
        _show_cases(view, run_ids)


def _show_sums(fleet: _Fleet) -> None:
    runs = fleet.runs
    device_ns = sum(run.device_ns for run in runs)
    commits = len({run.commit.sha for run in runs})
    amounts = [amount for run in runs if (amount := money_of(run, fleet.prices)) is not None]
    watched = len({run.commit.sha for run in runs if run.run_id in fleet.energies_j})
    energy_j = sum(fleet.energies_j.values())
    columns = st.columns(5)
    columns[0].metric(
        "Device time", duration_text(device_ns), border=True, help=f"{len(runs)} runs of {commits} commits."
    )
    columns[1].metric("Device time of a commit", duration_text(device_ns / commits), border=True)
    columns[2].metric(
        "Energy of the devices",
        energy_text(energy_j) if fleet.energies_j else "not read",
        border=True,
        help=f"From device counters, in {len(fleet.energies_j)} of {len(runs)} runs.",
    )
    columns[3].metric("Energy of a commit", energy_text(energy_j / watched) if watched else "not read", border=True)
    columns[4].metric(
        "Money",
        money_text(sum(amounts), fleet.currency) if amounts else "no price set",
        border=True,
        help="Device-hours × the price of their runner class. Prices are the setting device_hour_prices.",
    )


def _note_whole_runs(view: View) -> None:
    if view.filters.case_ids is not None:
        st.caption(
            "For whole runs: device time and energy are not known per case, so the filters kernel "
            "family, dtype, tag and owner do not apply."
        )


def _show_trend(view: View, fleet: _Fleet) -> None:
    st.subheader("Over commits", anchor=False)
    name = view.link.choose("Show", fleet.offered(), parameter="show", title=lambda name: _TITLES[name])
    spent, axis, unit = fleet.spending(name)
    if not name.startswith("family"):
        _note_whole_runs(view)
    if not any(spent.values()):
        st.info("Not known for these runs.", icon=":material/bar_chart:")
        return
    st.plotly_chart(spending_figure(spent, title=axis, unit=unit, zone=view.zone), key=MAIN_FIGURE)
    st.caption(
        "A commit's bar is the sum of its runs: repeated measurements and more runners cost more. "
        "*Timed* counts timed launches only, without checks, compilation and the time between launches."
    )


def _show_runners(fleet: _Fleet) -> None:
    st.subheader("By runner class", anchor=False)
    table = runner_table(fleet.runs, fleet.energies_j, fleet.prices)
    show_table(
        table if fleet.prices else table.drop(columns="money"),
        formats={
            **dict.fromkeys(("device time", "per commit"), duration_text),
            **dict.fromkeys(_SHARES, "{:.0%}".format),
            **dict.fromkeys(("energy", "energy of a run"), energy_text),
            "money": lambda amount: money_text(amount, fleet.currency),
        },
        help_texts=dict.fromkeys(_SHARES, "Share of the wall time of the runs."),
    )


def _show_families(costs: Sequence[KernelCost]) -> None:
    st.subheader("By kernel family", anchor=False)
    if not costs:
        st.text("These runs have no times.")
        return
    show_table(family_table(costs), formats={"timed": duration_text, "share": "{:.1%}".format, "energy": energy_text})


def _show_cases(view: View, run_ids: tuple[UUID, ...]) -> None:
    st.subheader("Most expensive cases", anchor=False)
    cases = data.ask(questions.list_case_costs, run_ids, limit=_CASES_SHOWN, case_ids=view.filters.case_ids)
    if not cases:
        st.text("None of these cases has a time.")
        return
    show_table(case_table(cases), formats={"slowest launch": format_ns, "timed": duration_text, "energy": energy_text})


if __name__ == "__main__":
    show()
