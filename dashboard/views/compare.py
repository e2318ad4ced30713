"""Two commits side by side, the most relevant difference first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from collector.metrics import metric
from dashboard import data
from dashboard.comparison import ComparedCase, compare_runs, why_not_comparable
from dashboard.frame import View, open_view, say_how_to_begin
from dashboard.table import NO_VALUE, show_table
from dashboard.wording import VERDICT_MARKS, code_span, commit_text, outcome_text, percent
from db.values import CommitRef, MeasuredCase

_EVERY_KERNEL = "all"


def show() -> None:
    with open_view("compare", "Compare", "What differs between two commits, as measured and as compiled.") as view:
        commits = {commit.sha: commit for commit in data.list_commits(view.project)}
        if len(commits) < 2:
            say_how_to_begin("Comparing takes runs of two commits. Measure another commit, then store its record:")
        oldest_first = sorted(commits, key=lambda sha: commits[sha])
        first, second, third = st.columns([2, 2, 1])
        base_sha = _choose_side(view, commits, "Base", default=oldest_first[-2], place=first)
        head_sha = _choose_side(view, commits, "Head", default=oldest_first[-1], place=second)
        head = data.read_run(view.project, head_sha)
        base = data.read_run(view.project, base_sha, runner_class=head.summary.runner_class)
        for side, place in ((base, first), (head, second)):
            place.caption(f"{code_span(side.summary.runner_class)}, {side.summary.started_at:%Y-%m-%d %H:%M %Z}")
        if base.summary.commit == head.summary.commit:
            st.info("Base and head are the same commit: choose two.", icon=":material/compare_arrows:")
            return
        rows = compare_runs(base, head, data.list_regressions(view.project))
        kernel = view.link.choose(
            "Kernel",
            [_EVERY_KERNEL, *sorted({row.kernel for row in rows})],
            parameter="kernel",
            place=third,
        )
        refusal = why_not_comparable(base.summary, head.summary)
        if refusal:
            st.warning(
                f"The times are not comparable, so no change is shown: {code_span(refusal)}", icon=":material/block:"
            )
        if base.summary.commit.first_parent_count > head.summary.commit.first_parent_count:
            st.info("The head is older than the base. Judgements are stored forwards: swap the two to see them.")
        _show_table([row for row in rows if kernel in (_EVERY_KERNEL, row.kernel)], is_comparable=refusal is None)


def _choose_side(
    view: View, commits: Mapping[str, CommitRef], label: str, *, default: str, place: DeltaGenerator
) -> str:
    return view.link.choose(
        label,
        sorted(commits, key=lambda sha: commits[sha], reverse=True),
        parameter=label.lower(),
        title=lambda sha: commit_text(commits[sha]),
        default=default,
        place=place,
    )


def _show_table(rows: Sequence[ComparedCase], *, is_comparable: bool) -> None:
    frame = pd.DataFrame(
        {
            "stored verdict": [_verdict_text(row) for row in rows],
            "case": [row.case_id for row in rows],
            "implementation": [row.implementation for row in rows],
            "base time": [_median(row.base) for row in rows],
            "head time": [_median(row.head) for row in rows],
            "change": [row.relative_change if is_comparable else None for row in rows],
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
            "stored verdict": st.column_config.Column(
                width=160, help="Change points of this case that were judged and stored between the two commits."
            ),
            "implementation": st.column_config.Column(width=110),
            "base time": st.column_config.Column(width=80, help="Median of the samples; lower is better."),
            "head time": st.column_config.Column(width=80, help="Median of the samples; lower is better."),
            "change": st.column_config.Column(
                width=70,
                help="(head − base) / base of the two medians. A difference alone is no verdict: it may be noise.",
            ),
            "outcome": st.column_config.Column(width=115, help="How the measurement ended: base → head."),
            "accuracy": st.column_config.Column(
                width=150, help=f"Check against the float64 reference, with its {metric('rmse_ratio').title}."
            ),
            "machine code": st.column_config.Column(
                width=130, help="Equal machine code means that a move is not kernel code."
            ),
        },
    )
    st.caption(
        "Times are medians; lower is better. *change* is their plain difference and may be noise. *stored verdict* "
        "comes from the judged change points between the two commits, never from this table."
    )


def _median(case: MeasuredCase | None) -> float | None:
    return None if case is None else case.median_ns


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
    error = "" if case.rmse_ratio is None else f" {metric('rmse_ratio').format(case.rmse_ratio)}"
    return f"{outcome_text(case.accuracy_outcome)}{error}"


if __name__ == "__main__":
    show()
