"""The bisection of a regression, and the trail of decisions about it."""

from collections.abc import Callable, Iterable
from uuid import UUID

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.commands import BENCH_FILE, NO_COMMAND, command_html
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import HtmlColumn, Row, html_table, scrolled
from roofwatch.dashboard.wording import escaped, percent, shortened, written
from roofwatch.db.access import AuditEntry
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
    # steps that were taken are shown, also of a bisection that failed
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
        _show(
            commits,
            HtmlColumn("commit", _commit_html),
            HtmlColumn("probability", lambda step: f"{step.probability:.1%}", "number"),
            HtmlColumn("status", _status_text),
            HtmlColumn("pairs of blocks", lambda step: str(step.pair_count), "number"),
            HtmlColumn("against the good end", _change_text, "number"),
            HtmlColumn("author", lambda step: escaped(shortened(step.commit.author))),
        )


def _show(rows: Iterable[Row], *columns: HtmlColumn[Row]) -> None:
    st.html(scrolled(html_table(rows, columns)))


def _answer_html(answer: Answer) -> str:
    named = f"<code>{escaped(answer.first.short_sha)}</code>"
    # several commits if none between them could be measured
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


def _commit_html(step: BisectionCommit) -> str:
    subject = escaped(shortened(step.commit.subject))
    return f"<code>{escaped(step.commit.short_sha)}</code> {subject}"


def _status_text(step: BisectionCommit) -> str:
    status = str(step.status)
    if step.reason:
        status += f": {step.reason}"
    return escaped(status)


def _change_text(step: BisectionCommit) -> str:
    if step.relative_change is None:
        return ""
    return percent(step.relative_change)


def show_trail(view: View, regression_id: UUID) -> None:
    """Show who decided what, and why."""
    entries = data.ask(questions.list_decisions, view.project, regression_id)
    if not entries:
        st.html("<p class=rw-soft>No decisions yet.</p>")
        return

    def column(title: str, text: Callable[[AuditEntry], str | None]) -> HtmlColumn[AuditEntry]:
        return HtmlColumn(title, lambda entry: escaped(shortened(text(entry) or "")))

    _show(
        entries,
        column("when", lambda entry: written(entry.recorded_at, view.zone)),
        column("who", lambda entry: entry.person),
        column("what", lambda entry: entry.action.partition(".")[2]),
        column("from", lambda entry: entry.before),
        column("to", lambda entry: entry.after),
        column("reason", lambda entry: entry.reason),
        column("authenticated as", lambda entry: entry.actor),
    )
