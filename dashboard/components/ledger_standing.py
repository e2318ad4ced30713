"""What was decided about a regression of the ledger, and what it costs a step of a workload."""

from collections.abc import Iterator
from html import escape

import streamlit as st

from roofwatch.ci.ab.prediction import changes_of, functions_of, predict_steps
from roofwatch.ci.ab.step_ledger import ledgers_of_records
from roofwatch.ci.history.commit_rows import CommitEntry
from roofwatch.ci.report.step import kernels_text, signed_ns
from roofwatch.dashboard import data
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.wording import (
    device_text,
    escaped,
    headline_text,
    percent,
    shortened,
    transition_text,
    written,
)
from roofwatch.db.queries import questions
from roofwatch.model.history import ChangePoint, Regression
from roofwatch.model.metrics import TIME
from roofwatch.model.triage import TriagedRegression
from roofwatch.spec.workload import WORKLOADS


def show_standing(view: View, row: CommitEntry, part: TriagedRegression) -> None:
    """Show the decision with its person and reason, and what it costs a step."""
    triage = part.triage
    notes: list[str] = []
    if triage.assignee:
        notes.append(f"assigned to {escaped(shortened(triage.assignee))}")
    if triage.issue_url:
        url = escape(triage.issue_url)
        notes.append(f'<a href="{url}" target="_blank" rel="noopener">{url}</a>')
    if part.is_snoozed and triage.snoozed_until is not None:
        notes.append(f"snoozed until {written(triage.snoozed_until, view.zone)}")
    elif part.is_snoozed:
        notes.append(f"snoozed until {escaped(triage.snoozed_until_sha or '')} is measured")
    if triage.person and triage.changed_at:
        notes.append(
            f"{escaped(shortened(triage.decided_by))}, "
            f"{written(triage.changed_at, view.zone)}: {escaped(triage.reason or '')}"
        )
    ended = part.regression.ended
    if ended:
        notes.append(escaped(ended))
    # what was measured end to end counts more than a prediction
    notes += list(_measured_steps(view, row)) or _step_costs(view, part.regression)
    if notes:
        st.html(f"<p class=rw-soft>{' · '.join(notes)}</p>")


def _measured_steps(view: View, row: CommitEntry) -> Iterator[str]:
    """Write how far the steps of workloads moved at the commit, and which kernel most of it is."""
    cases = view.filters.facets.cases
    workloads = {case.case_id for case in cases if case.family == WORKLOADS}
    for point in row.change_points:
        series = point.series
        # only the time of a step is a cost to somebody
        if series.case_id not in workloads or series.metric != TIME.key:
            continue
        where = device_text(series.runner_class)
        text = (
            f"End to end, a step of {series.case_id} {series.implementation} on {where}: "
            f"{headline_text(point)}, {transition_text(point)}"
        )
        yield f"<b>{escaped(text + _largest_term(point))}</b>"


def _largest_term(point: ChangePoint) -> str:
    """Name the kernels that explain most of a step's change, if both sides were profiled."""
    sides = data.read_sides(point)
    if sides is None:
        return ""
    series = point.series
    title = f"{series.case_id} {series.implementation}"
    for ledger in ledgers_of_records(*sides):
        if ledger.title == title and ledger.rows:
            largest = ledger.rows[0]
            return (
                f". {kernels_text(largest)}: {signed_ns(largest.change_ns)} of "
                f"{signed_ns(ledger.step_change_ns)}"
            )
    return ""


def _step_costs(view: View, regression: Regression) -> list[str]:
    """Predict what it costs the step of a workload, if the share of its kernel is known."""
    # shares of a step are known for one runner class, so only its changes count
    best = regression.change_points[0]
    on_runner = [
        point
        for point in regression.change_points
        if point.series.kernel == best.series.kernel
        and point.series.runner_class == best.series.runner_class
    ]
    changes = list(changes_of(on_runner))
    if not changes:
        return []
    # how much of a step each function takes, from profiles
    shares = data.ask(questions.list_step_shares, view.project, best.series.runner_class)
    if not shares:
        return []
    functions = data.ask(questions.list_functions, view.project, best.series.kernel)
    predicted = predict_steps(changes, functions_of(functions), shares)
    if not predicted:
        return []
    largest = predicted[0]
    low, high = largest.interval
    return [
        escaped(
            f"predicted: {percent(largest.relative_change)} ({percent(low)} to {percent(high)}) "
            f"of a step of {largest.case_id} {largest.implementation}"
        )
    ]
