"""How far a bisection is: which commit is how likely, and what was measured to know it."""

from __future__ import annotations

from uuid import UUID

import pandas as pd
import streamlit as st

from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.wording import code_span, percent, shortened
from roofwatch.db.bisections import Answer, BisectionDetail
from roofwatch.db.values import BisectionState

_MARKS = {
    BisectionState.REQUESTED: "○ waits for a runner",
    BisectionState.RUNNING: "◐ running",
    BisectionState.FOUND: "✓ found",
    BisectionState.NARROWED: "✓ narrowed to several commits",
    BisectionState.UNDECIDED: "? undecided: its time was spent",
    BisectionState.NO_CHANGE: "= the two ends do not differ",
    BisectionState.FAILED: "✕ failed",
}


def show_bisection(detail: BisectionDetail | None, regression_id: UUID) -> None:
    """How the newest one stands, or how to ask for one."""
    if detail is None:
        st.text("None was asked for. On a machine of that runner class:")
        # a code block would load the highlighter of every language, which takes longer than the figure
        st.markdown(code_span(f"roofwatch bisect path/to/bench_file.py --regression {regression_id}"))
        return
    bisection = detail.bisection
    st.text(f"{_MARKS[bisection.state]}, {bisection.measurement_count} blocks measured")
    if bisection.note:
        st.text(bisection.note)
    if bisection.answer is not None:
        _show_answer(bisection.answer)
    if not detail.commits:
        return
    show_table(
        pd.DataFrame(
            {
                "commit": [one.commit.short_sha for one in detail.commits],
                "probability": [one.probability for one in detail.commits],
                "standing": [f"{one.standing}: {one.reason}" if one.reason else one.standing for one in detail.commits],
                "pairs of blocks": [one.pair_count for one in detail.commits],
                "against the good end": [
                    "" if one.relative_change is None else percent(one.relative_change) for one in detail.commits
                ],
                "subject": [one.commit.subject for one in detail.commits],
                "author": [one.commit.author for one in detail.commits],
            }
        ),
        formats={"probability": "{:.1%}".format},
    )


def _show_answer(answer: Answer) -> None:
    first, last = answer.first, answer.last
    named = code_span(first.short_sha)
    if last != first:
        named += f" to {code_span(last.short_sha)}"
    low, high = answer.relative_interval
    st.markdown(
        f"**{named}** with a probability of {answer.confidence:.1%}: {percent(answer.relative_change)} "
        f"(95 % interval {percent(low)} to {percent(high)}), {code_span(shortened(first.subject))}"
    )
