"""Open regressions, how kernels changed, and the health of runners."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pandas as pd
import streamlit as st

from roofwatch.ci.history.summary import Movement, movements
from roofwatch.dashboard import data
from roofwatch.dashboard.components.health import show_false_alarms, show_gaps, show_newest, show_quarantine
from roofwatch.dashboard.components.page import MAIN_FIGURE, NO_RUNS, View, open_view, show_first_steps, show_no_match
from roofwatch.dashboard.components.regressions import ORDERS, in_order, row_html, show_others, trend_of
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.components.triage import find_triager, show_selected
from roofwatch.dashboard.wording import movement_text
from roofwatch.db.auth.values import TriagedRegression, TriageState
from roofwatch.db.queries import questions
from roofwatch.db.queries.results import RunnerCoverage

_ROWS_AT_FIRST = 10
_KERNELS_SHOWN = 40
_WINDOWS = {"7 days": 7, "30 days": 30, "90 days": 90, "all": None}
_WINDOW_AT_FIRST = "30 days"
_UNCHANGED, _NOT_MEASURED = "=", ""
_SLOWER, _FASTER = "213, 94, 0", "0, 114, 178"
"""Red, green, blue."""
_FULL_COLOUR_AT = math.log(1.5)
"""Log ratio at full colour: 1.5 times slower or faster."""


def show() -> None:
    now = datetime.now(UTC)
    with open_view("overview", "Overview", "What became slower, at which commit, by how much, and why.") as view:
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
            replace(runner, cases=tuple(case for case in runner.cases if admits.admits_case(case.case_id)))
            for runner in standings
        ]
        found = [
            one for one in data.ask(questions.list_triaged, view.project) if admits.admits_regression(one.regression)
        ]
        _show_open(view, [one for one in found if one.is_open], now)
        recent = data.ask(questions.read_recent_runs, view.project, runner_classes=admits.runner_classes)
        if runners:
            show_newest(view, runners, recent, [one.regression for one in found])
        show_others(view, found, now)
        since = _choose_window(view, runners)
        _show_movements(view, found, runners, since)
        if runners:
            show_gaps(runners)
            show_quarantine(view)
        else:
            show_no_match("No run matches the filters")
        show_false_alarms(found, since)


def _show_open(view: View, waiting: Sequence[TriagedRegression], now: datetime) -> None:
    st.subheader(f"Open regressions: {len(waiting)}", anchor=False)
    if not waiting:
        st.success("No open regressions.", icon=":material/check:")
    may_triage = find_triager(view.project)[0] is not None
    limit, order = _ROWS_AT_FIRST, next(iter(ORDERS))
    if len(waiting) > 1:
        line = st.container(horizontal=True, vertical_alignment="bottom")
        order = view.link.choose("Sort", list(ORDERS), parameter="order", place=line.container(width=200))
        if len(waiting) > limit and view.link.switch(f"Show more than the first {limit}", parameter="all", place=line):
            limit = len(waiting)
    selected = []
    with st.container(gap="xsmall"):
        for one in in_order(waiting, order)[:limit]:
            with st.container(border=True, key=f"row-{one.regression_id}"):
                row, links = st.columns([13, 1], vertical_alignment="center")
                row.html(row_html(view, one, now))
                with links.container(gap=None):
                    view.page_link("regression", "Details", regression=one.regression_id)
                    view.page_link("trends", "Trend", **trend_of(one.regression.change_points[0]))
                    if may_triage and st.checkbox("Select", key=f"select {one.regression_id}"):
                        selected.append(one)
    if may_triage and waiting:
        show_selected(view.project, selected)


def _choose_window(view: View, runners: Sequence[RunnerCoverage]) -> datetime | None:
    """Return the start of the window, counted from the newest commit so a link stays stable."""
    st.subheader("Kernel changes", anchor=False)
    chosen = view.link.choose(
        "Commits of the last",
        list(_WINDOWS),
        parameter="window",
        default=_WINDOW_AT_FIRST,
        place=st.container(width=200),
    )
    days = _WINDOWS[chosen]
    newest = max((runner.newest_commit_at for runner in runners), default=None)
    return None if days is None or newest is None else newest - timedelta(days=days)


def _show_movements(
    view: View, found: Sequence[TriagedRegression], runners: Sequence[RunnerCoverage], since: datetime | None
) -> None:
    regressions = [one.regression for one in found if one.triage.state is not TriageState.INVALID]
    moved = {
        (one.kernel, one.runner_class): one
        for one in movements(regressions, since=since)
        if view.filters.admits_kernel(one.kernel) and view.filters.admits_runner(one.runner_class)
    }
    measured = {
        (case.case_id.split("/", 1)[0], runner.runner_class)
        for runner in runners
        for case in runner.cases
        if case.outcomes
    }
    kernels = _most_moved_first({kernel for kernel, _ in measured | moved.keys()}, list(moved.values()))
    if not kernels:
        where = "is within the filters" if view.filters.is_narrow else "is stored yet"
        st.text(f"No run of a clean work tree {where}, so there is nothing to show.")
        return
    shown = kernels[:_KERNELS_SHOWN]
    _show_heat_map(view, shown, [runner.runner_class for runner in runners], moved, measured)
    rest = "" if len(kernels) == len(shown) else f" The {len(shown)} of {len(kernels)} kernels that changed most."
    st.caption(
        "Judged change of the time from before the window to its end, of the series that became slowest, or else "
        "fastest: + is slower, − is faster, = is measured without a judged change, and an empty cell is not "
        f"measured. A click on a change opens its trend.{rest}"
    )
    if moved:
        view.link.unfold("As a table", lambda: _show_as_table(view, moved.values()), parameter="table")


def _show_as_table(view: View, moved: Iterable[Movement]) -> None:
    show_table(
        moved,
        Column(
            "open",
            lambda one: view.address_of("trends", kernel=one.kernel, runner=one.runner_class),
            link="trend",
        ),
        Column("kernel", lambda one: one.kernel),
        Column("runner class", lambda one: one.runner_class),
        Column("change of the time", movement_text),
        Column("series slower or failing", lambda one: one.slower_count),
        Column("series faster", lambda one: one.faster_count),
    )


def _most_moved_first(kernels: set[str], moved: Sequence[Movement]) -> list[str]:
    def rank(kernel: str) -> tuple[float, str]:
        own = [one for one in moved if one.kernel == kernel]
        changes = [math.inf if one.relative_change is None else abs(one.relative_change) for one in own]
        return -max(changes, default=0.0), kernel

    return sorted(kernels, key=rank)


def _show_heat_map(
    view: View,
    kernels: Sequence[str],
    runner_classes: Sequence[str],
    moved: Mapping[tuple[str, str], Movement],
    measured: set[tuple[str, str]],
) -> None:
    """Show the change of each kernel on each runner class, as text and colour."""

    def text(kernel: str, runner_class: str) -> str:
        movement = moved.get((kernel, runner_class))
        if movement is not None:
            return movement_text(movement)
        return _UNCHANGED if (kernel, runner_class) in measured else _NOT_MEASURED

    def each_cell(write: Callable[[str, str], str]) -> pd.DataFrame:
        cells = {name: [write(kernel, name) for kernel in kernels] for name in runner_classes}
        return pd.DataFrame(cells, index=pd.Index(kernels, name="kernel"))

    colours = each_cell(lambda kernel, runner_class: cell_colour(moved.get((kernel, runner_class))))
    selected = st.dataframe(
        each_cell(text).style.apply(lambda _: colours, axis=None),
        key=MAIN_FIGURE,
        height="content",
        on_select="rerun",
        selection_mode="single-cell",
    )
    for row, runner_class in selected["selection"]["cells"]:
        if (kernels[row], runner_class) in moved:
            view.switch_to("trends", kernel=kernels[row], runner=runner_class)


def cell_colour(movement: Movement | None) -> str:
    """Return the style of a cell: stronger for larger changes, readable on light and dark pages."""
    if movement is None:
        return ""
    depth = _FULL_COLOUR_AT if movement.relative_change is None else math.log1p(movement.relative_change)
    strength = 0.1 + 0.4 * min(abs(depth) / _FULL_COLOUR_AT, 1.0)
    return f"background-color: rgba({_SLOWER if depth > 0 else _FASTER}, {strength:.2f})"


if __name__ == "__main__":
    show()
