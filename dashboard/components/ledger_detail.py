"""One commit of the ledger: what changed, why, whether to believe it, and what to do."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape

import streamlit as st

from roofwatch.ci.ab.prediction import changes_of, functions_of, predict_steps
from roofwatch.ci.ab.side_by_side import side_by_side
from roofwatch.ci.ab.step_ledger import ledgers_of_records
from roofwatch.ci.history.commit_rows import CommitEntry, cost_of
from roofwatch.ci.history.summary import FalseAlarms
from roofwatch.ci.messages import count_of
from roofwatch.ci.report.step import kernels_text, signed_ns
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.history import History, RoofLine, history_html
from roofwatch.dashboard.charts.lanes import lanes_of
from roofwatch.dashboard.commands import NO_COMMAND, command_html, pair_command
from roofwatch.dashboard.components.confirmation import requests_html
from roofwatch.dashboard.components.decide import show_decisions
from roofwatch.dashboard.components.markup import show_markup
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.roof_table import fastest_library
from roofwatch.dashboard.components.source_changes import source_html
from roofwatch.dashboard.components.table import HtmlColumn, html_table, scrolled
from roofwatch.dashboard.headline import headline_of, kernel_text
from roofwatch.dashboard.linked_row import row_choices
from roofwatch.dashboard.wording import (
    TRIAGE_MARKS,
    age_text,
    current_attribute,
    device_text,
    escaped,
    headline_text,
    percent,
    shortened,
    transition_text,
    written,
)
from roofwatch.db.queries import questions
from roofwatch.db.queries.trend import TrendQuestion
from roofwatch.model.history import ChangePoint, Regression, SeriesKey
from roofwatch.model.metrics import TIME
from roofwatch.model.stored_results import RoofCell
from roofwatch.model.triage import TriagedRegression
from roofwatch.spec.workload import WORKLOADS

_TREND_PX = 120
_LEAST_WEIGHT = 0.02
"""Weight from which a second cause is listed."""


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
    st.html(f"<p class=rw-sentence>{_sentence_html(change, regression)}</p>")
    show_decisions(view.project, row, marked)
    jobs = data.ask(questions.list_jobs, view.project)
    requests = requests_html(jobs, row)
    if requests:
        st.html(requests)
    _show_standing(view, row, part)
    _show_trend(view, change, cells)
    st.html(
        "<div class=rw-two>"
        f"<section><h3>Why</h3>{_suspects_html(regression)}</section>"
        f"<section><h3>Why believe it</h3>{_reasons_html(row, part, change, false_alarms)}"
        "</section></div>"
    )
    st.html(f"{source_html(view, change)}{_command_html(change)}")
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


def key_of(change: ChangePoint) -> str:
    series = change.series
    parts = (series.metric, series.case_id, series.implementation, series.runner_class)
    return "|".join(
        (*parts, series.function, series.target, series.tensor, change.commit.short_sha)
    )


def _show_head(view: View, row: CommitEntry, part: TriagedRegression) -> None:
    commit = row.commit
    age = age_text(commit.committed_at, now=datetime.now(UTC))
    regression = part.regression
    marks = [TRIAGE_MARKS[part.triage.state].text]
    marks.append("✓ confirmed" if regression.is_confirmed else "? unconfirmed")
    if regression.is_alert:
        marks.append("▲ alert")
    if regression.change_points[0].is_gradual:
        marks.append("↗ drift")
    badges = "".join(f"<span class=rw-mark>{escaped(mark)}</span>" for mark in marks)
    where = view.commit_html(commit)
    # a range of commits has no single subject or author
    if regression.is_range:
        where = escaped(regression.range_text)
    link = view.anchor("Copy link", "ledger", attributes="data-copy", **row_choices(row))
    owners = view.filters.owners_of(point.series.kernel for point in part.regression.change_points)
    owned = chips = ""
    if owners:
        owned = f" · owner {escaped(', '.join(owners))}"
    # a commit with one regression needs no choice
    if len(row.parts) > 1:
        chips = _part_links(view, row, part)
    st.html(
        f"{view.anchor('← Ledger', 'ledger', attributes='class=rw-back')}"
        f"<h2 class=rw-title>{escaped(headline_of(row))}</h2>"
        f"<p class=rw-soft>{where} · {escaped(written(commit.committed_at, view.zone))}, "
        f"{age}{owned} · {link}</p><p>{badges}{chips}</p>"
    )


def _part_links(view: View, row: CommitEntry, chosen: TriagedRegression) -> str:
    links: list[str] = []
    for part in row.parts:
        kernel = shortened(kernel_text(part.regression.kernel), length=30)
        change = headline_text(part.regression.change_points[0])
        links.append(
            view.anchor(
                escaped(f"{kernel} {change}"),
                "ledger",
                attributes=f"class=rw-chip{current_attribute(is_current=part == chosen)}",
                regression=part.regression_id,
                **row_choices(row),
            )
        )
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
    comparison = side_by_side(*sides, series.case_id, series.implementation)
    # targets often have the same explanation
    details = dict.fromkeys(
        str(judged.detail) for judged in comparison.code if judged.detail is not None
    )
    return "".join(f"<b>{escaped(detail)}.</b>" for detail in list(details)[:1])


# --- trend


def _show_trend(view: View, change: ChangePoint, cells: Sequence[RoofCell]) -> None:
    """Draw the series of a change with its roof, the library, releases and new drivers."""
    series = change.series
    keys = [series]
    library = fastest_library(series, cells)
    if library is not None:
        keys.append(library)
    question = TrendQuestion(
        view.project,
        tuple(keys),
        kept_commits=(change.commit.sha, change.previous_commit.sha),
    )
    # the trend is longer than the list, unless its reader chose dates
    if view.range.is_dragged:
        question = replace(question, since=view.range.since, until=view.range.until)
    lines = {line.key: line for line in data.ask(questions.read_trend, question).series}
    line = lines.pop(series, None)
    # a change that only a pair shows has no series
    if line is None:
        st.html("<p class=rw-soft>This series has no runs outside pairs.</p>")
        return
    history = History(
        series=line,
        vendor=next(iter(lines.values()), None),
        roofs=tuple(_roofs(series, cells)),
        changes=(change,),
        lanes=tuple(lanes_of([line], view.list_releases())),
    )
    drawn = history_html(history, view.zone, height_px=_TREND_PX)
    title = f"{series.definition.title}, {series.label}"
    if series.runner_class:
        title += f" on {device_text(series.runner_class)}"
    roof = view.anchor(
        "Roof →",
        "roof",
        kernel=series.kernel,
        case=series.case_id,
        runner=series.runner_class,
    )
    st.html(f"<p class=rw-caption>{escaped(title)} {roof}</p>")
    show_markup(drawn, key="main-figure")


def _roofs(series: SeriesKey, cells: Sequence[RoofCell]) -> Iterator[RoofLine]:
    for cell in cells:
        # the time at the roof: the share of it that the newest run took
        if cell.key == series and cell.utilisation:
            yield RoofLine("achievable (measured)", cell.values[-1] * cell.utilisation, True)


# --- why, and whether to believe it


def _suspects_html(regression: Regression) -> str:
    if not regression.suspects:
        return f"<p>{escaped(str(regression.cause))}; no causes were weighed.</p>"
    rows: list[str] = []
    for number, suspect in enumerate(regression.suspects[:3]):
        # what is all but excluded would only take place
        if number and suspect.weight < _LEAST_WEIGHT:
            continue
        width = round(40 * suspect.weight)
        rows.append(
            f"<li><span class=rw-bar><i class=slower style='width:{width}px'></i></span>"
            f"<b>{escaped(str(suspect.cause))} {suspect.weight:.0%}</b> "
            f"{escaped(shortened(suspect.sentence, length=240))}</li>"
        )
    return f"<ul class=rw-list>{''.join(rows)}</ul>"


def _reasons_html(
    row: CommitEntry, part: TriagedRegression, change: ChangePoint, false_alarms: FalseAlarms
) -> str:
    reasons = [
        *_probability_reasons(row, false_alarms),
        f"Series: {escaped(change.evidence)}",
        _extent_text(part.regression, change),
        _clock_text(change),
    ]
    return f"<ul class=rw-list>{''.join(f'<li>{reason}</li>' for reason in reasons if reason)}</ul>"


def _probability_reasons(row: CommitEntry, false_alarms: FalseAlarms) -> Iterator[str]:
    if row.is_confirmed:
        yield "<b>Confirmed</b> by a pair of interleaved runs, or by facts that have no noise."
        return
    if not false_alarms.decided_count:
        yield (
            f"<b>Probability {row.probability:.0%}</b>, before any alert of this project was "
            "decided. No pair has measured it yet."
        )
        return
    decided = count_of(false_alarms.decided_count, "earlier alert")
    yield (
        f"<b>Probability {row.probability:.0%}</b>: {false_alarms.true_count} of {decided} of this "
        "project were real. No pair has measured it yet."
    )


def _extent_text(regression: Regression, change: ChangePoint) -> str:
    """Write on how many of the series with this metric it was seen, and how far."""
    same_metric = [
        point for point in regression.change_points if point.series.metric == change.series.metric
    ]
    # what became faster at the same commit speaks neither for nor against it
    worse = [point for point in same_metric if (cost_of(point) > 0) == (cost_of(change) > 0)]
    places = sorted({device_text(point.series.runner_class) for point in worse} - {""})
    text = f"{len(worse)} series moved this way"
    if places:
        text += f", on {', '.join(places)}"
    if regression.typical_change is not None:
        text += f"; typically {percent(regression.typical_change)}"
        if regression.change_spread is not None:
            text += f" ± {regression.change_spread:.1%}"
    return escaped(f"{text}.")


def _clock_text(change: ChangePoint) -> str:
    if change.series.is_imported:
        return "Clocks: unknown, the other tool's file has none."
    # compiled code
    if not change.series.runner_class:
        return "Clocks do not matter: machine code has no noise."
    if change.degraded_by:
        reasons = ", ".join(change.degraded_by).replace("_", " ")
        return f"<b>Clocks: {escaped(reasons)}</b> in most runs on one side."
    return "Clocks: most runs on both sides were neither throttled nor shared."


def _show_standing(view: View, row: CommitEntry, part: TriagedRegression) -> None:
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


def _command_html(change: ChangePoint) -> str:
    """Write the command that decides it."""
    if change.series.is_imported:
        return NO_COMMAND
    command = pair_command(change.previous_commit, change.commit, kernel=change.series.kernel)
    return command_html(command)


def changes_html(view: View, row: CommitEntry, chosen: ChangePoint) -> str:
    """Write every series of the commit as a table; a row shows its evidence."""

    def series_html(point: ChangePoint) -> str:
        return view.anchor(
            escaped(point.series.label),
            "ledger",
            change=key_of(point),
            every="open",
            **row_choices(row),
        )

    table = html_table(
        row.change_points,
        [
            HtmlColumn("series", series_html),
            HtmlColumn("metric", lambda point: escaped(point.series.definition.title)),
            HtmlColumn("on", _measured_on),
            HtmlColumn("change", lambda point: escaped(headline_text(point)), "number"),
            HtmlColumn("base → head", lambda point: escaped(transition_text(point)), "number"),
        ],
        attributes=lambda point: current_attribute(is_current=point == chosen),
    )
    return scrolled(table)


def _measured_on(point: ChangePoint) -> str:
    return escaped(point.series.target or device_text(point.series.runner_class))
