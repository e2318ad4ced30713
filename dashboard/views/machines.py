"""Health, noise, drift and comparability of the runners."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

import streamlit as st

from roofwatch.ci.ab.comparable import Difference, differences_of
from roofwatch.ci.ab.noise_floor import DETECTABLE_AT, CaseNoise
from roofwatch.ci.alerts.silence import report_interval
from roofwatch.ci.history.recent import noise_from_history
from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.runners import (
    ceiling_history_figure,
    ceiling_name,
    runner_history_figure,
)
from roofwatch.dashboard.charts.trend import trend_figure
from roofwatch.dashboard.components.agenda import show_agenda
from roofwatch.dashboard.components.health import health_columns, read_noise
from roofwatch.dashboard.components.page import (
    MAIN_FIGURE,
    View,
    note_whole_runs,
    open_view,
    show_no_match,
)
from roofwatch.dashboard.components.run_tables import datasheet_columns
from roofwatch.dashboard.components.table import Column, grouped, show_table
from roofwatch.dashboard.components.trend import show_changes
from roofwatch.dashboard.wording import duration_text, natural_order, rate_text, written
from roofwatch.db.queries import questions
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.model.machine import Ceiling
from roofwatch.model.metrics import metric
from roofwatch.model.stored_results import FleetRun

_RUNS_READ = 300
"""Maximum runs over all runner classes."""
_RUNS_COUNTED = 60
"""Maximum runs per runner class whose measurements are counted."""
_DRAWN = 8
"""Maximum series of another tool in a figure."""

Runs = Mapping[str, Sequence[FleetRun]]
"""By runner class, newest first."""


def show() -> None:
    with open_view("machines", "Runners", "Runner health, and which runs are comparable.") as view:
        # the newest of each class, so a silent runner stays visible
        class_count = len(view.filters.runner_classes or view.filters.facets.runner_classes)
        limit = max(_RUNS_COUNTED, _RUNS_READ // max(class_count, 1))
        runs = sorted(
            view.list_runs(limit=limit, of_each_class=True),
            key=lambda run: run.started_at,
            reverse=True,
        )
        by_class = grouped(runs, lambda run: run.runner_class)
        choices = st.container(horizontal=True)
        part = view.link.choose("Show", list(_PARTS), parameter="show", place=choices)
        runner_class = view.link.choose(
            "Runner class", list(by_class), parameter="runner", place=choices
        )
        _PARTS[part](view, by_class, runner_class)


def _show_health(view: View, runs: Runs, runner_class: str) -> None:
    counted = tuple(UUID(run.run_id) for own in runs.values() for run in own[:_RUNS_COUNTED])
    measured, degraded = Counter[str](), Counter[str]()
    for cost in data.ask(questions.list_kernel_costs, counted, case_ids=view.filters.case_ids):
        measured[cost.run_id] += cost.measurement_count
        degraded[cost.run_id] += cost.degraded_count
    intervals = {one: report_interval(run.finished_at for run in own) for one, own in runs.items()}
    noise = read_noise(view)
    classes = view.filters.runner_classes
    recent = data.ask(questions.read_recent_runs, view.project, runner_classes=classes)
    history = noise_from_history(recent)
    noisiest_first = sorted(
        runs, key=lambda runner: -history[runner].deviation if runner in history else 0.0
    )

    def degraded_share(runner: str) -> float | None:
        count = sum(measured[run.run_id] for run in runs[runner])
        return sum(degraded[run.run_id] for run in runs[runner]) / count if count else None

    def gap_ns(runner: str) -> float | None:
        gap = intervals[runner].usual_gap
        return None if gap is None else gap.total_seconds() * 1e9

    def false_alarms(runner: str) -> str:
        known = noise.get(runner)
        return (
            f"{known.false_alarm_count} of {known.comparison_count}" if known else "not calibrated"
        )

    st.header("Every runner class", anchor=False)
    show_table(
        noisiest_first,
        *health_columns(intervals, degraded_share, noise, history),
        Column("runs", lambda runner: len(runs[runner])),
        Column("usually every", gap_ns, duration_text),
        Column(
            "false alarms",
            false_alarms,
            help="Verdicts of a change in A/A calibrations, over all cases.",
        ),
        key=MAIN_FIGURE,
    )
    st.header("Noise by case", anchor=False)
    known = noise.get(runner_class)
    if known is not None and known.cases:
        _show_noise(known.cases)
    elif known is not None and view.filters.case_ids is not None:
        show_no_match(view, "calibrated cases")
    elif _is_imported(runs[runner_class][0]):
        st.text("Not known: a calibration needs a machine that roofwatch measures on.")
    else:
        st.info("Not calibrated (no A/A run on this runner class).", icon=":material/tune:")
        st.markdown(
            "`roofwatch calibrate path/to/bench_file.py`, then `roofwatch ingest roofwatch-records`"
        )


def _show_noise(cases: Sequence[CaseNoise]) -> None:
    """Show the noise of each case, noisiest first."""

    def detectable_column(blocks: int) -> Column[CaseNoise]:
        title = f"min. detectable change ({blocks} blocks)"
        return Column(title, lambda case: case.detectable_change.get(blocks), "{:.2%}".format)

    show_table(
        cases,
        Column("case", lambda case: case.case_id),
        Column("implementation", lambda case: case.implementation),
        Column("blocks", lambda case: case.block_count),
        Column("noise floor", lambda case: case.noise_floor, "{:.2%}".format),
        *map(detectable_column, DETECTABLE_AT),
        Column("A/A verdict", lambda case: "false alarm" if case.is_false_alarm else "no change"),
    )


def _show_history(view: View, _runs: Runs, runner_class: str) -> None:
    cases = {
        case.case_id for case in view.filters.facets.cases if view.filters.admits_case(case.case_id)
    }
    if not cases:
        show_no_match(view, "cases")
        return
    choices = st.container(horizontal=True)
    case_id = view.link.choose(
        "Case", sorted(cases, key=natural_order), parameter="case", place=choices
    )
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
    if not history and _show_imported_history(view, case_id, runner_class):
        return
    if not history:
        st.info(
            "This case has no times on this runner class: choose another.",
            icon=":material/timer_off:",
        )
        return
    implementation = view.link.choose(
        "Implementation", list(history), parameter="implementation", place=choices
    )
    series = history[implementation]
    st.header("Time, clock and temperature", anchor=False)
    st.plotly_chart(runner_history_figure(series, view.zone), key=MAIN_FIGURE)
    timed = [point for point in series.points if point.value is not None]
    doubtful = sum(bool(point.degraded_by) for point in timed)
    st.caption(
        f"{len(timed)} runs, including pairs and other branches; in {doubtful} of them "
        f"({metric('utilisation').format(doubtful / len(timed))}) the device was throttled or "
        f"contended. Clock and "
        "temperature are those of the blocks of this case, if they were read."
    )
    show_changes([series], data.list_regressions(view.project))


def _show_imported_history(view: View, case_id: str, runner_class: str) -> bool:
    """Show the values of other tools for a case on a runner class; False without any."""
    keys = [
        key
        for key in data.ask(
            questions.list_series_keys, view.project, include_dirty=False, include_branches=False
        )
        if key.is_performance and key.case_id == case_id and key.runner_class == runner_class
    ]
    if not keys:
        return False
    trend = data.ask(questions.read_trend, TrendQuestion(view.project, tuple(keys[:_DRAWN])))
    if not trend.series:
        return False
    regressions = data.list_regressions(view.project)
    st.header("Values of another tool", anchor=False)
    figure = trend_figure(trend.series, regressions, view.zone, places=trend.places)
    st.plotly_chart(figure, key=MAIN_FIGURE)
    st.caption(
        "Clock, temperature and throttling are unknown: the files of the other tool do not have "
        "them."
    )
    show_changes(trend.series, regressions)
    return True


def _show_ceilings(view: View, runs: Runs, runner_class: str) -> None:
    """Show the newest ceilings next to the range of all and the datasheet."""
    st.header("Measured ceilings over time", anchor=False)
    note_whole_runs(view)
    own = runs[runner_class]
    measured = [[one for one in run.ceilings if one.source == "measured"] for run in own]
    seen = grouped((one for ceilings in measured for one in ceilings), ceiling_name)
    newest = next(filter(None, measured), [])
    if not newest:
        st.info("No measured ceilings on this runner class.", icon=":material/roofing:")
        return

    def rate_column(title: str, per_s_of: Callable[[Iterable[float]], float]) -> Column[Ceiling]:
        return Column(
            title,
            lambda one: rate_text(
                one.resource, per_s_of([other.per_s for other in seen[ceiling_name(one)]])
            ),
        )

    st.plotly_chart(ceiling_history_figure(own, view.zone), key=MAIN_FIGURE)
    show_table(
        newest,
        Column("ceiling", ceiling_name),
        Column("newest", lambda one: rate_text(one.resource, one.per_s)),
        rate_column("lowest", min),
        rate_column("highest", max),
        *datasheet_columns(compare_with_datasheet(newest, own[0].environment.device_name)),
    )
    st.caption("Utilisation uses measured ceilings; those of the datasheet are for comparison.")


def _show_environments(view: View, runs: Runs, runner_class: str) -> None:
    st.header("Comparable groups", anchor=False)
    note_whole_runs(view)
    groups = grouped(
        (run for own in runs.values() for run in own),
        lambda run: (run.runner_class, run.harness_version),
    )
    show_table(
        groups.values(),
        Column("runner class", lambda own: own[0].runner_class),
        Column("harness", lambda own: own[0].harness_version),
        Column("runs", len),
        Column(
            "environments",
            lambda own: None if _is_imported(own[0]) else len(_by_environment(own)),
            help="Not known of imported results.",
        ),
        Column("first", lambda own: written(own[-1].started_at, view.zone)),
        Column("last", lambda own: written(own[0].started_at, view.zone)),
        key=MAIN_FIGURE,
    )
    st.caption(
        "Times are comparable within a row if timer and cache state are equal too, but not "
        "between rows."
    )
    st.header("Environment differences within a group", anchor=False)
    if _is_imported(runs[runner_class][0]):
        st.text("Not known: the files of the other tool have no driver, toolchain or machine.")
        return
    environments = _by_environment(runs[runner_class])

    def environment_column(at: int, own: Sequence[FleetRun]) -> Column[Difference]:
        count = f"{len(own)} run{'' if len(own) == 1 else 's'}"
        title = f"{at + 1}: {count}, last {written(own[0].started_at, view.zone)}"
        return Column(title, lambda one: one.values[at])

    show_table(
        differences_of([own[0].environment for own in environments]),
        Column("what", lambda one: one.name),
        Column("may move times", lambda one: "toolchain" if one.may_move_times else ""),
        *(environment_column(at, own) for at, own in enumerate(environments)),
        if_empty="All runs on this runner class had the same environment.",
    )


def _is_imported(run: FleetRun) -> bool:
    return run.environment.imported_from is not None


def _by_environment(runs: Sequence[FleetRun]) -> list[list[FleetRun]]:
    """Group runs by environment, that of the newest run first."""
    return list(grouped(runs, lambda run: run.environment.model_dump_json()).values())


_PARTS: Mapping[str, Callable[[View, Runs, str], None]] = {
    "health and noise": _show_health,
    "history of a case": _show_history,
    "ceilings": _show_ceilings,
    "environments": _show_environments,
    "agenda": lambda view, _runs, runner_class: show_agenda(view, runner_class),
}


if __name__ == "__main__":
    show()
