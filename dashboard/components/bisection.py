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
    mark = _MARKS[bisection.state]
    count = bisection.progress.measurement_count
    lines = [f"{mark}, {count} blocks measured"]
    note = escaped(bisection.note)
    if note:
        lines.append(note)
    if bisection.answer is not None:
        lines.append(_answer_html(bisection.answer))
    paragraphs = [f"<p>{line}</p>" for line in lines]
    st.html("".join(paragraphs))
    commits = bisection.progress.commits
    if commits:
        _show(
            commits,
            HtmlColumn("commit", _commit_html),
            HtmlColumn(
                "probability",
                lambda step: f"{step.probability:.1%}",
                "number",
            ),
            HtmlColumn("status", _status_text),
            HtmlColumn(
                "pairs of blocks",
                lambda step: str(step.pair_count),
                "number",
            ),
            HtmlColumn("against the good end", _change_text, "number"),
            HtmlColumn("author", lambda step: escaped(shortened(step.commit.author))),
        )


def _show(rows: Iterable[Row], *columns: HtmlColumn[Row]) -> None:
    st.html(scrolled(html_table(rows, columns)))


def _answer_html(answer: Answer) -> str:
    first_sha = escaped(answer.first.short_sha)
    named = f"<code>{first_sha}</code>"
    # several commits if none between them could be measured
    if answer.last != answer.first:
        last_sha = escaped(answer.last.short_sha)
        named += f" to <code>{last_sha}</code>"
    size = ""
    # a change that compiling or checking shows has no size
    if answer.relative_change is not None and answer.relative_interval is not None:
        low, high = answer.relative_interval
        change = percent(answer.relative_change)
        interval = f"{percent(low)} to {percent(high)}"
        size = f"{change} (95 % interval {interval}), "
    subject = escaped(shortened(answer.first.subject))
    return f"<b>{named}</b> with a probability of {answer.confidence:.1%}: {size}{subject}"


def _commit_html(step: BisectionCommit) -> str:
    sha = escaped(step.commit.short_sha)
    subject = escaped(shortened(step.commit.subject))
    return f"<code>{sha}</code> {subject}"


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
    entries = data.ask(
        questions.list_decisions,
        view.project,
        regression_id,
    )
    if not entries:
        st.html("<p class=rw-soft>No decisions yet.</p>")
        return

    def column(title: str, text: Callable[[AuditEntry], str | None]) -> HtmlColumn[AuditEntry]:
        def cell_html(entry: AuditEntry) -> str:
            value = text(entry) or ""
            return escaped(shortened(value))

        return HtmlColumn(title, cell_html)

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
