"""The rows of the ledger: one for each commit, and one for each suspicion."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape

from roofwatch.ci.history.commit_rows import CommitEntry, RangeSummary, cost_of
from roofwatch.ci.history.recent import KernelSuspicion
from roofwatch.ci.messages import count_of
from roofwatch.dashboard import data
from roofwatch.dashboard.commands import pair_command
from roofwatch.dashboard.components.confirmation import request_mark
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import HtmlColumn, html_table
from roofwatch.dashboard.headline import kernel_text
from roofwatch.dashboard.linked_row import row_choices
from roofwatch.dashboard.wording import (
    current_attribute,
    device_text,
    escaped,
    headline_text,
    percent,
    short_date,
    shortened,
)
from roofwatch.db.queries import questions
from roofwatch.model.agenda import JobKind, StoredJob
from roofwatch.model.history import ChangePoint
from roofwatch.model.verdict import Verdict

_MAX_RUNNERS = 8
_NAMED_RUNNERS = 4
"""Runners up to which the columns of dots have names."""
_HEAD_LETTERS = 6
_BAR_PX = 44
_MARK_HEAD = "<abbr title='Marked rows are decided together; x marks the open one'>x</abbr>"
_FULL_BAR = math.log(1.5)
"""Log cost that fills the bar."""


def summary_html(summary: RangeSummary, title: str) -> str:
    """Write the range as one line: how many commits, geometric means, and the roof."""
    slower = f"{count_of(summary.slower_count, 'commit')} slower"
    if summary.settled_count:
        slower += f" ({summary.settled_count} settled)"
    parts = [f"{slower}, {summary.faster_count} faster"]
    means: list[str] = []
    for runner, change in summary.geomeans.items():
        device = escaped(device_text(runner))
        means.append(f"{device} {_coloured(change)}")
    if means:
        means_text = ", ".join(means)
        parts.append(f"geomean of time {means_text}")
    if summary.roof_shares is not None:
        first, last = summary.roof_shares
        text = f"{last:.0%}"
        # a share that did not move is written once
        if f"{first:.0%}" != text:
            text = f"{first:.0%} to {text}"
        parts.append(f"median case at {text} of its roof")
    return f"<p class=rw-summary><b>{escape(title)}:</b> {' · '.join(parts)}</p>"


def _kind_of(change: float) -> str:
    """Return the class in CSS of a change of time, or of its cost."""
    if change > 0:
        return "slower"
    return "faster"


def _coloured(change: float) -> str:
    text = percent(change)
    # what rounds to nothing is neither good nor bad
    if text == percent(0.0):
        return text
    return f"<span class=rw-{_kind_of(change)}>{text}</span>"


def rows_html(
    view: View,
    rows: Sequence[CommitEntry],
    *,
    chosen: CommitEntry | None,
    marked: Sequence[CommitEntry],
) -> str:
    """Write rows as a table."""
    runners = _runners_of(view, rows)
    jobs = data.ask(questions.list_jobs, view.project)
    marked_keys = {row.key for row in marked}
    # the dots of a single runner need no name
    is_narrow = _is_narrow(runners) or len(runners) == 1
    heads = ""
    for runner in runners:
        heads += _head_html(runner, is_narrow=is_narrow)
    dots_class = _dots_class(runners)
    dots_head = f"<span class='{dots_class}'>{heads}</span> kernel"
    columns = [
        HtmlColumn(
            _MARK_HEAD,
            lambda row: _mark_html(row, is_marked=row.key in marked_keys),
            "mark",
        ),
        HtmlColumn(
            "when",
            lambda row: short_date(row.commit.committed_at, view.zone),
            "when",
        ),
        HtmlColumn("commit", partial(_commit_link, view), "what"),
        HtmlColumn("author", _author_html, "who"),
        HtmlColumn(
            "worst",
            lambda row: bar_html(row.worst),
            "size",
        ),
        HtmlColumn(
            dots_head,
            lambda row: _dots_html(row, runners),
            "kernels",
        ),
        HtmlColumn(
            "real",
            lambda row: _real_html(row, jobs),
            "real",
        ),
        HtmlColumn(
            "state",
            lambda row: escaped(row.state),
            "state",
        ),
    ]
    has_authors = any(_author_html(row) for row in rows)
    # the file of another tool may name no author
    if not has_authors:
        columns = [column for column in columns if column.kind != "who"]

    def attributes(row: CommitEntry) -> str:
        key = escape(row.key)
        current = current_attribute(is_current=row == chosen)
        return f' data-row="{key}"{current}'

    return html_table(
        rows,
        columns,
        kind="rw-ledger",
        attributes=attributes,
    )


def _mark_html(row: CommitEntry, *, is_marked: bool) -> str:
    """Write the box that marks a row for a decision about several."""
    checked = " checked" if is_marked else ""
    sha = escaped(row.commit.short_sha)
    return (
        "<label class=rw-check><input type=checkbox "
        f'aria-label="Mark {sha} {row.verdict}"{checked}></label>'
    )


def marked_html(
    view: View,
    marked: Sequence[CommitEntry],
    chosen: CommitEntry | None,
) -> str:
    """Write how many rows are marked, with a link that unmarks them; the chosen row stays."""
    # announced by screen readers when it changes, so that it exists before the first mark too
    if not marked:
        return "<p class=rw-marked role=status></p>"
    row = chosen or marked[0]
    unmark = view.anchor(
        "Unmark all",
        "ledger",
        marked="",
        **row_choices(row),
    )
    return (
        f"<p class='rw-marked rw-note' role=status><b>{len(marked)} marked</b>: "
        f"a decision is about all of them. {unmark}</p>"
    )


def _is_narrow(runners: Sequence[str]) -> bool:
    return len(runners) > _NAMED_RUNNERS


def _dots_class(runners: Sequence[str]) -> str:
    if _is_narrow(runners):
        return "rw-dots narrow"
    return "rw-dots"


def _head_html(runner: str, *, is_narrow: bool) -> str:
    """Write the device in as many letters as fit over a dot, if any do."""
    letters = ""
    if not is_narrow:
        first_word, _, _ = device_text(runner).partition(" ")
        letters = escaped(first_word[:_HEAD_LETTERS])
    title = escaped(runner)
    return f'<abbr title="{title}">{letters}</abbr>'


def _author_html(row: CommitEntry) -> str:
    """Write whose commit it is; nobody's while it is one of a range."""
    if row.parts[0].regression.is_range:
        return ""
    return escaped(shortened(row.commit.author, length=24))


def _commit_link(view: View, row: CommitEntry) -> str:
    """Write a commit with its subject, or a range of commits as Git does."""
    regression = row.parts[0].regression
    sha = escaped(row.commit.short_sha)
    subject = escaped(shortened(row.commit.subject, length=120)) or "no subject"
    name = f"<code>{sha}</code> {subject}"
    if regression.is_range:
        title = escaped(regression.range_text)
        base_sha = escaped(regression.base.short_sha)
        name = f'<code title="{title}">{base_sha}..{sha}</code>'
    return view.anchor(name, "ledger", **row_choices(row))


def bar_html(point: ChangePoint) -> str:
    """Draw a change as a bar with its size; orange is worse, blue is better."""
    cost = cost_of(point)
    filled_share = min(abs(cost) / _FULL_BAR, 1.0)
    # a small change keeps a visible bar
    width_px = max(2, round(_BAR_PX * filled_share))
    kind = _kind_of(cost)
    headline = escaped(headline_text(point))
    return (
        f"<span class=rw-bar><i class={kind} style='width:{width_px}px'></i></span>"
        f"<span class=rw-{kind}>{headline}</span>"
    )


def _dots_html(row: CommitEntry, runners: Sequence[str]) -> str:
    """Draw where the first kernel changed, and write how many more did."""
    kernel = row.kernels[0]
    dots = ""
    for runner in runners:
        change = row.change_on(kernel, runner)
        dots += _dot_html(change, runner)
    name = escaped(shortened(kernel_text(kernel), length=32))
    further_count = len(row.kernels) - 1
    further = ""
    if further_count:
        further = f"<span class=rw-soft>+{further_count}</span>"
    dots_class = _dots_class(runners)
    kernel = f"<span class=rw-kernel>{name}</span>"
    return f"<div class=rw-fit><span class='{dots_class}'>{dots}</span> {kernel}{further}</div>"


def _dot_html(point: ChangePoint | None, runner: str) -> str:
    if point is None:
        return f'<b class=none title="{escaped(runner)}: no decided change">·</b>'
    kind = _kind_of(cost_of(point))
    # the marks also differ without colour
    symbol = "●"
    if kind == "slower":
        symbol = "◆"
    headline = escaped(headline_text(point))
    title = f"{escaped(runner)}: {headline}"
    return f'<b class={kind} title="{title}">{symbol}</b>'


def _real_html(row: CommitEntry, jobs: Sequence[StoredJob]) -> str:
    mark = request_mark(jobs, row)
    if mark:
        return f'<span title="A person asked for its pair; a runner measures it.">{mark}</span>'
    if row.is_confirmed:
        return '<span title="A pair, machine code or results show it.">✓ yes</span>'
    return (
        f'<span class=rw-soft title="Share of earlier alerts of this project that were real.">'
        f"{row.probability:.0%}</span>"
    )


# --- suspicions


def suspicions_html(
    view: View,
    suspicions: Sequence[KernelSuspicion],
    jobs: Sequence[StoredJob],
) -> str:
    """Write what the newest runs show and nothing has decided, with the job that will decide it."""
    columns: list[HtmlColumn[KernelSuspicion]] = [
        HtmlColumn("kernel", _suspected_html, "kernel"),
        HtmlColumn(
            "runner",
            lambda change: escaped(device_text(change.runner_class)),
            "runner",
        ),
        HtmlColumn("seen", _seen_html, "seen number"),
        HtmlColumn(
            "what decides it",
            lambda change: _decides_html(change, jobs),
            "decides",
        ),
        HtmlColumn("newest commit", partial(_newest_link, view), "what rw-cut"),
    ]
    return html_table(suspicions, columns, kind="rw-suspicions")


def _suspected_html(change: KernelSuspicion) -> str:
    kernel = escaped(change.kernel)
    series = f"{change.series_count} series"
    return f'<span title="{kernel}">{kernel} <span class=rw-soft>{series}</span></span>'


def _seen_html(change: KernelSuspicion) -> str:
    claim = escaped(change.claim)
    size = percent(change.relative_change)
    return f'<span title="{claim}">{size} ?</span>'


def _decides_html(change: KernelSuspicion, jobs: Sequence[StoredJob]) -> str:
    """Write the job that will decide it, else the command, if any can."""
    job = _deciding_job(change, jobs)
    if job is not None:
        state = "planned"
        if job.leased_until is not None:
            state = "running now"
        # no job takes zero minutes
        minutes = max(1, round(job.expected_s / 60))
        return f"job <b>{job.kind}</b>, {state}, about {minutes} min"
    if change.is_imported:
        return "more values: another tool measures it"
    command = escape(pair_command(change.base, change.head))
    return f'<code title="{command}">{command}</code>'


def _newest_link(view: View, change: KernelSuspicion) -> str:
    head = change.head
    sha = escaped(head.short_sha)
    subject = escaped(shortened(head.subject, length=60))
    name = f"<code>{sha}</code> {subject}"
    return view.anchor(
        name,
        "compare",
        base=change.base.sha,
        head=head.sha,
    )


def _deciding_job(change: KernelSuspicion, jobs: Sequence[StoredJob]) -> StoredJob | None:
    """Return the open job that measures a pair of its commits."""
    for job in jobs:
        is_open = job.finished_at is None
        decides = job.kind in {JobKind.CONFIRM, JobKind.LOCATE}
        is_same_runner = job.runner_class == change.runner_class
        is_same_head = job.head_sha == change.head.sha
        if is_open and decides and is_same_runner and is_same_head:
            return job
    return None


def split_rows(rows: Sequence[CommitEntry]) -> Mapping[str, list[CommitEntry]]:
    """Sort rows into what waits, what got faster, what cannot be said, and what is settled."""
    groups: dict[str, list[CommitEntry]] = {
        "slower": [],
        "faster": [],
        "undecided": [],
        "settled": [],
    }
    for row in rows:
        groups[_group_of(row)].append(row)
    return groups


def _group_of(row: CommitEntry) -> str:
    if row.verdict is Verdict.REGRESSED:
        # what nobody has settled, and no snooze holds back
        if row.is_waiting:
            return "slower"
        return "settled"
    is_standing = any(part.regression.state == "open" for part in row.parts)
    if not is_standing:
        return "settled"
    if row.verdict is Verdict.IMPROVED:
        return "faster"
    return "undecided"


def _runners_of(view: View, rows: Sequence[CommitEntry]) -> list[str]:
    """Return the runner classes whose changes are drawn; of many, those with a change."""
    every_class = [runner.runner_class for runner in view.runners]
    admitted = [name for name in every_class if view.filters.admits_runner(name)]
    # few runners keep their columns, also where nothing changed
    if len(admitted) <= _MAX_RUNNERS:
        return admitted
    changed: set[str] = set()
    for row in rows:
        changed.update(point.series.runner_class for point in row.change_points)
    with_change = [name for name in admitted if name in changed]
    return with_change[:_MAX_RUNNERS]
