"""How far each case is from its roof, on each runner, and how that changed."""

from collections.abc import Sequence

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.components.markup import show_markup
from roofwatch.dashboard.components.page import (
    MAIN_FIGURE,
    NO_RUNS,
    View,
    open_view,
    show_first_steps,
    show_no_match,
)
from roofwatch.dashboard.components.roof_history import histories_html, other_metrics_html
from roofwatch.dashboard.components.roof_table import (
    RoofRow,
    choices_of,
    roof_rows,
    summary_html,
    table_html,
)
from roofwatch.dashboard.components.roof_tabs import show_tabs
from roofwatch.dashboard.wording import device_text
from roofwatch.db.queries import questions
from roofwatch.model.stored_results import RoofCell


def show() -> None:
    with open_view("roof", "Roof", "How far is each case from its roof?") as view:
        cells = data.ask(
            questions.list_roof_cells,
            view.project,
            runner_classes=view.filters.runner_classes,
            branches=view.filters.branches,
            since=view.range.since,
            until=view.range.until,
        )
        newest_runs = data.ask(
            questions.list_fleet_runs,
            view.project,
            limit=1,
            of_each_class=True,
        )
        if not newest_runs:
            show_first_steps(NO_RUNS)
        admitted = [cell for cell in cells if view.filters.admits_case(cell.key.case_id)]
        triaged = data.ask(questions.list_triaged, view.project)
        # what somebody settled is no reason to look
        unsettled = [part.regression for part in triaged if part.is_open]
        rows = roof_rows(admitted, newest_runs, unsettled)
        if not rows:
            show_no_match(view, "values in these dates")
            return
        chosen = _chosen(view, rows)
        for parameter, value in choices_of(chosen.key).items():
            view.link.keep(parameter, value)
        _show(view, rows, chosen, cells)
        show_tabs(view, chosen)


def _show(
    view: View,
    rows: Sequence[RoofRow],
    chosen: RoofRow,
    cells: Sequence[RoofCell],
) -> None:
    is_whole = view.link.asked_or_chosen("rows") == "all"
    tab = view.link.asked_or_chosen("tab") or ""
    classes = {runner.runner_class: device_text(runner.runner_class) for runner in view.runners}
    table_column, history_column = st.columns([10, 11], gap="medium")
    with table_column:
        cases = view.filters.facets.cases
        tokens = {case.case_id: case.costs.get("tokens_per_s") for case in cases}
        table = table_html(
            view,
            rows,
            chosen,
            is_whole=is_whole,
            tab=tab,
            tokens=tokens,
        )
        show_markup(f"{summary_html(rows, classes)}{table}", key=MAIN_FIGURE)
    with history_column:
        show_markup(histories_html(view, chosen, rows, cells), key="histories")
        view.link.unfold(
            "Other metrics of this case",
            lambda: show_markup(other_metrics_html(view, chosen), key="metrics"),
            parameter="metrics",
        )


def _chosen(view: View, rows: Sequence[RoofRow]) -> RoofRow:
    """Return the row that fits most of the choices in the address; the worst without any."""
    names = (
        "kernel",
        "case",
        "implementation",
        "runner",
        "metric",
    )
    choices = {name: view.link.asked_or_chosen(name) for name in names}

    def fit(row: RoofRow) -> int:
        values = choices_of(row.key)
        return sum(choices[name] == value for name, value in values.items())

    # max returns the first of equals, which is the worst
    return max(rows, key=fit)


if __name__ == "__main__":
    show()
