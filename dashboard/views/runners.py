"""The machines that measure: whether they are well, how noisy they are, what they drift by, and what compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

import streamlit as st

from roofwatch.collector.record.metrics import metric
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.ceiling_history import ceiling_history_figure
from roofwatch.dashboard.charts.noise import MAX_ROWS, noise_figure
from roofwatch.dashboard.charts.runner_history import runner_history_figure
from roofwatch.dashboard.figure import show_figure
from roofwatch.dashboard.filters import Filters
from roofwatch.dashboard.frame import MAIN_FIGURE, View, open_view, say_how_to_begin
from roofwatch.dashboard.tables.markup import Column
from roofwatch.dashboard.tables.runner import (
    by_runner_class,
    ceilings_table,
    classes_table,
    differences_table,
    health_table,
    moves_table,
    narrowed_noise,
    noise_table,
)
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.wording import natural_order
from roofwatch.db.queries.fleet_values import FleetRun

# of all runner classes together, unless they are so many that each has fewer than are counted
_RUNS_READ = 300
# of each runner's newest runs the measurements are counted: more says nothing of its present health
_RUNS_COUNTED = 60


@dataclass(frozen=True)
class _Fleet:
    """What every part of the view needs."""

    runs: Mapping[str, Sequence[FleetRun]]
    """By runner class."""
    runner_class: str
    """That the reader looks at."""
    zone: tzinfo

    @property
    def own_runs(self) -> Sequence[FleetRun]:
        return self.runs[self.runner_class]


def show() -> None:
    with open_view("runners", "Runners", "Whether the machines that measure are well, and what compares.") as view:
        runs = _newest_of_each_class(view.project, view.filters)
        if not runs:
            _say_nothing_is_there(view)
            return
        by_class = by_runner_class(runs)
        choices = st.container(horizontal=True)
        part = view.link.choose("Show", list(_PARTS), parameter="show", place=choices)
        runner_class = view.link.choose("Runner class", list(by_class), parameter="runner", place=choices)
        _PARTS[part](view, _Fleet(by_class, runner_class, view.zone))


def _newest_of_each_class(project: str, filters: Filters) -> Sequence[FleetRun]:
    """So that a runner that has gone silent stays in sight, whatever the others measured since."""
    chosen = filters.runner_classes
    class_count = len(chosen or filters.facets.runner_classes)
    return data.list_fleet_runs(
        project,
        limit=max(_RUNS_COUNTED, _RUNS_READ // max(class_count, 1)),
        runner_classes=chosen,
        branches=filters.branches,
        of_each_class=True,
    )


def _say_nothing_is_there(view: View) -> None:
    if view.filters.is_narrow:
        st.info("No run is within the filters: widen them.", icon=":material/filter_alt_off:")
    else:
        say_how_to_begin("This project has no runs yet. Measure a benchmark file, then store its record:")


def _show_health(view: View, fleet: _Fleet) -> None:
    counted = tuple(run.run_id for own in fleet.runs.values() for run in own[:_RUNS_COUNTED])
    costs = data.list_kernel_costs(counted, case_ids=view.filters.case_ids)
    noise = {one.runner_class: narrowed_noise(one, view.filters) for one in data.read_runner_noise(view.project)}
    st.subheader("Every runner class", anchor=False)
    with st.container(key=MAIN_FIGURE):
        show_table(
            health_table(fleet.runs, costs, noise, now=datetime.now(UTC), zone=fleet.zone),
            formats={"throttled or shared": "{:.1%}".format, "noise floor": "±{:.2%}".format},
            columns={
                "state": Column(help="Silent: nothing came for three times its usual longest gap."),
                "throttled or shared": Column(
                    help="Share of measurements with a block in which a fault held the clock down, or another process "
                    "ran."
                ),
                "noise floor": Column(help="Median over its cases of the deviation of one block."),
                "false alarms": Column(
                    help="Verdicts that something had changed, of a commit measured against itself: of whole "
                    "calibrations, whatever cases the filters admit."
                ),
            },
        )
    st.subheader("Noise by case", anchor=False)
    own = noise.get(fleet.runner_class)
    if own is not None and not own.cases and view.filters.case_ids is not None:
        st.info("No case that was calibrated is within the filters: widen them.", icon=":material/filter_alt_off:")
        return
    if own is None or not own.cases:
        st.info(
            "This runner class was never calibrated: nobody measured a commit against itself on it.",
            icon=":material/tune:",
        )
        st.markdown("`roofwatch calibrate path/to/bench_file.py`, then `roofwatch ingest roofwatch-records`")
        return
    show_figure(noise_figure(own.cases), key="noise")
    if len(own.cases) > MAX_ROWS:
        st.caption(f"The noisiest {MAX_ROWS} of {len(own.cases)}; the table has all.")
    percents = [name for name in noise_table(own).columns if name.startswith(("noise", "found"))]
    show_table(noise_table(own), formats=dict.fromkeys(percents, "{:.2%}".format))


def _show_history(view: View, fleet: _Fleet) -> None:
    cases = sorted(
        {case.case_id for case in view.filters.facets.cases if view.filters.admits_case(case.case_id)},
        key=natural_order,
    )
    if not cases:
        st.info("No case is within the filters: widen them.", icon=":material/filter_alt_off:")
        return
    choices = st.container(horizontal=True)
    case_id = view.link.choose("Case", cases, parameter="case", place=choices)
    history = {
        one.key.implementation: one
        for one in data.read_case_history(
            view.project,
            case_id,
            with_every_run=True,
            runner_classes=(fleet.runner_class,),
            branches=view.filters.branches,
        )
        if any(point.value is not None for point in one.points)
    }
    if not history:
        st.info("This case was never timed on this runner class: choose another.", icon=":material/timer_off:")
        return
    implementation = view.link.choose("Implementation", list(history), parameter="implementation", place=choices)
    series = history[implementation]
    st.subheader("Time, clock and temperature", anchor=False)
    show_figure(runner_history_figure(series, fleet.zone), key=MAIN_FIGURE)
    timed = [point for point in series.points if point.value is not None]
    doubtful = sum(bool(point.degraded_by) for point in timed)
    st.caption(
        f"{len(timed)} runs, pairs and other branches among them; in {doubtful} of them "
        f"({metric('utilisation').format(doubtful / len(timed))}) the device was held back or shared. Clock and "
        "temperature are of the blocks of this very case, where somebody watched."
    )
    st.subheader("What was judged of it", anchor=False)
    moves = moves_table(series.key, data.list_regressions(view.project))
    if moves.empty:
        st.text("No step and no drift is stored for this series.")
    else:
        show_table(moves)


def _say_of_whole_runs(view: View) -> None:
    if view.filters.case_ids is not None:
        st.caption("Of whole runs: kernel family, dtype, tag and owner do not narrow it.")


def _show_ceilings(view: View, fleet: _Fleet) -> None:
    st.subheader("Measured ceilings over time", anchor=False)
    _say_of_whole_runs(view)
    table = ceilings_table(fleet.own_runs)
    if table.empty:
        st.info("No run on this runner class measured its ceilings.", icon=":material/roofing:")
        return
    show_figure(ceiling_history_figure(fleet.own_runs, fleet.zone), key=MAIN_FIGURE)
    show_table(table, formats={"share of it": "{:.1%}".format})
    st.caption("Only what is measured judges; the datasheet's figures stand beside it.")


def _show_environments(view: View, fleet: _Fleet) -> None:
    st.subheader("What compares", anchor=False)
    _say_of_whole_runs(view)
    with st.container(key=MAIN_FIGURE):
        show_table(classes_table([run for own in fleet.runs.values() for run in own], fleet.zone))
    st.caption(
        "Times compare within a row, where their timer and the state of the cache are equal too; between rows they are "
        "refused."
    )
    st.subheader("What differs all the same", anchor=False)
    differences = differences_table(fleet.own_runs, fleet.zone)
    if differences.empty:
        st.text("All runs on this runner class had one and the same environment.")
    else:
        show_table(differences)


# each reads what it alone needs
_PARTS: Mapping[str, Callable[[View, _Fleet], None]] = {
    "health and noise": _show_health,
    "history of a case": _show_history,
    "ceilings": _show_ceilings,
    "environments": _show_environments,
}


if __name__ == "__main__":
    show()
