"""Two commits, runs, branches, toolchains or devices side by side, most relevant difference first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.dashboard import data
from roofwatch.dashboard.charts.distribution import distribution_figure
from roofwatch.dashboard.comparison import (
    By,
    ComparedCase,
    Shown,
    compare_runs,
    run_for,
    runs_by,
    title_of,
    why_not_comparable,
)
from roofwatch.dashboard.components.compare_tables import NOT_COMPARED, comparison_columns, offer_files
from roofwatch.dashboard.components.page import MAIN_FIGURE, View, open_view, show_first_steps, show_no_match
from roofwatch.dashboard.components.table import frame_of, show_table
from roofwatch.dashboard.wording import choice_text, code_span, written
from roofwatch.db.queries import questions
from roofwatch.db.queries.results import RunDetail

_EVERY_KERNEL = "all"
_MAX_RUNS = 500
"""Runs among which sides other than commits are found."""


def show() -> None:
    with open_view("compare", "Compare", "What differs between two sides, as measured and as compiled.") as view:
        kinds, first, second, third, fourth = st.columns([1, 1.8, 1.8, 1, 1])
        by = By(view.link.choose("Compare", [*By], parameter="by", place=kinds))
        base, head = _commits(view, first, second) if by is By.COMMITS else _others(view, by, first, second)
        for side, place in ((base, first), (head, second)):
            place.caption(f"{code_span(side.summary.runner_class)}, {written(side.summary.started_at, view.zone)}")
        if base.summary.run_id == head.summary.run_id or (
            by is By.COMMITS and base.summary.commit == head.summary.commit
        ):
            what = "commit" if by is By.COMMITS else "run"
            st.info(f"Base and head are the same {what}: choose two.", icon=":material/compare_arrows:")
            return
        rows = [
            row
            for row in compare_runs(base, head, data.list_regressions(view.project))
            if view.filters.admits_case(row.case_id)
        ]
        kernel = view.link.choose(
            "Kernel", [_EVERY_KERNEL, *sorted({row.kernel for row in rows})], parameter="kernel", place=third
        )
        shown = Shown(view.link.choose("Show", [*Shown], parameter="show", place=fourth))
        refusal = why_not_comparable(base.summary, head.summary)
        if refusal is not None:
            st.warning(
                f"The times are not comparable, so no change is shown: {refusal.quoted(code_span)}",
                icon=":material/block:",
            )
        if base.summary.commit.first_parent_count > head.summary.commit.first_parent_count:
            st.info("The head is older than the base. Verdicts are stored from old to new: swap the two to see them.")
        rows = [row for row in rows if kernel in (_EVERY_KERNEL, row.kernel) and shown.admits(row)]
        if not rows:
            st.info("No case matches: show everything, or widen the filters.", icon=":material/filter_alt:")
            return
        columns = comparison_columns(rows)
        # one reason for all rows is shown above
        shown_columns = [column for column in columns if refusal is None or column.title != NOT_COMPARED]
        show_table(rows, *shown_columns, key=MAIN_FIGURE)
        st.caption(
            "Times are medians; lower is better. *change* is their plain difference and may be noise. "
            "*stored verdict* comes from stored change points between the two commits, not from this table."
        )
        refused = sum(bool(row.refusal) for row in rows)
        if refused and refusal is None:
            st.warning(
                f"The times of {refused:,} of {len(rows):,} cases are not comparable: base and head were timed "
                "differently. Their column *not compared* has the reason.",
                icon=":material/block:",
            )
        offer_files(frame_of(rows, columns), f"{base.summary.commit.short_sha}-{head.summary.commit.short_sha}")
        _show_samples(view, rows, base, head)


def _commits(view: View, first: DeltaGenerator, second: DeltaGenerator) -> tuple[RunDetail, RunDetail]:
    runner_classes = view.filters.runner_classes
    measured = data.ask(questions.list_commits, view.project, runner_classes=runner_classes)
    commits = {commit.sha: commit for commit in measured if view.filters.admits_commit(commit.sha)}
    if len(commits) < 2:
        _show_too_few(view, By.COMMITS, commits)
    *_, before, newest = commits
    newest_first = sorted(commits, key=lambda sha: commits[sha], reverse=True)

    def choose(label: str, default: str, place: DeltaGenerator) -> str:
        return view.link.choose(
            label,
            newest_first,
            parameter=label.lower(),
            title=lambda sha: choice_text(commits[sha], is_unreachable=commits[sha].is_unreachable),
            default=default,
            place=place,
        )

    base, head = choose("Base", before, first), choose("Head", newest, second)
    return data.ask(questions.read_runs_of_commits, view.project, base, head, runner_classes=runner_classes)


def _others(view: View, by: By, first: DeltaGenerator, second: DeltaGenerator) -> tuple[RunDetail, RunDetail]:
    runs = view.list_runs(limit=_MAX_RUNS)
    choices = runs_by(by, runs, view.filters.facets)
    if len(choices) < 2:
        _show_too_few(view, by, choices)
    newest, before, *_ = choices

    def choose(label: str, default: str, place: DeltaGenerator) -> str:
        return view.link.choose(
            label,
            list(choices),
            parameter=f"{label.lower()}_{by}",
            title=lambda choice: title_of(by, choice, choices[choice], view.zone),
            default=default,
            place=place,
        )

    head = run_for(choices[choose("Head", newest, second)])
    base = run_for(choices[choose("Base", before, first)], runner_class=head.runner_class)
    return data.ask(questions.read_runs, UUID(base.run_id), UUID(head.run_id))


def _show_too_few(view: View, by: By, choices: Mapping[str, object]) -> None:
    """Explain that there is nothing to compare, and end the view."""
    if view.filters.is_narrow:
        show_no_match(f"Comparing takes two {by}, and within the filters there are runs of {len(choices)}")
        st.stop()
    show_first_steps(
        f"Comparing takes two {by}, and there are runs of {len(choices)}. Measure another, then store its record:"
    )


def _show_samples(view: View, rows: Sequence[ComparedCase], base: RunDetail, head: RunDetail) -> None:
    st.subheader("Samples of one case", anchor=False)
    timed = {
        f"{row.case_id} {row.implementation}": row
        for row in rows
        if any(case is not None and case.median_ns for case in (row.base, row.head))
    }
    if not timed:
        st.text("None of these cases has a time on either side.")
        return
    if not view.link.switch("Show the samples", parameter="samples"):
        st.caption("Reads every sample of this case in both runs.")
        return
    row = timed[view.link.choose("Samples of", list(timed), parameter="of")]
    base_id, head_id = (UUID(side.summary.run_id) for side in (base, head))
    records = data.ask(questions.read_case_of_runs, base_id, head_id, row.case_id)
    before, after = (
        next((one for one in record.measurements if one.implementation == row.implementation), None)
        for record in records
    )
    st.plotly_chart(distribution_figure(before, after), key="distribution")


if __name__ == "__main__":
    show()
