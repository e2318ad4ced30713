"""Two commits, runs, branches, toolchains or devices side by side,
most relevant difference first.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.ci import messages
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.runs import distribution_figure
from roofwatch.dashboard.comparison import (
    SHOWN,
    By,
    ComparedCase,
    compare_runs,
    is_pair,
    run_for,
    runs_by,
    title_of,
    why_not_comparable,
)
from roofwatch.dashboard.components.imported_values import show_imported_pairs
from roofwatch.dashboard.components.page import (
    MAIN_FIGURE,
    View,
    open_view,
    show_first_steps,
    show_no_match,
)
from roofwatch.dashboard.components.table import Column, frame_of, show_table
from roofwatch.dashboard.components.workloads import show_step_changes
from roofwatch.dashboard.wording import choice_text, code_span, percent, written
from roofwatch.db.errors import StoreError
from roofwatch.db.queries import questions
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import format_ns, metric
from roofwatch.model.stored_results import MeasuredCase, RunDetail
from roofwatch.model.verdict import Reason

_METRICS = {
    "utilisation": "Achieved share of the roofline: base → head. Comparable across devices.",
    "host_ns": "Host time to issue a launch: base → head; lower is better.",
    "peak_allocated_bytes": "Peak tensor memory during a launch: base → head; lower is better.",
}
"""Further metrics with their help text; columns without any value are left out."""
_NOT_COMPARED = "not compared"
_TIME_HELP = "Median of the block medians; lower is better."
_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BEST_RUNS = "any"
_MAX_RUNS = 500
"""Runs among which sides other than commits are found."""


def show() -> None:
    with open_view(
        "compare", "Compare", "Compare two commits, runs, branches, toolchains or devices."
    ) as view:
        kinds, runners, first, second, third = st.columns([1, 1.2, 2.1, 2.1, 1.2])
        by = By(view.link.choose("Compare", [*By], parameter="by", place=kinds))
        if by is By.COMMITS:
            base, head = _commits(view, runners, first, second)
        else:
            base, head = _others(view, by, first, second)
        for side, place in ((base, first), (head, second)):
            place.caption(
                f"{code_span(side.summary.runner_class)}, "
                f"{written(side.summary.started_at, view.zone)}"
            )
        if base.summary.run_id == head.summary.run_id or (
            by is By.COMMITS and base.summary.commit == head.summary.commit
        ):
            what = "commit" if by is By.COMMITS else "run"
            st.info(
                f"Base and head are the same {what}: choose two.", icon=":material/compare_arrows:"
            )
            return
        recent = data.ask(
            questions.read_recent_runs, view.project, runner_classes=(head.summary.runner_class,)
        )
        regressions = data.list_regressions(view.project)
        pair = _judge_pair(base, head)
        rows = [
            row
            for row in compare_runs(base, head, regressions, recent, pair=pair)
            if view.filters.admits_case(row.case_id)
        ]
        is_shown = SHOWN[view.link.choose("Show", list(SHOWN), parameter="show", place=third)]
        refusal = why_not_comparable(base, head)
        if refusal is not None:
            st.warning(
                f"The times are not comparable, so no change is shown: {refusal.quoted(code_span)}",
                icon=":material/block:",
            )
        if base.summary.commit.first_parent_count > head.summary.commit.first_parent_count:
            st.info(
                "The head is older than the base. Verdicts are stored from old to new: swap the "
                "two to see them."
            )
        counted = Counter(row.claim_text for row in rows if row.claim_text)
        if counted:
            words = (f"**{count}** {text}" for text, count in counted.most_common())
            st.markdown(", ".join(words))
        if any(row.claim is not None and row.claim.reason is Reason.NOT_PAIRED for row in rows):
            st.caption("Separate runs give no verdict on time. To get one, measure a pair:")
            shas = (side.summary.commit.short_sha for side in (base, head))
            revisions = "--base {} --head {}".format(*shas)
            st.code(f"roofwatch ab path/to/bench_file.py {revisions}", language=None)
        has_imported = show_imported_pairs(view, base, head, is_main=not rows)
        if has_imported and not rows:
            return
        count, rows = len(rows), [row for row in rows if is_shown(row)]
        if not rows:
            text = f"No such case among {count:,}: set *Show* to everything, or widen the filters."
            st.info(text, icon=":material/filter_alt:")
            return
        columns = comparison_columns(rows)
        links = _link_columns(view, rows, head.summary.runner_class)
        # one reason for all rows is shown above
        shown_columns = [
            column for column in columns if refusal is None or column.title != _NOT_COMPARED
        ]
        show_table(
            rows, *shown_columns, *links, key=MAIN_FIGURE, is_muted=lambda row: row.is_within_noise
        )
        st.caption(
            "Times are medians of block medians; lower is better. Grey: within the usual noise. "
            "*Claim* is what these two runs prove; *verdict* comes from stored change points "
            "between the two commits."
        )
        refused = sum(bool(row.refusal) for row in rows)
        if refused and refusal is None:
            st.warning(
                f"The times of {refused:,} of {len(rows):,} cases are not comparable: base and "
                f"head were timed "
                "differently. Their column *not compared* has the reason.",
                icon=":material/block:",
            )
        offer_files(
            frame_of(rows, columns),
            f"{base.summary.commit.short_sha}-{head.summary.commit.short_sha}",
        )
        show_step_changes(view, rows, *(UUID(side.summary.run_id) for side in (base, head)))
        _show_samples(view, rows, base, head)


def _judge_pair(base: RunDetail, head: RunDetail) -> PullRequestJudgement | None:
    """Judge two runs as a pair; None if they are none, or their samples are no longer stored."""
    if not is_pair(base, head):
        return None
    try:
        return data.judge_pair(UUID(base.summary.run_id), UUID(head.summary.run_id))
    except StoreError:
        return None


def _commits(
    view: View, at_runner: DeltaGenerator, *places: DeltaGenerator
) -> tuple[RunDetail, RunDetail]:
    offered = [one for one in view.filters.facets.runner_classes if view.filters.admits_runner(one)]
    runner = view.link.choose("Runner", [_BEST_RUNS, *offered], parameter="runner", place=at_runner)
    runner_classes = view.filters.runner_classes if runner == _BEST_RUNS else (runner,)
    measured = data.ask(questions.list_commits, view.project, runner_classes=runner_classes)
    commits = [commit for commit in measured if view.filters.admits_commit(commit.sha)]
    titles = {
        commit.sha: choice_text(commit, is_unreachable=commit.is_unreachable)
        for commit in sorted(commits, reverse=True)
    }
    newest = [commit.sha for commit in commits[:-3:-1]]
    base, head = _choose_sides(view, By.COMMITS, titles, newest, places)
    return data.ask(
        questions.read_runs_of_commits, view.project, base, head, runner_classes=runner_classes
    )


def _others(view: View, by: By, *places: DeltaGenerator) -> tuple[RunDetail, RunDetail]:
    runs = runs_by(by, view.list_runs(limit=_MAX_RUNS), view.filters.facets)
    titles = {choice: title_of(by, choice, own, view.zone) for choice, own in runs.items()}
    base_choice, head_choice = _choose_sides(view, by, titles, list(runs), places)
    head = run_for(runs[head_choice])
    base = run_for(runs[base_choice], runner_class=head.runner_class)
    return data.ask(questions.read_runs, UUID(base.run_id), UUID(head.run_id))


def _choose_sides(
    view: View,
    by: By,
    titles: Mapping[str, str],
    newest_first: Sequence[str],
    places: Sequence[DeltaGenerator],
) -> tuple[str, str]:
    """Choose base and head, at first the two newest; without two choices,
    say so and end the view.
    """
    if len(titles) < 2 and view.filters.is_narrow:
        show_no_match(view, f"two {by}")
        st.stop()
    if len(titles) < 2:
        show_first_steps(
            f"Comparing takes two {by}, and there are runs of {len(titles)}. Measure another, "
            f"then store its record:"
        )
    suffix = "" if by is By.COMMITS else f"_{by}"
    head, base = newest_first[:2]
    base, head = (
        view.link.choose(
            label,
            list(titles),
            parameter=f"{label.lower()}{suffix}",
            title=titles.__getitem__,
            default=default,
            place=place,
        )
        for label, default, place in zip(("Base", "Head"), (base, head), places, strict=True)
    )
    return base, head


def _show_samples(
    view: View, rows: Sequence[ComparedCase], base: RunDetail, head: RunDetail
) -> None:
    st.header("Samples of one case", anchor=False)
    timed = {
        f"{row.case_id} {row.implementation}": row
        for row in rows
        if any(case is not None and case.median_ns for case in (row.base, row.head))
    }
    if not timed:
        st.text("None of these cases has a time on either side.")
        return
    if not view.link.switch("Show the samples", parameter="samples"):
        st.caption("Loads all samples of this case in both runs.")
        return
    row = timed[view.link.choose("Samples of", list(timed), parameter="of")]
    base_id, head_id = (UUID(side.summary.run_id) for side in (base, head))
    records = data.ask(questions.read_case_of_runs, base_id, head_id, row.case_id)
    before, after = (
        next((one for one in record.measurements if one.implementation == row.implementation), None)
        for record in records
    )
    st.plotly_chart(distribution_figure(before, after), key="distribution")


def comparison_columns(rows: Sequence[ComparedCase]) -> list[Column[ComparedCase]]:
    """Return the columns of a comparison; why rows are not compared and further metrics only if any
    row has them.
    """

    def metric_column(name: str) -> Column[ComparedCase]:
        def write(case: MeasuredCase) -> str | None:
            value = getattr(case, name)
            return None if value is None else metric(name).format(value)

        return Column(metric(name).title, lambda row: _both(row, write), help=_METRICS[name])

    further: list[Column[ComparedCase]] = [
        Column(
            _NOT_COMPARED, lambda row: row.refusal, help="How base and head were timed differently."
        ),
        *map(metric_column, _METRICS),
    ]
    interval = Column("95 % interval", _interval_text, help="Of the change of a pair.")
    return [
        Column(
            "verdict",
            _verdict_text,
            help="Stored change points of this case between the two commits.",
        ),
        Column("case", lambda row: row.case_id),
        Column("implementation", lambda row: row.implementation),
        Column("base time", lambda row: row.base and row.base.median_ns, format_ns, _TIME_HELP),
        Column("head time", lambda row: row.head and row.head.median_ns, format_ns, _TIME_HELP),
        Column(
            "change",
            lambda row: row.relative_change,
            percent,
            "(head − base) / base: of a pair from neighbouring blocks, else the plain difference.",
        ),
        *([interval] if any(map(interval.value, rows)) else []),
        Column("claim", lambda row: row.claim_text, help="What these two runs prove."),
        *(column for column in further if any(map(column.value, rows))),
        Column("outcome", _outcomes_text, help="How the measurement ended: base → head."),
        Column(
            "accuracy",
            lambda row: _both(row, _error_text),
            help=f"Check against the float64 reference, with its {metric('rmse_ratio').title}.",
        ),
        Column(
            "machine code",
            lambda row: row.code_change,
            help="If machine code is equal, kernel code is not the cause of a change.",
        ),
    ]


def offer_files(table: pd.DataFrame, name: str) -> None:
    """Show download buttons; a file is written when its button is clicked."""
    place = st.container(horizontal=True)
    writers = {
        "CSV": ("csv", to_csv),
        "Parquet": ("parquet", to_parquet),
        "Markdown": ("md", to_markdown),
    }
    for kind, (ending, write) in writers.items():
        place.download_button(
            kind,
            partial(write, table.rename(columns={"change": "relative change"})),
            file_name=f"roofwatch-{name}.{ending}",
            icon=":material/download:",
            on_click="ignore",
            key=f"export {ending}",
        )


def to_csv(frame: pd.DataFrame) -> bytes:
    """Escape values that a spreadsheet would evaluate as a formula.

    Source: OWASP, CSV Injection (https://owasp.org/www-community/attacks/CSV_Injection).
    """

    def inert(value: object) -> object:
        return (
            f"'{value}" if isinstance(value, str) and value.startswith(_BEGINS_A_FORMULA) else value
        )

    return frame.map(inert).to_csv(index=False).encode()


def to_parquet(frame: pd.DataFrame) -> bytes:
    return bytes(frame.to_parquet(index=False))


def to_markdown(frame: pd.DataFrame) -> bytes:
    def cell(value: Any) -> str:
        if isinstance(value, str):
            return messages.code(value) if value else ""
        return "" if pd.isna(value) else f"{value:.6g}"

    rows = [[cell(value) for value in row] for row in frame.itertuples(index=False)]
    return "\n".join(
        [*messages.table([str(column) for column in frame.columns], rows), ""]
    ).encode()


def _interval_text(row: ComparedCase) -> str:
    if row.comparison is None:
        return ""
    low, high = row.comparison.relative_interval
    if not math.isfinite(high):
        return ""
    return f"{percent(low)} to {percent(high)}"


def _link_columns(
    view: View, rows: Sequence[ComparedCase], runner_class: str
) -> list[Column[ComparedCase]]:
    def trend(row: ComparedCase) -> str:
        series = {"kernel": row.kernel, "case": row.case_id, "implementation": row.implementation}
        return view.address_of("roof", metric="median_ns", runner=runner_class, **series)

    def regression(row: ComparedCase) -> str | None:
        commit = next((change.commit.sha for change in row.change_points), None)
        return None if commit is None else view.address_of("regression", commit=commit)

    links = [Column("trend", trend, link="trend")]
    return (
        [*links, Column("regression", regression, link="regression")]
        if any(map(regression, rows))
        else links
    )


def _both(row: ComparedCase, write: Callable[[MeasuredCase], str | None]) -> str:
    """Write `base → head`, or one value if both are equal."""
    base, head = (None if case is None else write(case) for case in (row.base, row.head))
    return (
        head or base or "" if base is None or head is None or base == head else f"{base} → {head}"
    )


def _verdict_text(row: ComparedCase) -> str:
    """Write `regressed 1a2b3c4d` for each commit and metric."""
    texts = [
        f"{change.verdict} {change.commit.short_sha}"
        + ("" if change.series.metric == "median_ns" else f" ({change.series.definition.title})")
        for change in row.change_points
    ]
    return ", ".join(dict.fromkeys(texts))


def _outcomes_text(row: ComparedCase) -> str:
    text = _both(row, lambda case: case.outcome.replace("_", " "))
    if row.is_one_sided:
        return f"only on the {'head' if row.base is None else 'base'}: {text}"
    return text


def _error_text(case: MeasuredCase) -> str | None:
    """Write the result of the accuracy check, if there was one."""
    if case.accuracy_outcome is None:
        return None
    word = case.accuracy_outcome.replace("_", " ")
    if case.rmse_ratio is None:
        return word
    error = metric("rmse_ratio").format(case.rmse_ratio)
    return error if case.accuracy_outcome is Outcome.OK else f"{error} {word}"


if __name__ == "__main__":
    show()
