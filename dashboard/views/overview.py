"""What needs attention now: open regressions first, then how kernels moved, and what watches over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pandas as pd
import streamlit as st

from roofwatch.ci.history.movement import Movement, movements
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.heat_map import heat_map_html
from roofwatch.dashboard.filters import Filters
from roofwatch.dashboard.frame import MAIN_FIGURE, View, open_view, say_how_to_begin
from roofwatch.dashboard.panels.health import show_false_alarms, show_gaps, show_quarantine, show_runners
from roofwatch.dashboard.reader import is_page_dark
from roofwatch.dashboard.tables.markup import Column
from roofwatch.dashboard.tables.regression import show_others, show_row
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.triaged import Order, Triaged, in_order
from roofwatch.dashboard.wording import movement_text
from roofwatch.db.queries.coverage_values import RunnerStanding
from roofwatch.db.values import Regression

_ROWS_AT_FIRST = 10
_KERNELS_SHOWN = 40
_WINDOWS = {"7 days": 7, "30 days": 30, "90 days": 90, "all": None}
_WINDOW_AT_FIRST = "30 days"


def show() -> None:
    now = datetime.now(UTC)
    with open_view("overview", "Overview", "What became slower, at which commit, by how much, and why.") as view:
        runners = _list_runners(view.project, view.filters)
        if not runners and not view.filters.is_narrow:
            say_how_to_begin("This project has no runs yet. Measure a benchmark file, then store its record:")
        runners = [_narrowed(runner, view) for runner in runners]
        found = [one for one in data.list_triaged(view.project) if view.filters.admits_regression(one.regression)]
        _show_open(view, [one for one in found if one.is_open], now)
        show_others(view, found, now)
        since = _choose_window(view, runners)
        _show_movements(view, [one.regression for one in found if not one.is_called_none], runners, since)
        if runners:
            show_runners(view, runners, now)
            show_gaps(runners)
            show_quarantine(view)
        else:
            st.info("No run is within the filters: widen them.", icon=":material/filter_alt_off:")
        show_false_alarms(found, since)


def _list_runners(project: str, filters: Filters) -> Sequence[RunnerStanding]:
    return data.list_runner_standings(project, runner_classes=filters.runner_classes, branches=filters.branches)


def _narrowed(runner: RunnerStanding, view: View) -> RunnerStanding:
    """What the filters admit of its cases."""
    return replace(runner, cases=tuple(case for case in runner.cases if view.filters.admits_case(case.case_id)))


def _show_open(view: View, waiting: Sequence[Triaged], now: datetime) -> None:
    st.subheader(f"Open regressions: {len(waiting)}", anchor=False)
    if not waiting:
        st.success("None: nothing that was judged became slower or wrong.", icon=":material/check:")
    limit, order = _ROWS_AT_FIRST, Order.URGENCY
    if len(waiting) > 1:
        line = st.container(horizontal=True, vertical_alignment="bottom")
        chosen = view.link.choose("Order by", [*Order], parameter="order", place=line.container(width=200))
        order = Order(chosen)
        if len(waiting) > limit and view.link.switch(f"Show more than the first {limit}", parameter="all", place=line):
            limit = len(waiting)
    for one in in_order(waiting, order)[:limit]:
        show_row(view, one, now)


def _choose_window(view: View, runners: Sequence[RunnerStanding]) -> datetime | None:
    """When the window begins, counted back from the newest commit, so that a link shows tomorrow what it shows now."""
    st.subheader("How kernels moved", anchor=False)
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
    view: View, regressions: Sequence[Regression], runners: Sequence[RunnerStanding], since: datetime | None
) -> None:
    moved = {
        (one.kernel, one.runner_class): one
        for one in movements(regressions, since=since)
        if view.filters.admits_kernel(one.kernel) and view.filters.admits_runner(one.runner_class)
    }
    measured = {
        (_kernel_of(case.case_id), runner.runner_class) for runner in runners for case in runner.cases if case.outcomes
    }
    kernels = _most_moved_first({kernel for kernel, _ in measured | moved.keys()}, list(moved.values()))
    if not kernels:
        where = "is within the filters" if view.filters.is_narrow else "is stored yet"
        st.text(f"No run of a clean work tree {where}, so there is nothing to show.")
        return
    shown = kernels[:_KERNELS_SHOWN]
    runner_classes = [runner.runner_class for runner in runners]
    trends = {
        (one.kernel, one.runner_class): view.link.address_of(
            "trends", project=view.project, kernel=one.kernel, runner=one.runner_class
        )
        for one in moved.values()
    }
    place = st.container(key=MAIN_FIGURE)
    place.html(heat_map_html(shown, runner_classes, moved, measured, trends=trends, is_dark=is_page_dark()))
    rest = "" if len(kernels) == len(shown) else f" The {len(shown)} of {len(kernels)} kernels that moved most."
    st.caption(
        "Judged change of the time from before the window to its end, of the series that became slowest, or else "
        "fastest: + is slower, − is faster, = is measured without a judged change, and an empty cell is not "
        f"measured.{rest}"
    )
    if moved:
        table = view.link.unfold("As a table", parameter="table")
        if table is not None:
            with table:
                show_table(
                    _movement_frame(view, list(moved.values())),
                    columns={"open": Column(link_text="trend")},
                )


def _most_moved_first(kernels: set[str], moved: Sequence[Movement]) -> list[str]:
    def rank(kernel: str) -> tuple[float, str]:
        own = [one for one in moved if one.kernel == kernel]
        changes = [float("inf") if one.relative_change is None else abs(one.relative_change) for one in own]
        return -max(changes, default=0.0), kernel

    return sorted(kernels, key=rank)


def _movement_frame(view: View, moved: Sequence[Movement]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "open": [
                view.link.address_of("trends", project=view.project, kernel=one.kernel, runner=one.runner_class)
                for one in moved
            ],
            "kernel": [one.kernel for one in moved],
            "runner class": [one.runner_class for one in moved],
            "change of the time": [movement_text(one) for one in moved],
            "series slower or failing": [one.slower_count for one in moved],
            "series faster": [one.faster_count for one in moved],
        }
    )


def _kernel_of(case_id: str) -> str:
    return case_id.split("/", 1)[0]


if __name__ == "__main__":
    show()
