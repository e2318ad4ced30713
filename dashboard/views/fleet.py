"""What measuring costs: device-hours, energy and money, by commit, runner class, kernel family and case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from roofwatch.collector.record.metrics import format_ns
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.fleet import spending_figure
from roofwatch.dashboard.figure import show_figure
from roofwatch.dashboard.filters import Filters
from roofwatch.dashboard.frame import MAIN_FIGURE, View, open_view, say_how_to_begin
from roofwatch.dashboard.quantities import duration_text, energy_text, money_text
from roofwatch.dashboard.spending import (
    NS_PER_HOUR,
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
)
from roofwatch.dashboard.tables.markup import Column
from roofwatch.dashboard.tables.table import show_table
from roofwatch.db.queries.fleet_values import FleetRun, KernelCost
from roofwatch.settings import load_settings

# runs that are added up, the newest
_WINDOWS = ("50", "100", "200")
_WINDOW_AT_FIRST = "100"
_CASES_SHOWN = 25
_HOURS = "h"


@dataclass(frozen=True)
class _Ways:
    """What the bars may show: titles with how to add up and Plotly's unit."""

    title: str
    axis: str
    suffix: str
    add_up: Callable[[], Spending]
    is_of_whole_runs: bool = True
    """What is not known of single cases, so that no choice of cases narrows it."""


def show() -> None:
    with open_view("fleet", "Fleet economics", "What measuring costs, and what it is spent on.") as view:
        place = st.container(width=200)
        window = view.link.choose("Newest runs", _WINDOWS, parameter="last", default=_WINDOW_AT_FIRST, place=place)
        runs = _newest_runs(view.project, view.filters, window)
        if not runs:
            _say_nothing_is_there(view)
            return
        run_ids, energies_j, costs = _read_spent(runs, view.filters)
        settings = load_settings()
        prices, currency = settings.device_hour_prices, settings.currency
        _show_sums(runs, energies_j, prices, currency)
        _say_of_whole_runs(view)
        _show_trend(view, _ways(runs, costs, energies_j, prices, currency))
        _show_runners(runs, energies_j, prices, currency)
        _say_of_whole_runs(view)
        _show_families(costs)
        _show_cases(view, run_ids)


def _newest_runs(project: str, filters: Filters, window: str) -> Sequence[FleetRun]:
    return data.list_fleet_runs(
        project, limit=int(window), runner_classes=filters.runner_classes, branches=filters.branches
    )


def _read_spent(
    runs: Sequence[FleetRun], filters: Filters
) -> tuple[tuple[str, ...], Mapping[str, float], Sequence[KernelCost]]:
    """Ids of the runs, the energy of each whole one in J, and what each kernel cost in all of them."""
    run_ids = tuple(run.run_id for run in runs)
    return run_ids, data.read_run_energies(run_ids), data.list_kernel_costs(run_ids, case_ids=filters.case_ids)


def _say_nothing_is_there(view: View) -> None:
    if view.filters.is_narrow:
        st.info("No run is within the filters: widen them.", icon=":material/filter_alt_off:")
    else:
        say_how_to_begin("This project has no runs yet. Measure a benchmark file, then store its record:")


def _show_sums(
    runs: Sequence[FleetRun], energies_j: Mapping[str, float], prices: Mapping[str, float], currency: str
) -> None:
    hours = sum(hours_of(run) for run in runs)
    commits = len({run.commit.sha for run in runs})
    amounts = [amount for run in runs if (amount := money_of(run, prices)) is not None]
    watched = len({run.commit.sha for run in runs if run.run_id in energies_j})
    energy_j = sum(energies_j.values())
    columns = st.columns(5)
    columns[0].metric(
        "Device time", duration_text(hours * NS_PER_HOUR), border=True, help=f"{len(runs)} runs of {commits} commits."
    )
    columns[1].metric("Device time of a commit", duration_text(hours * NS_PER_HOUR / commits), border=True)
    columns[2].metric(
        "Energy of the devices",
        energy_text(energy_j) if energies_j else "not read",
        border=True,
        help=f"By the devices' own counters, in {len(energies_j)} of {len(runs)} runs.",
    )
    columns[3].metric("Energy of a commit", energy_text(energy_j / watched) if watched else "not read", border=True)
    columns[4].metric(
        "Money",
        money_text(sum(amounts), currency) if amounts else "no price set",
        border=True,
        help="Device-hours × the price of their runner class. Prices are the setting device_hour_prices.",
    )


def _say_of_whole_runs(view: View) -> None:
    if view.filters.case_ids is not None:
        st.caption(
            "Of whole runs: what a run held its devices for, and the energy that they took, is not known of single "
            "cases, so kernel family, dtype, tag and owner do not narrow it."
        )


def _ways(
    runs: Sequence[FleetRun],
    costs: Sequence[KernelCost],
    energies_j: Mapping[str, float],
    prices: Mapping[str, float],
    currency: str,
) -> dict[str, _Ways]:
    """By the name that the address has."""
    ways = {
        "activity": _Ways("device time by activity", "device-hours", _HOURS, lambda: hours_by_activity(runs)),
        "runner": _Ways("device time by runner class", "device-hours", _HOURS, lambda: by_runner(runs, hours_of)),
        "family": _Ways(
            "timed seconds by kernel family",
            "time of timed launches (s)",
            "s",
            lambda: by_family(runs, costs, lambda cost: cost.timed_ns / 1e9),
            is_of_whole_runs=False,
        ),
    }
    if energies_j:
        ways["runner-energy"] = _Ways(
            "energy by runner class",
            "energy of the devices (J)",
            "J",
            lambda: by_runner(runs, lambda run: energies_j.get(run.run_id)),
        )
    if any(cost.energy_j is not None for cost in costs):
        ways["family-energy"] = _Ways(
            "energy of timed launches by kernel family",
            "energy of timed launches (J)",
            "J",
            lambda: by_family(runs, costs, lambda cost: cost.energy_j),
            is_of_whole_runs=False,
        )
    if any(money_of(run, prices) is not None for run in runs):
        ways["runner-money"] = _Ways(
            "money by runner class",
            f"money ({currency})",
            currency,
            lambda: by_runner(runs, lambda run: money_of(run, prices)),
        )
    return ways


def _show_trend(view: View, ways: Mapping[str, _Ways]) -> None:
    st.subheader("Over commits", anchor=False)
    way = ways[view.link.choose("Show", list(ways), parameter="show", title=lambda name: ways[name].title)]
    spent = way.add_up()
    if way.is_of_whole_runs:
        _say_of_whole_runs(view)
    if not any(spent.values()):
        st.info("Nothing of it is known of these runs.", icon=":material/bar_chart:")
        return
    axis, unit = way.axis, way.suffix
    if unit == _HOURS:
        spent, axis, unit = in_readable_time(spent)
    show_figure(spending_figure(spent, title=axis, unit=unit, zone=view.zone), key=MAIN_FIGURE)
    st.caption(
        "A commit's bar holds all of its runs: one that was measured again, or on more runners, costs more. *Timed* is "
        "the launches that were timed alone; checks, compiling and what is done between launches is not in it."
    )


def _show_runners(
    runs: Sequence[FleetRun], energies_j: Mapping[str, float], prices: Mapping[str, float], currency: str
) -> None:
    st.subheader("By runner class", anchor=False)
    table = runner_table(runs, energies_j, prices)
    shares = ("timing", "checks", "compiling")
    show_table(
        table if prices else table.drop(columns="money"),
        formats={
            **dict.fromkeys(("device time", "of a commit"), duration_text),
            **dict.fromkeys(shares, "{:.0%}".format),
            **dict.fromkeys(("energy", "energy of a run"), energy_text),
            **({"money": lambda amount: money_text(amount, currency)} if prices else {}),
        },
        columns={name: Column(help="Share of the wall time of the runs.") for name in shares},
    )


def _show_families(costs: Sequence[KernelCost]) -> None:
    st.subheader("By kernel family", anchor=False)
    if not costs:
        st.text("These runs timed nothing.")
        return
    show_table(family_table(costs), formats={"timed": duration_text, "share": "{:.1%}".format, "energy": energy_text})


def _show_cases(view: View, run_ids: tuple[str, ...]) -> None:
    st.subheader("The dearest cases", anchor=False)
    cases = data.list_case_costs(run_ids, limit=_CASES_SHOWN, case_ids=view.filters.case_ids)
    if not cases:
        st.text("No case that was timed is among them.")
        return
    show_table(case_table(cases), formats={"longest launch": format_ns, "timed": duration_text, "energy": energy_text})


if __name__ == "__main__":
    show()
