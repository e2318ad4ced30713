"""A runner class: its runs, noise, ceilings over time, environments and the history of a case."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import streamlit as st

from roofwatch.ci.ab.comparable import DifferingField, differences_of
from roofwatch.ci.ab.noise_floor import DETECTABLE_AT, CaseNoise
from roofwatch.ci.messages import count_of
from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.history import History, date_range, figure_html, history_html
from roofwatch.dashboard.charts.runners import (
    case_histories,
    ceiling_histories,
    ceiling_name,
    measured_ceilings,
)
from roofwatch.dashboard.commands import BENCH_FILE, command_html
from roofwatch.dashboard.components.markup import show_markup
from roofwatch.dashboard.components.page import MAIN_FIGURE, View, note_whole_runs, show_no_match
from roofwatch.dashboard.components.run_tables import datasheet_columns
from roofwatch.dashboard.components.table import (
    SUBJECT,
    Column,
    HtmlColumn,
    grouped,
    html_table,
    scrolled,
    show_table,
)
from roofwatch.dashboard.wording import (
    duration_text,
    escaped,
    natural_order,
    rate_text,
    shortened,
    written,
)
from roofwatch.db.queries import questions
from roofwatch.model.history import Series
from roofwatch.model.machine import Ceiling, Outcome
from roofwatch.model.metrics import metric
from roofwatch.model.stored_results import FleetRun

RUNS_READ = 200
"""Newest runs of each runner class that are read."""
_RUNS_LISTED = 40
_FIGURE_PX = 110


def show_machine(view: View, runner_class: str, runs: Sequence[FleetRun]) -> None:
    """Show the runs of a runner class, and what is known of its noise, ceilings and environments.

    Args:
        view: Whose filters count.
        runner_class: Of the machine.
        runs: Of the class, newest first.
    """
    back = view.anchor("← all machines", "machines")
    st.html(f"{back}<h2 class=rw-title>{escaped(runner_class)}</h2>")
    parts: Mapping[str, Callable[[], None]] = {
        "Ceilings over time": partial(_show_ceilings, view, runs),
        "Noise by case": partial(_show_noise, view, runner_class, runs),
        "History of a case": partial(_show_history, view, runner_class),
        "Environments": partial(_show_environments, view, runs),
    }
    st.html(runs_html(view, runs))
    for title, show_part in parts.items():
        name = title.partition(" ")[0].lower()
        view.link.unfold(title, show_part, parameter=name)


def runs_html(view: View, runs: Sequence[FleetRun]) -> str:
    """Write the newest runs as a table that links to each."""
    table = html_table(
        runs[:_RUNS_LISTED],
        [
            HtmlColumn("started", partial(_started_html, view)),
            HtmlColumn("commit", _commit_html),
            HtmlColumn("purpose", lambda run: "pair" if run.is_pair_side else "history"),
            HtmlColumn(
                "measured",
                lambda run: str(sum(run.outcome_counts.values())),
                "number",
            ),
            HtmlColumn("failed", _failed_text, "number"),
            HtmlColumn(
                "took",
                lambda run: escaped(duration_text(run.wall_ns)),
                "number",
            ),
            HtmlColumn("machine", lambda run: escaped(run.machine or "")),
        ],
        attributes=lambda _: " data-row",
    )
    read = str(len(runs))
    # there may be more than were read
    if len(runs) >= RUNS_READ:
        read = f"the newest {read}"
    return f"<h2>Runs <span class=rw-soft>{read}</span></h2>{scrolled(table)}"


def _started_html(view: View, run: FleetRun) -> str:
    started = written(run.started_at, view.zone)
    return view.anchor(started, "machines", run=run.run_id)


def _commit_html(run: FleetRun) -> str:
    sha = escaped(run.commit.short_sha)
    subject = escaped(shortened(run.commit.subject, length=60))
    return f"<code>{sha}</code> {subject}"


def _failed_text(run: FleetRun) -> str:
    failed_count = 0
    for name, count in run.outcome_counts.items():
        if Outcome(name).is_failure:
            failed_count += count
    return str(failed_count or "")


def _show_noise(view: View, runner_class: str, runs: Sequence[FleetRun]) -> None:
    calibrations = data.read_runner_noise(view.project)
    noise_of_class = {calibration.runner_class: calibration for calibration in calibrations}
    noise = noise_of_class.get(runner_class)
    # a calibration is measured, the rest is estimated on the card
    if noise is not None:
        cases = [case for case in noise.cases if view.filters.admits_case(case.case_id)]
        st.caption(
            f"{noise.false_alarm_count} of {noise.comparison_count} verdicts of equal code were "
            "false alarms."
        )
        _show_noise_of_cases(cases)
    elif runs[0].environment.is_imported:
        st.text("Not known: a calibration needs a machine that roofwatch measures on.")
    else:
        calibrate = command_html(f"roofwatch calibrate {BENCH_FILE}")
        ingest = command_html("roofwatch ingest roofwatch-records")
        st.html(f"<p>Not calibrated (no A/A run on this runner class).</p>{calibrate}{ingest}")


def _show_noise_of_cases(cases: Sequence[CaseNoise]) -> None:
    """Show the noise of each case, noisiest first."""

    def detectable_column(blocks: int) -> Column[CaseNoise]:
        title = f"min. detectable change ({blocks} blocks)"
        return Column(
            title,
            lambda case: case.detectable_change.get(blocks),
            "{:.2%}".format,
        )

    show_table(
        cases,
        *SUBJECT,
        Column("blocks", lambda case: case.block_count),
        Column(
            "noise floor",
            lambda case: case.noise_floor,
            "{:.2%}".format,
        ),
        *map(detectable_column, DETECTABLE_AT),
        Column("A/A verdict", lambda case: "false alarm" if case.is_false_alarm else "no change"),
    )


def _show_history(view: View, runner_class: str) -> None:
    case_ids: set[str] = set()
    for case in view.filters.facets.cases:
        if view.filters.admits_case(case.case_id):
            case_ids.add(case.case_id)
    if not case_ids:
        show_no_match(view, "cases")
        return
    choices = st.container(horizontal=True)
    case_id = view.link.choose(
        "Case",
        sorted(case_ids, key=natural_order),
        parameter="case",
        container=choices,
    )
    lines = data.ask(
        questions.read_case_history,
        view.project,
        case_id,
        with_every_run=True,
        runner_classes=(runner_class,),
        branches=view.filters.branches,
    )
    timed_lines = [line for line in lines if _has_value(line)]
    history = {line.key.implementation: line for line in timed_lines}
    if not history:
        roof = view.anchor(
            "Roof",
            "roof",
            case=case_id,
            runner=runner_class,
        )
        st.html(
            "<p>roofwatch has not timed this case on this runner class. "
            f"{roof} has the history of its other metrics.</p>"
        )
        return
    implementation = view.link.choose(
        "Implementation",
        list(history),
        parameter="implementation",
        container=choices,
    )
    series = history[implementation]
    _show_histories(view, case_histories(series), key=MAIN_FIGURE)
    timed = [point for point in series.points if point.value is not None]
    degraded_count = sum(bool(point.degraded_by) for point in timed)
    degraded_share = metric("utilisation").format(degraded_count / len(timed))
    st.caption(
        f"{len(timed)} runs, including pairs and other branches; in {degraded_count} of them "
        f"({degraded_share}) the device was throttled or contended. Clock and temperature are "
        "those of the blocks of this case, if they were read."
    )


def _show_histories(view: View, histories: Sequence[History], *, key: str) -> None:
    """Draw histories below one another on one date axis."""
    drawn: list[History] = []
    for history in histories:
        series = view.dragged_part(history.series)
        if series.points:
            drawn.append(replace(history, series=series))
    if not drawn:
        st.html("<p class=rw-soft>Nothing was measured in these dates.</p>")
        return
    dates = date_range(drawn)
    figures: list[str] = []
    for history in drawn:
        title = escaped(history.metric.title)
        label = escaped(history.series.key.label)
        caption = f"<b>{title}</b> {label}"
        picture = history_html(
            history,
            view.zone,
            height_px=_FIGURE_PX,
            dates=dates,
        )
        figures.append(figure_html(caption, picture))
    show_markup("".join(figures), key=key)


def _has_value(line: Series) -> bool:
    return any(point.value is not None for point in line.points)


def _show_ceilings(view: View, runs: Sequence[FleetRun]) -> None:
    """Show the newest ceilings next to the range of all and the datasheet."""
    note_whole_runs(view)
    by_run = [measured_ceilings(run.ceilings) for run in runs]
    seen = grouped(chain.from_iterable(by_run), ceiling_name)
    # the newest run may have skipped the ceilings
    newest = next(filter(None, by_run), [])
    if not newest:
        st.info("No measured ceilings on this runner class.")
        return

    def rate_column(title: str, per_s_of: Callable[[Iterable[float]], float]) -> Column[Ceiling]:
        def rate(ceiling: Ceiling) -> str:
            same_ceiling = seen[ceiling_name(ceiling)]
            per_s = per_s_of(measured.per_s for measured in same_ceiling)
            return rate_text(ceiling.resource, per_s)

        return Column(title, rate)

    _show_histories(view, ceiling_histories(runs), key="ceilings")
    device_name = runs[0].environment.device_name
    comparisons = compare_with_datasheet(newest, device_name)
    show_table(
        newest,
        Column("ceiling", ceiling_name),
        Column("newest", lambda ceiling: rate_text(ceiling.resource, ceiling.per_s)),
        rate_column("lowest", min),
        rate_column("highest", max),
        *datasheet_columns(comparisons),
    )
    st.caption("Utilisation uses measured ceilings; those of the datasheet are for comparison.")


def _show_environments(view: View, runs: Sequence[FleetRun]) -> None:
    note_whole_runs(view)
    if runs[0].environment.is_imported:
        st.text("Not known: the files of the other tool have no driver, toolchain or machine.")
        return
    groups = _by_environment(runs)
    environments = [same[0].environment for same in groups]

    def environment_column(number: int, same: Sequence[FleetRun]) -> Column[DifferingField]:
        count = count_of(len(same), "run")
        last = written(same[0].started_at, view.zone)
        title = f"{number + 1}: {count}, last {last}"
        return Column(title, lambda difference: difference.values[number])

    def toolchain_mark(difference: DifferingField) -> str:
        if difference.may_move_times:
            return "toolchain"
        return ""

    columns = [environment_column(number, same) for number, same in enumerate(groups)]
    show_table(
        differences_of(environments),
        Column("what", lambda difference: difference.name),
        Column("may move times", toolchain_mark),
        *columns,
        if_empty="All runs on this runner class had the same environment.",
    )


def _by_environment(runs: Sequence[FleetRun]) -> list[list[FleetRun]]:
    """Group runs by environment, that of the newest run first."""
    groups = grouped(runs, lambda run: run.environment.model_dump_json())
    return list(groups.values())
