"""Open regressions, how kernels changed, and the health of runners."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape

import streamlit as st

from roofwatch.ci.alerts.silence import report_interval
from roofwatch.ci.history.recent import is_judged
from roofwatch.ci.history.summary import Movement, movements
from roofwatch.ci.messages import count_of
from roofwatch.dashboard import data
from roofwatch.dashboard.components.health import (
    show_false_alarms,
    show_gaps,
    show_newest,
    show_quarantine,
)
from roofwatch.dashboard.components.page import (
    MAIN_FIGURE,
    NO_RUNS,
    View,
    open_view,
    show_first_steps,
    show_no_match,
)
from roofwatch.dashboard.components.regressions import (
    find_triager,
    in_order,
    row_html,
    show_others,
    show_selected,
    trend_of,
)
from roofwatch.dashboard.components.table import show_html_table
from roofwatch.dashboard.components.workloads import show_workloads
from roofwatch.dashboard.wording import percent, shortened
from roofwatch.db.queries import questions
from roofwatch.model.metrics import Layer
from roofwatch.model.stored_results import RecentRuns, RunnerCoverage
from roofwatch.model.triage import TriagedRegression, TriageState

_ROWS_AT_FIRST = 10
_WINDOWS = {"7 days": 7, "30 days": 30, "90 days": 90, "all": None}
_WINDOW_AT_FIRST = "30 days"
_SPILL_METRICS = {"spilled_registers", "spill_store_count", "spill_load_count", "local_bytes"}
_UNCHANGED = "="
_UNDECIDED = "?"
_SLOWER, _FASTER = "213, 94, 0", "0, 114, 178"
"""Red, green, blue."""
_FULL_COLOUR_AT = math.log(1.5)
"""Log ratio at full colour: 1.5 times slower or faster."""


def show() -> None:
    now = datetime.now(UTC)
    with open_view(
        "ledger", "Overview", "What became slower, at which commit, by how much, and why."
    ) as view:
        admits = view.filters
        standings = data.ask(
            questions.list_runner_coverage,
            view.project,
            runner_classes=admits.runner_classes,
            branches=admits.branches,
        )
        if not standings and not admits.is_narrow:
            show_first_steps(NO_RUNS)
        runners = [
            replace(
                runner,
                cases=tuple(case for case in runner.cases if admits.admits_case(case.case_id)),
            )
            for runner in standings
        ]
        found = [
            one
            for one in data.ask(questions.list_triaged, view.project)
            if admits.admits_regression(one.regression)
        ]
        _show_open(view, [one for one in found if one.is_open], now)
        show_others(view, found, now)
        recent = data.ask(
            questions.read_recent_runs, view.project, runner_classes=admits.runner_classes
        )
        if runners:
            show_newest(view, runners, recent, [one.regression for one in found])
        show_workloads(view, recent)
        since = _choose_window(view, runners)
        _show_movements(view, found, runners, recent, since, now)
        if runners:
            show_gaps(runners)
            show_quarantine(view)
        else:
            show_no_match(view, "runs")
        show_false_alarms(found, since)


def _show_open(view: View, waiting: Sequence[TriagedRegression], now: datetime) -> None:
    line = st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"
    )
    line.header(f"Open regressions: {len(waiting)}", anchor=False, width="content")
    if not waiting:
        st.success("No open regressions.", icon=":material/check:")
    may_triage = find_triager(view.project)[0] is not None
    shown = in_order(waiting)
    label = f"Show more than the first {_ROWS_AT_FIRST}"
    if len(shown) > _ROWS_AT_FIRST and not view.link.switch(label, parameter="all", place=line):
        shown = shown[:_ROWS_AT_FIRST]
    selected = []
    with st.container(gap="xsmall"):
        for one in shown:
            with st.container(border=True, key=f"row-{one.regression_id}"):
                row, links = st.columns([13, 1], vertical_alignment="center")
                row.html(row_html(view, one, now))
                with links.container(gap=None):
                    view.page_link("regression", "Details", regression=one.regression_id)
                    view.page_link("roof", "Trend", **trend_of(one.regression.change_points[0]))
                    if may_triage and st.checkbox("Select", key=f"select {one.regression_id}"):
                        selected.append(one)
    if may_triage and waiting:
        show_selected(view.project, selected)


def _choose_window(view: View, runners: Sequence[RunnerCoverage]) -> datetime | None:
    """Return the start of the window, counted from the newest commit so a link stays stable."""
    line = st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="bottom"
    )
    line.header("Changes by kernel and runner", anchor=False, width="content")
    chosen = view.link.choose(
        "Time range",
        list(_WINDOWS),
        parameter="window",
        default=_WINDOW_AT_FIRST,
        place=line.container(width=200),
    )
    days = _WINDOWS[chosen]
    newest = max((runner.newest_commit_at for runner in runners), default=None)
    return None if days is None or newest is None else newest - timedelta(days=days)


def _show_movements(
    view: View,
    found: Sequence[TriagedRegression],
    runners: Sequence[RunnerCoverage],
    recent: Sequence[RecentRuns],
    since: datetime | None,
    now: datetime,
) -> None:
    """Show the change of each kernel that changed on each runner class, as a table of links."""
    regressions = [one.regression for one in found if one.triage.state is not TriageState.INVALID]
    admits = view.filters
    moved = {
        (one.kernel, one.runner_class): one
        for one in movements(regressions, since=since)
        if admits.admits_kernel(one.kernel) and admits.admits_runner(one.runner_class)
    }
    broken = {
        one.series.kernel: "✕ incorrect" if one.after is None else "▲ spills"
        for regression in (one.regression for one in found if one.is_open)
        for one in regression.change_points
        if one.series.definition.layer is Layer.ACCURACY or one.series.metric in _SPILL_METRICS
    }
    measured = {
        (case.case_id.partition("/")[0], runner.runner_class)
        for runner in runners
        for case in runner.cases
        if case.outcomes
    }
    sizes = dict.fromkeys(broken, 0.0)
    for one in moved.values():
        size = math.inf if one.relative_change is None else abs(one.relative_change)
        sizes[one.kernel] = max(size, sizes.get(one.kernel, 0.0))
    kernels = sorted(sizes, key=lambda kernel: (-sizes[kernel], kernel))
    undecided, judged = _undecided_and_judged(recent)
    rest = {kernel for kernel, _ in measured} - set(kernels)
    rest_words = _words_on_rest(rest, undecided, judged)
    if not kernels:
        st.text(f"No decided change in this time range. {rest_words}")
        return
    newest = max(runner.newest_commit_at for runner in runners) if runners else now
    stale = {
        runner.runner_class
        for runner in runners
        if runner.newest_commit_at < newest or report_interval(runner.result_times).is_silent(now)
    }
    classes = [runner.runner_class for runner in runners]

    def cell(kernel: str, runner_class: str) -> str:
        movement = moved.get((kernel, runner_class))
        text = ""
        if (kernel, runner_class) in measured:
            is_unchanged = (kernel, runner_class) in judged - undecided
            text = _UNCHANGED if is_unchanged else _UNDECIDED
        if movement is not None:
            change = (
                "✕ fails" if movement.relative_change is None else percent(movement.relative_change)
            )
            text = view.anchor(change, "roof", kernel=kernel, runner=runner_class)
        kind = ' class="rw-stale"' if runner_class in stale else ""
        return f'<td{kind} style="{cell_colour(movement)}">{text}</td>'

    def row(kernel: str) -> Iterator[str]:
        yield f"<th scope=row>{escape(shortened(kernel))} {broken.get(kernel, '')}</th>"
        yield from (cell(kernel, one) for one in classes)

    with st.container(key=MAIN_FIGURE):
        show_html_table(map(row, kernels), "kernel", *(escape(shortened(one)) for one in classes))
    st.caption(
        f"Change in median time, or in a value of another tool, over the range; worst case per "
        f"cell. {_UNCHANGED} no significant "
        f"change. {_UNDECIDED} undecided: too few values, or no time. Blank: no data. Hatched: the "
        f"runner is silent or has not measured the newest commit. {rest_words}"
    )


_Place = tuple[str, str]
"""Kernel and runner class."""


def _undecided_and_judged(recent: Sequence[RecentRuns]) -> tuple[set[_Place], set[_Place]]:
    """Return where times wait for a verdict, and where they support one."""
    undecided: set[_Place] = set()
    judged: set[_Place] = set()
    for runner in recent:
        for series in runner.series:
            place = (series.key.kernel, runner.runner_class)
            if is_judged(series.values):
                judged.add(place)
            else:
                undecided.add(place)
    return undecided, judged


def _words_on_rest(kernels: set[str], undecided: set[_Place], judged: set[_Place]) -> str:
    """Say why kernels are not in the table of changes: each only as far as it was measured."""
    waiting = kernels & {kernel for kernel, _ in undecided}
    unchanged = kernels & {kernel for kernel, _ in judged} - waiting
    parts = {
        "unchanged": unchanged,
        "undecided, with too few values": waiting,
        "without a time": kernels - waiting - unchanged,
    }
    texts = [f"{words}: {count_of(len(own), 'kernel')}" for words, own in parts.items() if own]
    return f"Not listed: {'; '.join(texts)}." if texts else ""


def cell_colour(movement: Movement | None) -> str:
    """Return the style of a cell: stronger for larger changes, readable on light and dark pages."""
    if movement is None:
        return ""
    depth = _FULL_COLOUR_AT if movement.relative_change is None else movement.log_cost_change
    strength = 0.1 + 0.4 * min(abs(depth) / _FULL_COLOUR_AT, 1.0)
    return f"background-color: rgba({_SLOWER if depth > 0 else _FASTER}, {strength:.2f})"


if __name__ == "__main__":
    show()
