"""One commit of the ledger: what changed, why, whether to believe it, and what to do."""

from collections.abc import Sequence
from datetime import UTC, datetime

import streamlit as st

from roofwatch.ci.ab.side_by_side import side_by_side
from roofwatch.ci.history.commit_rows import CommitEntry
from roofwatch.ci.history.summary import FalseAlarms
from roofwatch.dashboard import data
from roofwatch.dashboard.commands import NO_COMMAND, command_html, pair_command
from roofwatch.dashboard.components.confirmation import requests_html
from roofwatch.dashboard.components.decide import show_decisions
from roofwatch.dashboard.components.ledger_reasons import reasons_html, suspects_html
from roofwatch.dashboard.components.ledger_series import key_of
from roofwatch.dashboard.components.ledger_standing import show_standing
from roofwatch.dashboard.components.ledger_trend import show_trend
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.source_changes import source_html
from roofwatch.dashboard.headline import headline_of, kernel_text
from roofwatch.dashboard.linked_row import row_choices
from roofwatch.dashboard.wording import (
    TRIAGE_MARKS,
    age_text,
    current_attribute,
    escaped,
    headline_text,
    shortened,
    written,
)
from roofwatch.db.queries import questions
from roofwatch.model.history import ChangePoint, Regression
from roofwatch.model.stored_results import RoofCell
from roofwatch.model.triage import TriagedRegression


def show_detail(
    view: View,
    row: CommitEntry,
    marked: Sequence[CommitEntry],
    cells: Sequence[RoofCell],
    false_alarms: FalseAlarms,
) -> ChangePoint:
    """Show everything about a row, and return the change whose evidence was chosen.

    Decisions are about the marked rows, if there are any.
    """
    change = _chosen_change(view, row)
    part = row.part_of(change)
    regression = part.regression
    _show_head(view, row, part)
    sentence = _sentence_html(change, regression)
    st.html(f"<p class=rw-sentence>{sentence}</p>")
    show_decisions(view.project, row, marked)
    jobs = data.ask(questions.list_jobs, view.project)
    requests = requests_html(jobs, row)
    if requests:
        st.html(requests)
    show_standing(view, row, part)
    show_trend(view, change, cells)
    suspects = suspects_html(regression)
    reasons = reasons_html(row, part, change, false_alarms)
    st.html(
        "<div class=rw-two>"
        f"<section><h3>Why</h3>{suspects}</section>"
        f"<section><h3>Why believe it</h3>{reasons}</section>"
        "</div>"
    )
    source = source_html(view, change)
    command = _command_html(change)
    st.html(f"{source}{command}")
    return change


def _chosen_change(view: View, row: CommitEntry) -> ChangePoint:
    changes = {key_of(point): point for point in row.change_points}
    requested = st.query_params.get("change")
    if requested in changes:
        view.link.keep("change", requested)
        return changes[requested]
    # a link from an alert names a regression rather than a change
    regression_id = st.query_params.get("regression")
    for part in row.parts:
        if part.regression_id == regression_id:
            return part.regression.change_points[0]
    return row.worst


def _show_head(view: View, row: CommitEntry, part: TriagedRegression) -> None:
    commit = row.commit
    age = age_text(commit.committed_at, now=datetime.now(UTC))
    regression = part.regression
    marks = [TRIAGE_MARKS[part.triage.state].text]
    if regression.is_confirmed:
        marks.append("✓ confirmed")
    else:
        marks.append("? unconfirmed")
    if regression.is_alert:
        marks.append("▲ alert")
    if regression.change_points[0].is_gradual:
        marks.append("↗ drift")
    badges = ""
    for mark in marks:
        badges += f"<span class=rw-mark>{escaped(mark)}</span>"
    where = view.commit_html(commit)
    # a range of commits has no single subject or author
    if regression.is_range:
        where = escaped(regression.range_text)
    link = view.anchor(
        "Copy link",
        "ledger",
        attributes="data-copy",
        **row_choices(row),
    )
    owners = view.filters.owners_of(point.series.kernel for point in regression.change_points)
    owned = ""
    if owners:
        names = escaped(", ".join(owners))
        owned = f" · owner {names}"
    chips = ""
    # a commit with one regression needs no choice
    if len(row.parts) > 1:
        chips = _part_links(view, row, part)
    back = view.anchor("← Ledger", "ledger", attributes="class=rw-back")
    headline = escaped(headline_of(row))
    committed = escaped(written(commit.committed_at, view.zone))
    st.html(
        f"{back}<h2 class=rw-title>{headline}</h2>"
        f"<p class=rw-soft>{where} · {committed}, {age}{owned} · {link}</p>"
        f"<p>{badges}{chips}</p>"
    )


def _part_links(view: View, row: CommitEntry, chosen: TriagedRegression) -> str:
    links: list[str] = []
    for part in row.parts:
        kernel = shortened(kernel_text(part.regression.kernel), length=30)
        change = headline_text(part.regression.change_points[0])
        current = current_attribute(is_current=part == chosen)
        link = view.anchor(
            escaped(f"{kernel} {change}"),
            "ledger",
            attributes=f"class=rw-chip{current}",
            regression=part.regression_id,
            **row_choices(row),
        )
        links.append(link)
    return "".join(links)


def _sentence_html(change: ChangePoint, regression: Regression) -> str:
    """Write the explanation of the machine code if there is one, and what changed."""
    explained = _code_explanation(change)
    summary = escaped(regression.summary)
    if explained:
        return f"{explained} {summary}"
    return summary


def _code_explanation(change: ChangePoint) -> str:
    series = change.series
    sides = data.read_sides(change)
    if sides is None:
        return ""
    base, head = sides
    comparison = side_by_side(
        base,
        head,
        series.case_id,
        series.implementation,
    )
    # one is enough: targets often have the same explanation
    for judged in comparison.code:
        if judged.detail is not None:
            detail = escaped(str(judged.detail))
            return f"<b>{detail}.</b>"
    return ""


def _command_html(change: ChangePoint) -> str:
    """Write the command that decides it."""
    if change.series.is_imported:
        return NO_COMMAND
    command = pair_command(
        change.previous_commit,
        change.commit,
        kernel=change.series.kernel,
    )
    return command_html(command)
