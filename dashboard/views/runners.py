"""Health, noise, drift and comparability of the runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import streamlit as st

from roofwatch.collector.record.metrics import metric
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.runners import (
    MAX_ROWS,
    ceiling_history_figure,
    noise_figure,
    runner_history_figure,
)
from roofwatch.dashboard.components.page import MAIN_FIGURE, View, open_view, show_no_match, show_no_runs
from roofwatch.dashboard.components.runner_tables import (
    by_runner_class,
    ceilings_table,
    classes_table,
    differences_table,
    health_table,
    moves_table,
    narrowed_noise,
    noise_table,
)
from roofwatch.dashboard.components.table import show_table
from roofwatch.dashboard.wording import natural_order
from roofwatch.db.queries import questions
from roofwatch.db.queries.results import FleetRun

_RUNS_READ = 300
"""Maximum runs over all runner classes."""
_RUNS_COUNTED = 60
"""Maximum runs per runner class whose measurements are counted."""


def show() -> None:
    with open_view("runners", "Runners", "Runner health, and which runs are comparable.") as view:
        runs = _newest_of_each_class(view)
        if not runs:
            show_no_runs(view)
            return
        by_class = by_runner_class(runs)
        choices = st.container(horizontal=True)
        part = view.link.choose("Show", list(_PARTS), parameter="show", place=choices)
        runner_class = view.link.choose("Runner class", list(by_class), parameter="runner", place=choices)
        _PARTS[part](view, by_class, runner_class)


def _newest_of_each_class(view: View) -> Sequence[FleetRun]:
    """Read the newest runs of each class, so a silent runner stays visible."""
    chosen = view.filters.runner_classes
    class_count = len(chosen or view.filters.facets.runner_classes)
    return data.ask(
        questions.list_fleet_runs,
        view.project,
        limit=max(_RUNS_COUNTED, _RUNS_READ // max(class_count, 1)),
        runner_classes=chosen,
        branches=view.filters.branches,
        of_each_class=True,
    )


def _show_health(view: View, runs: Mapping[str, Sequence[FleetRun]], runner_class: str) -> None:
    counted = tuple(UUID(run.run_id) for own in runs.values() for run in own[:_RUNS_COUNTED])
    costs = data.ask(questions.list_kernel_costs, counted, case_ids=view.filters.case_ids)
    noise = {one.runner_class: narrowed_noise(one, view.filters) for one in data.read_runner_noise(view.project)}
    st.subheader("Every runner class", anchor=False)
    show_table(
        health_table(runs, costs, noise, now=datetime.now(UTC), zone=view.zone),
        formats={"throttled or shared": "{:.1%}".format, "noise floor": "±{:.2%}".format},
        help_texts={
            "state": "Silent: no result for three times its longest usual interval.",
            "throttled or shared": (
                "Share of measurements in which the device was throttled by a fault, or shared with another process."
            ),
            "noise floor": "Median over its cases of the deviation of a block.",
            "false alarms": ("Verdicts of a change in A/A calibrations, over all cases."),
        },
        key=MAIN_FIGURE,
    )
    st.subheader("Noise by case", anchor=False)
    own = noise.get(runner_class)
    if own is not None and not own.cases and view.filters.case_ids is not None:
        show_no_match("No calibrated case matches the filters")
        return
    if own is None or not own.cases:
        st.info(
            "This runner class was never calibrated.",
            icon=":material/tune:",
        )
        st.markdown("`roofwatch calibrate path/to/bench_file.py`, then `roofwatch ingest roofwatch-records`")
        return
    st.plotly_chart(noise_figure(own.cases), key="noise")
    if len(own.cases) > MAX_ROWS:
        st.caption(f"The noisiest {MAX_ROWS} of {len(own.cases)}; the table has all.")
    table = noise_table(own)
    percents = [name for name in table.columns if name.startswith(("noise", "detectable"))]
    show_table(table, formats=dict.fromkeys(percents, "{:.2%}".format))


def _show_history(view: View, _runs: Mapping[str, Sequence[FleetRun]], runner_class: str) -> None:
    cases = sorted(
        {case.case_id for case in view.filters.facets.cases if view.filters.admits_case(case.case_id)},
        key=natural_order,
    )
    if not cases:
        show_no_match("No case matches the filters")
        return
    choices = st.container(horizontal=True)
    case_id = view.link.choose("Case", cases, parameter="case", place=choices)
    history = {
        one.key.implementation: one
        for one in data.ask(
            questions.read_case_history,
            view.project,
            case_id,
            with_every_run=True,
            runner_classes=(runner_class,),
            branches=view.filters.branches,
        )
        if any(point.value is not None for point in one.points)
    }
    if not history:
        st.info("This case has no times on this runner class: choose another.", icon=":material/timer_off:")
        return
    implementation = view.link.choose("Implementation", list(history), parameter="implementation", place=choices)
    series = history[implementation]
    st.subheader("Time, clock and temperature", anchor=False)
    st.plotly_chart(runner_history_figure(series, view.zone), key=MAIN_FIGURE)
    timed = [point for point in series.points if point.value is not None]
    doubtful = sum(bool(point.degraded_by) for point in timed)
    st.caption(
        f"{len(timed)} runs, including pairs and other branches; in {doubtful} of them "
        f"({metric('utilisation').format(doubtful / len(timed))}) the device was throttled or shared. Clock and "
        "temperature are those of the blocks of this case, if they were read."
    )
    st.subheader("Stored change points", anchor=False)
    moves = moves_table(series.key, data.list_regressions(view.project))
    show_table(moves, if_empty="No stored steps or drifts of this series.")


def _note_whole_runs(view: View) -> None:
    if view.filters.case_ids is not None:
        st.caption("For whole runs: the filters kernel family, dtype, tag and owner do not apply.")


def _show_ceilings(view: View, runs: Mapping[str, Sequence[FleetRun]], runner_class: str) -> None:
    st.subheader("Measured ceilings over time", anchor=False)
    _note_whole_runs(view)
    table = ceilings_table(runs[runner_class])
    if table.empty:
        st.info("No measured ceilings on this runner class.", icon=":material/roofing:")
        return
    st.plotly_chart(ceiling_history_figure(runs[runner_class], view.zone), key=MAIN_FIGURE)
    show_table(table, formats={"share of datasheet": "{:.1%}".format})
    st.caption("Utilisation uses measured ceilings; those of the datasheet are for comparison.")


def _show_environments(view: View, runs: Mapping[str, Sequence[FleetRun]], runner_class: str) -> None:
    st.subheader("Comparable groups", anchor=False)
    _note_whole_runs(view)
    show_table(classes_table([run for own in runs.values() for run in own], view.zone), key=MAIN_FIGURE)
    st.caption("Times are comparable within a row if timer and cache state are equal too, but not between rows.")
    st.subheader("Differences within comparable runs", anchor=False)
    differences = differences_table(runs[runner_class], view.zone)
    show_table(differences, if_empty="All runs on this runner class had the same environment.")


_PARTS: Mapping[str, Callable[[View, Mapping[str, Sequence[FleetRun]], str], None]] = {
    "health and noise": _show_health,
    "history of a case": _show_history,
    "ceilings": _show_ceilings,
    "environments": _show_environments,
}


if __name__ == "__main__":
    show()
