"""What got slower, whose it is, whether to believe it, and what to do: one row for each commit."""

from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from roofwatch.ci.history.commit_rows import CommitEntry, rows_by_commit, summarise
from roofwatch.ci.history.recent import possible_changes
from roofwatch.ci.history.summary import FalseAlarms, count_false_alarms
from roofwatch.dashboard import data
from roofwatch.dashboard.components.bisection import show_bisection, show_trail
from roofwatch.dashboard.components.evidence import show_evidence
from roofwatch.dashboard.components.ledger_detail import show_detail
from roofwatch.dashboard.components.ledger_list import (
    marked_html,
    rows_html,
    split_rows,
    summary_html,
    suspicions_html,
)
from roofwatch.dashboard.components.ledger_series import changes_html
from roofwatch.dashboard.components.page import (
    NO_RUNS,
    View,
    open_view,
    show_first_steps,
    show_no_match,
)
from roofwatch.dashboard.components.table import scrolled
from roofwatch.dashboard.headline import headline_of
from roofwatch.dashboard.linked_row import named_row
from roofwatch.dashboard.wording import escaped, shortened
from roofwatch.db.queries import questions
from roofwatch.model.history import ChangePoint
from roofwatch.model.stored_results import RecentRuns, RoofCell
from roofwatch.model.triage import TriagedRegression

_ROWS_AT_FIRST = 25
_SUSPICIONS_SHOWN = 5


def show() -> None:
    with open_view(
        "ledger", "Ledger", "what got slower, whose it is, and what to do about it"
    ) as view:
        if not view.runners and not view.filters.is_narrow:
            show_first_steps(NO_RUNS)
        triaged = data.ask(questions.list_triaged, view.project)
        # filters narrow the list, not what an alert was worth
        false_alarms = count_false_alarms(triaged)
        admitted = [entry for entry in triaged if view.filters.admits_regression(entry.regression)]
        every_row = rows_by_commit(admitted)
        in_range = [row for row in every_row if view.range.admits(row.commit.committed_at)]
        recent = data.ask(
            questions.read_recent_runs,
            view.project,
            runner_classes=view.filters.runner_classes,
        )
        # two values of each series are enough for a median
        cells = _read_cells(view)
        _show_summary(view, in_range, recent, cells)
        linked_row = _asked_row(view, every_row)
        listed = in_range
        # what a link names is shown whatever the range
        if linked_row is not None and linked_row not in in_range:
            listed = [linked_row, *in_range]
        marked_keys = view.link.read_some(
            "Marked commit",
            [row.key for row in every_row],
            parameter="marked",
        )
        marked = [row for row in every_row if row.key in marked_keys]
        groups = split_rows(listed)
        first_row = next(iter(groups["slower"] or groups["faster"]), None)
        chosen = linked_row or first_row
        key = "ledger-first"
        if linked_row is not None:
            key = "ledger-asked"
        with st.container(key=key):
            list_part, detail_part = st.columns([31, 19], gap="medium")
        with list_part:
            st.html(marked_html(view, marked, chosen))
            _show_groups(view, groups, chosen, marked)
            _show_older(view, every_row, in_range)
            _show_suspicions(view, recent, triaged)
            _show_settled(view, groups["settled"], chosen, marked)
            _show_accuracy(false_alarms)
        if chosen is not None:
            with detail_part:
                _show_chosen(view, chosen, marked, cells, false_alarms)
            if linked_row is not None:
                headline = shortened(headline_of(linked_row))
                st.set_page_config(page_title=f"{headline} · roofwatch")


def _read_cells(view: View) -> Sequence[RoofCell]:
    return data.ask(
        questions.list_roof_cells,
        view.project,
        runner_classes=view.filters.runner_classes,
        since=view.range.since,
        until=view.range.until,
        limit=2,
    )


def _show_summary(
    view: View,
    rows: Sequence[CommitEntry],
    recent: Sequence[RecentRuns],
    cells: Sequence[RoofCell],
) -> None:
    admitted = [cell for cell in cells if view.filters.admits_series(cell.key)]
    title = view.range.title.capitalize()
    # a range without an end goes up to the newest commit
    if view.range.until is None and view.runners:
        newest = max(runner.newest_commit_at for runner in view.runners)
        title += f" to {newest.astimezone(view.zone):%-d %b %Y}"
    measured = [runner for runner in recent if _is_measured(view, runner)]
    summary = summarise(rows, measured, admitted)
    st.html(summary_html(summary, title))


def _is_measured(view: View, runner: RecentRuns) -> bool:
    """Whether a runner measured a commit of the range."""
    return any(view.range.admits(commit.committed_at) for commit in runner.commits)


def _asked_row(view: View, rows: Sequence[CommitEntry]) -> CommitEntry | None:
    """Return the row that the address names; if it is gone, say so and keep the address."""
    regression_id = st.query_params.get("regression")
    sha = st.query_params.get("commit")
    if regression_id is None and sha is None:
        return None
    for name in ("regression", "commit", "verdict"):
        value = st.query_params.get(name)
        if value is not None:
            view.link.keep(name, value)
    row = named_row(rows, dict(st.query_params))
    if row is not None:
        return row
    name = regression_id or sha or ""
    st.html(
        f"<p class=rw-note role=status>Nothing is stored about <code>{escaped(shortened(name))}"
        "</code> any more, or the filters hide it: a newer analysis no longer finds a change "
        "there. The address is kept; the ledger is below.</p>"
    )
    return None


def _show_groups(
    view: View,
    groups: Mapping[str, list[CommitEntry]],
    chosen: CommitEntry | None,
    marked: Sequence[CommitEntry],
) -> None:
    titles = {
        "slower": "Slower",
        "faster": "Faster",
        "undecided": "Cannot say",
    }
    is_empty = True
    for name, title in titles.items():
        rows = groups[name]
        if not rows:
            continue
        is_empty = False
        limit = _ROWS_AT_FIRST
        if st.query_params.get("all") == "yes":
            limit = len(rows)
        table = rows_html(
            view,
            rows[:limit],
            chosen=chosen,
            marked=marked,
        )
        st.html(f"<h2>{title} <span class=rw-soft>{len(rows)}</span></h2>{table}")
        if limit < len(rows):
            link = view.anchor(f"Show all {len(rows)}", "ledger", all="yes")
            st.html(f"<p>{link}</p>")
    if is_empty and view.filters.is_narrow:
        show_no_match(view, "changes")
    elif is_empty:
        st.html("<p class=rw-empty>Nothing changed in this range.</p>")


def _show_older(
    view: View,
    every_row: Sequence[CommitEntry],
    in_range: Sequence[CommitEntry],
) -> None:
    slower = split_rows(every_row)["slower"]
    older = [row for row in slower if row not in in_range]
    if older:
        link = view.anchor(str(len(older)), "ledger", range="all")
        st.html(f"<p class=rw-soft>Still open from other times: {link}.</p>")


def _show_suspicions(
    view: View,
    recent: Sequence[RecentRuns],
    triaged: Sequence[TriagedRegression],
) -> None:
    """Show what the newest runs show and nothing has decided."""
    judged = [entry.regression for entry in triaged]
    every_possible = possible_changes(recent, judged)
    possible = [change for change in every_possible if view.filters.admits_kernel(change.kernel)]
    if not possible:
        return
    jobs = data.ask(questions.list_jobs, view.project)
    table = suspicions_html(view, possible[:_SUSPICIONS_SHOWN], jobs)
    st.html(
        f"<h2>Suspicions <span class=rw-soft>{len(possible)}, cannot say yet</span></h2>"
        f"{scrolled(table)}"
    )


def _show_settled(
    view: View,
    rows: Sequence[CommitEntry],
    chosen: CommitEntry | None,
    marked: Sequence[CommitEntry],
) -> None:
    if not rows:
        return

    def show_rows() -> None:
        table = rows_html(
            view,
            rows,
            chosen=chosen,
            marked=marked,
        )
        st.html(table)

    view.link.unfold(f"Settled: {len(rows)}", show_rows, parameter="settled")


def _show_accuracy(counted: FalseAlarms) -> None:
    """Write how far the alerts of this project can be trusted."""
    if counted.interval is None:
        return
    low, high = counted.interval
    st.html(
        f"<p class=rw-soft>Alerts of all time: {counted.reported_count}; of "
        f"{counted.decided_count} decided {counted.true_count} were real, "
        f"{counted.false_count} false ({low:.0%} to {high:.0%} false, 95 % interval).</p>"
    )


def _show_chosen(
    view: View,
    row: CommitEntry,
    marked: Sequence[CommitEntry],
    cells: Sequence[RoofCell],
    false_alarms: FalseAlarms,
) -> None:
    with st.container(key="detail"):
        change = show_detail(view, row, marked, cells, false_alarms)
        view.link.unfold(
            f"Every series: {len(row.change_points)}",
            partial(_show_changes, view, row, change),
            parameter="every",
        )
        view.link.unfold(
            "Base and head: samples, machine code, environment",
            partial(show_evidence, view, change),
            parameter="evidence",
        )
        part = row.part_of(change)
        view.link.unfold(
            "Bisection",
            partial(show_bisection, part),
            parameter="bisection",
        )
        view.link.unfold(
            "Decisions",
            partial(show_trail, view, part.triage.regression_id),
            parameter="trail",
        )


def _show_changes(
    view: View,
    row: CommitEntry,
    change: ChangePoint,
) -> None:
    st.html(changes_html(view, row, change))


if __name__ == "__main__":
    show()
