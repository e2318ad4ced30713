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
        assignee = escaped(shortened(triage.assignee))
        notes.append(f"assigned to {assignee}")
    if triage.issue_url:
        url = escape(triage.issue_url)
        notes.append(f'<a href="{url}" target="_blank" rel="noopener">{url}</a>')
    if part.is_snoozed and triage.snoozed_until is not None:
        snoozed_until = written(triage.snoozed_until, view.zone)
        notes.append(f"snoozed until {snoozed_until}")
    elif part.is_snoozed:
        snoozed_until_sha = escaped(triage.snoozed_until_sha or "")
        notes.append(f"snoozed until {snoozed_until_sha} is measured")
    if triage.person and triage.changed_at:
        person = escaped(shortened(triage.decided_by))
        changed = written(triage.changed_at, view.zone)
        reason = escaped(triage.reason or "")
        notes.append(f"{person}, {changed}: {reason}")
    ended = part.regression.ended
    if ended:
        notes.append(escaped(ended))
    measured_steps = list(_measured_steps(view, row))
    # what was measured end to end counts more than a prediction
    if measured_steps:
        notes += measured_steps
    else:
        notes += _step_costs(view, part.regression)
    if notes:
        st.html(f"<p class=rw-soft>{' · '.join(notes)}</p>")


def _measured_steps(view: View, row: CommitEntry) -> Iterator[str]:
    """Write how far the steps of workloads moved at the commit, and which kernel most of it is."""
    workloads: set[str] = set()
    for case in view.filters.facets.cases:
        if case.family == WORKLOADS:
            workloads.add(case.case_id)
    for point in row.change_points:
        series = point.series
        # only the time of a step is a cost to somebody
        if series.case_id not in workloads or series.metric != TIME.key:
            continue
        device = device_text(series.runner_class)
        headline = headline_text(point)
        transition = transition_text(point)
        largest_term = _largest_term(point)
        text = escaped(
            f"End to end, a step of {series.case_id} {series.implementation} on {device}: "
            f"{headline}, {transition}{largest_term}"
        )
        yield f"<b>{text}</b>"


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
            kernels = kernels_text(largest)
            change = signed_ns(largest.change_ns)
            step_change = signed_ns(ledger.step_change_ns)
            return f". {kernels}: {change} of {step_change}"
    return ""


def _step_costs(view: View, regression: Regression) -> list[str]:
    """Predict what it costs the step of a workload, if the share of its kernel is known."""
    # shares of a step are known for one runner class, so only its changes count
    best = regression.change_points[0].series
    on_runner: list[ChangePoint] = []
    for point in regression.change_points:
        series = point.series
        if series.kernel == best.kernel and series.runner_class == best.runner_class:
            on_runner.append(point)
    changes = list(changes_of(on_runner))
    if not changes:
        return []
    # how much of a step each function takes, from profiles
    shares = data.ask(
        questions.list_step_shares,
        view.project,
        best.runner_class,
    )
    if not shares:
        return []
    functions = data.ask(
        questions.list_functions,
        view.project,
        best.kernel,
    )
    predicted = predict_steps(
        changes,
        functions_of(functions),
        shares,
    )
    if not predicted:
        return []
    largest = predicted[0]
    low, high = largest.interval
    change = percent(largest.relative_change)
    interval = f"{percent(low)} to {percent(high)}"
    text = (
        f"predicted: {change} ({interval}) of a step of {largest.case_id} {largest.implementation}"
    )
    return [escaped(text)]
