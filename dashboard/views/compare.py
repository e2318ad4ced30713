"""Two commits, runs, branches, toolchains or devices side by side, the most relevant difference first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.record import RunRecord
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.distribution import distribution_figure
from roofwatch.dashboard.comparison import ComparedCase, Order, Shown, compare_runs, in_order, why_not_comparable
from roofwatch.dashboard.export import to_csv, to_markdown, to_parquet
from roofwatch.dashboard.figure import show_figure
from roofwatch.dashboard.filters import Filters
from roofwatch.dashboard.frame import MAIN_FIGURE, View, open_view, say_how_to_begin
from roofwatch.dashboard.sides import By, run_for, runs_by, title_of
from roofwatch.dashboard.tables.markup import NO_VALUE, Column
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.wording import VERDICT_MARKS, choice_text, code_span, outcome_text, percent
from roofwatch.dashboard.zone import written
from roofwatch.db.queries.fleet_values import FleetRun
from roofwatch.db.queries.run_values import MeasuredCase, RunDetail
from roofwatch.db.values import MeasuredCommit

_EVERY_KERNEL = "all"
_ROWS_AT_FIRST = 100
_MOST_RUNS = 500
_BESIDE = {
    "host_ns": "What the host takes to issue a launch: base → head; lower is better.",
    "peak_allocated_bytes": "The most that tensors held during a launch: base → head; lower is better.",
}
"""Metrics that stand beside the time where they were measured, each with what is said of it."""
"""That sides other than commits are looked for among."""


def show() -> None:
    with open_view("compare", "Compare", "What differs between two sides, as measured and as compiled.") as view:
        kinds, first, second, third, fourth, fifth = st.columns([1, 1.8, 1.8, 1, 1, 0.9])
        by = By(view.link.choose("Compare", [*By], parameter="by", place=kinds))
        base, head = _commits(view, first, second) if by is By.COMMITS else _others(view, by, first, second)
        for side, place in ((base, first), (head, second)):
            place.caption(f"{code_span(side.summary.runner_class)}, {written(side.summary.started_at, view.zone)}")
        if base.summary.run_id == head.summary.run_id or (
            by is By.COMMITS and base.summary.commit == head.summary.commit
        ):
            st.info(
                f"Base and head are the same {'commit' if by is By.COMMITS else 'run'}: choose two.",
                icon=":material/compare_arrows:",
            )
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
        order = Order(view.link.choose("Order by", [*Order], parameter="order", place=fifth))
        refusal = why_not_comparable(base.summary, head.summary)
        if refusal:
            st.warning(
                f"The times are not comparable, so no change is shown: {code_span(refusal)}", icon=":material/block:"
            )
        if base.summary.commit.first_parent_count > head.summary.commit.first_parent_count:
            st.info("The head is older than the base. Judgements are stored forwards: swap the two to see them.")
        rows = [row for row in rows if kernel in (_EVERY_KERNEL, row.kernel) and shown.admits(row)]
        rows = in_order(rows, order)
        if not rows:
            st.info("No case is left: show everything, or widen the filters.", icon=":material/filter_alt:")
            return
        shown_rows = _first_rows(view, rows)
        with st.container(key=MAIN_FIGURE):
            _show_table(shown_rows, is_comparable=refusal is None)
        _say_what_is_not_compared(rows, is_comparable=refusal is None)
        _offer_files(rows, f"{base.summary.commit.short_sha}-{head.summary.commit.short_sha}")
        _show_distribution(view, rows, base, head)


def _first_rows(view: View, rows: Sequence[ComparedCase]) -> Sequence[ComparedCase]:
    """As many as somebody reads; all of them if the reader wants to."""
    if len(rows) <= _ROWS_AT_FIRST:
        return rows
    title = f"Show all {len(rows):,} rows, not only the first {_ROWS_AT_FIRST}"
    return rows if view.link.switch(title, parameter="all") else rows[:_ROWS_AT_FIRST]


def _commits(view: View, first: DeltaGenerator, second: DeltaGenerator) -> tuple[RunDetail, RunDetail]:
    commits = _commits_by_sha(view.project, view.filters)
    if len(commits) < 2:
        _say_too_few(view, By.COMMITS, len(commits))
    oldest_first = list(commits)
    base_sha = _choose_commit(view, commits, "Base", default=oldest_first[-2], place=first)
    head_sha = _choose_commit(view, commits, "Head", default=oldest_first[-1], place=second)
    return _read_both(view.project, view.filters, base_sha, head_sha)


def _commits_by_sha(project: str, filters: Filters) -> dict[str, MeasuredCommit]:
    """The oldest first."""
    commits = data.list_commits(project, runner_classes=filters.runner_classes)
    return {commit.sha: commit for commit in commits if filters.admits_commit(commit.sha)}


def _read_both(project: str, filters: Filters, base_sha: str, head_sha: str) -> tuple[RunDetail, RunDetail]:
    return data.read_runs_of_commits(project, base_sha, head_sha, runner_classes=filters.runner_classes)


def _say_too_few(view: View, by: By, count: int) -> None:
    """And end the view."""
    if view.filters.is_narrow:
        st.info(
            f"Comparing takes two {by}, and within the filters there are runs of {count}: widen them.",
            icon=":material/filter_alt_off:",
        )
        st.stop()
    say_how_to_begin(
        f"Comparing takes two {by}, and there are runs of {count}. Measure another, then store its record:"
    )


def _choose_commit(
    view: View, commits: Mapping[str, MeasuredCommit], label: str, *, default: str, place: DeltaGenerator
) -> str:
    return view.link.choose(
        label,
        sorted(commits, key=lambda sha: commits[sha], reverse=True),
        parameter=label.lower(),
        title=lambda sha: choice_text(commits[sha], is_unreachable=commits[sha].is_unreachable),
        default=default,
        place=place,
    )


def _others(view: View, by: By, first: DeltaGenerator, second: DeltaGenerator) -> tuple[RunDetail, RunDetail]:
    runs = data.list_fleet_runs(
        view.project,
        limit=_MOST_RUNS,
        runner_classes=view.filters.runner_classes,
        branches=view.filters.branches,
    )
    choices = runs_by(by, runs, view.filters.facets)
    if len(choices) < 2:
        _say_too_few(view, by, len(choices))
    head = run_for(choices[_choose_other(view, by, choices, "Head", default=0, place=second)])
    base_runs = choices[_choose_other(view, by, choices, "Base", default=1, place=first)]
    base = run_for(base_runs, runner_class=head.runner_class)
    return data.read_runs(base.run_id, head.run_id)


def _choose_other(
    view: View, by: By, choices: Mapping[str, list[FleetRun]], label: str, *, default: int, place: DeltaGenerator
) -> str:
    zone = view.zone
    return view.link.choose(
        label,
        list(choices),
        parameter=f"{label.lower()}_{by}",
        title=lambda choice: title_of(by, choice, choices[choice], zone),
        default=list(choices)[default],
        place=place,
    )


def _offer_files(rows: Sequence[ComparedCase], name: str) -> None:
    place = st.container(horizontal=True)
    for kind, ending, write in (
        ("CSV", "csv", to_csv),
        ("Parquet", "parquet", to_parquet),
        ("Markdown", "md", to_markdown),
    ):
        # written when it is asked for
        place.download_button(
            kind,
            partial(_written, rows, write),
            file_name=f"roofwatch-{name}.{ending}",
            icon=":material/download:",
            on_click="ignore",
            key=f"export {ending}",
        )


def _written(rows: Sequence[ComparedCase], write: Callable[[pd.DataFrame], bytes]) -> bytes:
    frame = pd.DataFrame(
        {
            "case": [row.case_id for row in rows],
            "implementation": [row.implementation for row in rows],
            "base median (ns)": [_median(row.base) for row in rows],
            "head median (ns)": [_median(row.head) for row in rows],
            "relative change": [row.relative_change for row in rows],
            "not compared": [row.refusal for row in rows],
            "base utilisation": [None if row.base is None else row.base.utilisation for row in rows],
            "head utilisation": [None if row.head is None else row.head.utilisation for row in rows],
            **{
                f"{side} {metric(name).title} ({metric(name).unit})": values
                for name in _BESIDE
                for side, values in _sides(rows, name).items()
                if any(value is not None for value in values)
            },
            "stored verdict": [_verdict_text(row) for row in rows],
            "outcome": [_outcomes_text(row) for row in rows],
            "accuracy": [_accuracy_text(row) for row in rows],
            "machine code": [row.code_change for row in rows],
        }
    )
    return write(frame)


def _show_distribution(view: View, rows: Sequence[ComparedCase], base: RunDetail, head: RunDetail) -> None:
    st.subheader("Samples of one case", anchor=False)
    timed = {f"{row.case_id} {row.implementation}": row for row in rows if _median(row.base) or _median(row.head)}
    if not timed:
        st.text("None of these cases was timed on either side.")
        return
    if not view.link.switch("Show the samples", parameter="samples"):
        st.caption("Every sample of this case in both runs is read for it.")
        return
    row = timed[view.link.choose("Samples of", list(timed), parameter="of")]
    records = data.read_case_of_runs(base.summary.run_id, head.summary.run_id, row.case_id)
    measured = [_measurement(record, row.implementation) for record in records]
    show_figure(distribution_figure(*measured), key="distribution")


def _measurement(record: RunRecord, implementation: str) -> Measurement | None:
    return next((one for one in record.measurements if one.implementation == implementation), None)


def _say_what_is_not_compared(rows: Sequence[ComparedCase], *, is_comparable: bool) -> None:
    count = sum(bool(row.refusal) for row in rows)
    if is_comparable and count:
        st.warning(
            f"The times of {count:,} of {len(rows):,} cases are not comparable, so no change of them is shown: they "
            "were timed in another way on each side. *Show* lists them alone, and *not compared* says what differs.",
            icon=":material/block:",
        )


def _show_table(rows: Sequence[ComparedCase], *, is_comparable: bool) -> None:
    refusals = [row.refusal for row in rows]
    beside = {name: [_text_of(name, row) for row in rows] for name in _BESIDE}
    frame = pd.DataFrame(
        {
            "stored verdict": [_verdict_text(row) for row in rows],
            "case": [row.case_id for row in rows],
            "implementation": [row.implementation for row in rows],
            "base time": [_median(row.base) for row in rows],
            "head time": [_median(row.head) for row in rows],
            "change": [row.relative_change for row in rows],
            # said once where it holds for all
            **({"not compared": refusals} if is_comparable and any(refusals) else {}),
            "utilisation": [_text_of("utilisation", row) for row in rows],
            **{metric(name).title: texts for name, texts in beside.items() if any(texts)},
            "outcome": [_outcomes_text(row) for row in rows],
            "accuracy": [_accuracy_text(row) for row in rows],
            "machine code": [row.code_change for row in rows],
        }
    )
    write_ns = metric("median_ns").format
    show_table(
        frame,
        formats={"base time": write_ns, "head time": write_ns, "change": percent},
        columns={
            "stored verdict": Column(
                help="Change points of this case that were judged and stored between the two commits."
            ),
            "base time": Column(help="Median of the samples; lower is better."),
            "head time": Column(help="Median of the samples; lower is better."),
            "change": Column(
                help="(head − base) / base of the two medians. A difference alone is no verdict: it may be noise.",
            ),
            "not compared": Column(
                help="What differs between the ways in which the two sides were timed: base and head."
            ),
            "utilisation": Column(
                help="Share of the roof that was reached: base → head. It compares across devices too."
            ),
            **{metric(name).title: Column(help=words) for name, words in _BESIDE.items()},
            "outcome": Column(help="How the measurement ended: base → head."),
            "accuracy": Column(help=f"Check against the float64 reference, with its {metric('rmse_ratio').title}."),
            "machine code": Column(help="Equal machine code means that a move is not kernel code."),
        },
    )
    st.caption(
        "Times are medians; lower is better. *change* is their plain difference and may be noise. *stored verdict* "
        "comes from the judged change points between the two commits, never from this table."
    )


def _median(case: MeasuredCase | None) -> float | None:
    return None if case is None else case.median_ns


def _sides(rows: Sequence[ComparedCase], name: str) -> dict[str, list[float | None]]:
    return {
        side: [None if (case := getattr(row, side)) is None else getattr(case, name) for row in rows]
        for side in ("base", "head")
    }


def _text_of(name: str, row: ComparedCase) -> str:
    """One metric: base → head, once where both are written alike."""
    values = (None if case is None else getattr(case, name) for case in (row.base, row.head))
    base, head = (None if value is None else metric(name).format(value) for value in values)
    if base is None or head is None or base == head:
        return head or base or ""
    return f"{base} → {head}"


def _verdict_text(row: ComparedCase) -> str:
    """`◆ regressed 1a2b3c4d`, once for each commit and metric; a metric other than the time is named."""
    texts = [
        f"{VERDICT_MARKS[change.verdict].text} {change.commit.short_sha}"
        + ("" if change.series.metric == "median_ns" else f" ({change.series.definition.title})")
        for change in row.change_points
    ]
    return ", ".join(dict.fromkeys(texts)) or NO_VALUE


def _outcomes_text(row: ComparedCase) -> str:
    if row.base is None:
        return "only on the head" if row.head is None else f"only on the head: {outcome_text(row.head.outcome)}"
    if row.head is None:
        return f"only on the base: {outcome_text(row.base.outcome)}"
    if row.base.outcome is row.head.outcome:
        return outcome_text(row.head.outcome)
    return f"{outcome_text(row.base.outcome)} → {outcome_text(row.head.outcome)}"


def _accuracy_text(row: ComparedCase) -> str:
    base, head = (None if case is None else _error_text(case) for case in (row.base, row.head))
    if base is None or head is None or base == head:
        return head or base or ""
    return f"{base} → {head}"


def _error_text(case: MeasuredCase) -> str | None:
    """How the check against the reference ended; None where it was not made."""
    if case.accuracy_outcome is None:
        return None
    if case.rmse_ratio is None:
        return outcome_text(case.accuracy_outcome)
    mark, _, word = outcome_text(case.accuracy_outcome).partition(" ")
    error = metric("rmse_ratio").format(case.rmse_ratio)
    return f"{mark} {error}" if case.accuracy_outcome is Outcome.OK else f"{mark} {error} {word}"


if __name__ == "__main__":
    show()
