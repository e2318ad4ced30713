"""The bisection of a regression, and the trail of decisions about it."""

from html import escape
from uuid import UUID

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.commands import BENCH_FILE, NO_COMMAND, command_html
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import show_html_table
from roofwatch.dashboard.wording import escaped, percent, shortened, written
from roofwatch.db.bisections import Bisection
from roofwatch.db.queries import questions
from roofwatch.model.triage import Answer, BisectionCommit, BisectionState, TriagedRegression

_MARKS = {
    BisectionState.REQUESTED: "○ waits for a runner",
    BisectionState.RUNNING: "◐ running",
    BisectionState.FOUND: "✓ found",
    BisectionState.NARROWED: "✓ narrowed to several commits",
    BisectionState.UNDECIDED: "? undecided: time budget spent",
    BisectionState.NO_CHANGE: "= both ends are equal",
    BisectionState.FAILED: "✕ failed",
}


def show_bisection(part: TriagedRegression) -> None:
    """Show the newest bisection of a regression, or how to ask for one."""
    points = part.regression.change_points
    bisection = data.ask(questions.read_newest_bisection, part.triage.regression_id)
    if bisection is not None:
        _show_steps(bisection)
    elif all(point.series.is_imported for point in points):
        st.html(NO_COMMAND)
    else:
        command = f"roofwatch bisect {BENCH_FILE} --regression {part.triage.regression_id}"
        st.html(f"<p>Not bisected. On this runner class:</p>{command_html(command)}")


def _show_steps(bisection: Bisection) -> None:
    count = bisection.progress.measurement_count
    lines = [f"{_MARKS[bisection.state]}, {count} blocks measured", escaped(bisection.note)]
    if bisection.answer is not None:
        lines.append(_answer_html(bisection.answer))
    st.html("".join(f"<p>{line}</p>" for line in lines if line))
    commits = bisection.progress.commits
    if commits:
        show_html_table(
            map(_commit_cells, commits),
            "commit",
            "probability",
            "status",
            "pairs of blocks",
            "against the good end",
            "author",
        )


def _answer_html(answer: Answer) -> str:
    named = f"<code>{escaped(answer.first.short_sha)}</code>"
    if answer.last != answer.first:
        named += f" to <code>{escaped(answer.last.short_sha)}</code>"
    size = ""
    # a change that compiling or checking shows has no size
    if answer.relative_change is not None and answer.relative_interval is not None:
        low, high = answer.relative_interval
        size = (
            f"{percent(answer.relative_change)} (95 % interval {percent(low)} to {percent(high)}), "
        )
    return (
        f"<b>{named}</b> with a probability of {answer.confidence:.1%}: {size}"
        f"{escaped(shortened(answer.first.subject))}"
    )


def _commit_cells(step: BisectionCommit) -> list[str]:
    status = str(step.status)
    if step.reason:
        status += f": {step.reason}"
    change = ""
    if step.relative_change is not None:
        change = percent(step.relative_change)
    commit = step.commit
    return [
        f"<td><code>{escaped(commit.short_sha)}</code> {escaped(shortened(commit.subject))}</td>",
        f"<td class=number>{step.probability:.1%}</td>",
        f"<td>{escaped(status)}</td>",
        f"<td class=number>{step.pair_count}</td>",
        f"<td class=number>{escape(change)}</td>",
        f"<td>{escaped(shortened(commit.author))}</td>",
    ]


def show_trail(view: View, regression_id: UUID) -> None:
    """Show who decided what, and why."""
    entries = data.ask(questions.list_decisions, view.project, regression_id)
    if not entries:
        st.html("<p class=rw-soft>No decisions yet.</p>")
        return
    rows: list[list[str]] = []
    for entry in entries:
        kind = entry.action.partition(".")[2]
        texts = (
            written(entry.at, view.zone),
            entry.person or "",
            kind,
            entry.before or "",
            entry.after or "",
            entry.reason or "",
            entry.actor,
        )
        rows.append([f"<td>{escaped(shortened(text))}</td>" for text in texts])
    show_html_table(rows, "when", "who", "what", "from", "to", "reason", "authenticated as")
