"""Health: newest commits and runners, coverage, quarantine and the false-alarm rate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import streamlit as st

from roofwatch.ci.ab.noise_floor import RunnerNoise
from roofwatch.ci.alerts.conditions import ReportInterval, report_interval
from roofwatch.ci.history.recent import RUNS_FOR_A_VERDICT, HistoryNoise, noise_from_history, possible_changes
from roofwatch.ci.history.summary import count_false_alarms
from roofwatch.ci.report.coverage import coverage_gaps
from roofwatch.dashboard import data
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import Column, show_numbers, show_table
from roofwatch.dashboard.wording import age_text, code_span, outcome_text, percent
from roofwatch.db.auth.values import TriagedRegression, TriageState
from roofwatch.db.projects import quarantine_name
from roofwatch.db.queries import questions
from roofwatch.db.queries.results import RecentRuns, RunnerCoverage
from roofwatch.db.values import CommitRef, Regression

Row = TypeVar("Row")

_NOISY = 0.05
_POSSIBLE_SHOWN = 5
_MAX_COUNTED = 100
"""Maximum quarantined runs to count."""


def show_quarantine(view: View) -> None:
    """Link to the quarantined runs, if there are any."""
    waiting = data.ask(
        questions.list_fleet_runs,
        quarantine_name(view.project),
        limit=_MAX_COUNTED,
        runner_classes=view.filters.runner_classes,
        branches=view.filters.branches,
    )
    if not waiting:
        return
    count = f"{len(waiting)} or more" if len(waiting) == _MAX_COUNTED else str(len(waiting))
    view.page_link(
        "run",
        f"In quarantine, from an untrusted source: {count} {'run' if len(waiting) == 1 else 'runs'}",
        icon=":material/gpp_maybe:",
        run=waiting[0].run_id,
    )


def read_noise(view: View) -> dict[str, RunnerNoise]:
    """Read the noise of the filtered cases by runner class; false alarms stay those of whole calibrations."""
    return {
        noise.runner_class: replace(
            noise, cases=tuple(case for case in noise.cases if view.filters.admits_case(case.case_id))
        )
        for noise in data.read_runner_noise(view.project)
    }


def interval_text(interval: ReportInterval, now: datetime) -> str:
    """Describe whether results arrive as usual."""
    if interval.silent_from is None:
        return "○ too few results to tell"
    return "✕ silent" if interval.is_silent(now) else "✓ on schedule"


def noise_columns(
    noise: Mapping[str, RunnerNoise], history: Mapping[str, HistoryNoise], runner_class: Callable[[Row], str]
) -> list[Column[Row]]:
    """Return the calibrated noise, and that of the newest runs, of the runner class of a row."""

    def from_history(row: Row) -> float | None:
        known = history.get(runner_class(row))
        return None if known is None else known.deviation

    def calibrated(row: Row) -> float | None:
        known = noise.get(runner_class(row))
        return None if known is None else known.median_floor

    from_runs = "Median over its series of the standard deviation from run to run, in its newest runs."
    from_pairs = "Median over its cases of the deviation between blocks of the same code. See `roofwatch calibrate`."
    return [
        Column("noise from history", from_history, "±{:.1%}".format, from_runs, warn_above=_NOISY),
        Column("calibrated noise", calibrated, "±{:.2%}".format, from_pairs, warn_above=_NOISY),
    ]


def show_newest(
    view: View, runners: Sequence[RunnerCoverage], recent: Sequence[RecentRuns], regressions: Sequence[Regression]
) -> None:
    """Show the newest commit of each runner, and times that left their level but cannot be judged yet."""
    st.subheader("Newest commits", anchor=False)
    admitted = [
        replace(one, series=tuple(own for own in one.series if view.filters.admits_series(own.key))) for one in recent
    ]
    possible = possible_changes(admitted, regressions)
    for change in possible[:_POSSIBLE_SHOWN]:
        line = st.container(horizontal=True, vertical_alignment="center")
        how = "possibly slower" if change.relative_change > 0 else "possibly faster"
        line.markdown(
            f":orange-badge[? {how}] **{code_span(change.kernel)}** {percent(change.relative_change)} on "
            f"{code_span(change.runner_class)}: {change.series_count} series, {change.run_count} of "
            f"{RUNS_FOR_A_VERDICT} runs needed"
        )
        view.page_link(
            "compare",
            "Compare",
            place=line,
            by="commits",
            base=change.base.sha,
            head=change.head.sha,
            runner=change.runner_class,
        )
    if possible:
        worst = possible[0]
        st.caption("To decide one now, on a machine of that runner class:")
        revisions = f"--base {worst.base.short_sha} --head {worst.head.short_sha}"
        st.code(f"roofwatch ab path/to/bench_file.py {revisions}", language="bash")
    newest = {one.runner_class: one.commits[-1] for one in recent}
    noise, now = read_noise(view), datetime.now(UTC)

    def commit_of(runner: RunnerCoverage) -> CommitRef | None:
        return newest.get(runner.runner_class)

    def cases_text(runner: RunnerCoverage) -> str:
        return f"{sum(bool(case.outcomes) for case in runner.cases)} of {len(runner.cases)}"

    columns: list[Column[RunnerCoverage]] = [
        Column("runner class", lambda runner: runner.runner_class),
        Column("state", lambda runner: interval_text(report_interval(runner.result_times), now)),
        Column("last result", lambda runner: age_text(runner.result_times[0], now=now)),
        Column("commit", lambda runner: (commit := commit_of(runner)) and commit.short_sha),
        Column("subject", lambda runner: (commit := commit_of(runner)) and commit.subject),
        Column("cases measured", cases_text, help="In its newest run of a clean work tree."),
        Column(
            "throttled or contended",
            _degraded_share,
            "{:.1%}".format,
            "Share of measurements of its newest run in which the device was throttled, or shared with another "
            "process.",
            warn_above=_NOISY,
        ),
    ]
    noisy: list[Column[RunnerCoverage]] = noise_columns(
        noise, noise_from_history(admitted), lambda runner: runner.runner_class
    )
    show_table(runners, *columns, *noisy)


def _degraded_share(runner: RunnerCoverage) -> float | None:
    count = sum(case.measurement_count for case in runner.cases)
    return sum(case.degraded_count for case in runner.cases) / count if count else None


def show_gaps(runners: Sequence[RunnerCoverage]) -> None:
    st.subheader("Missing or failing cases", anchor=False)
    covered = {
        runner.runner_class: {case.case_id: case.outcomes for case in runner.cases}
        for runner in runners
        if runner.run_id is not None
    }
    show_table(
        coverage_gaps(covered),
        Column("gap", lambda one: str(one.gap)),
        Column("kernel", lambda one: one.kernel),
        Column("runner class", lambda one: one.runner_class),
        Column("cases", lambda one: f"{len(one.case_ids)} of {one.case_count}"),
        Column("outcome", lambda one: ", ".join(map(outcome_text, one.outcomes))),
        Column("example", lambda one: one.case_ids[0]),
        Column("help", lambda one: one.outcomes[0].url if one.outcomes else None, link="what to do"),
        if_empty="Nothing: every case works in the newest run of every runner.",
    )
    st.caption("In the newest run of a clean work tree on each runner, compared with the cases of all these runs.")


def show_false_alarms(found: Sequence[TriagedRegression], since: datetime | None) -> None:
    st.subheader("False alarms", anchor=False)
    counted = count_false_alarms(
        [one.regression for one in found],
        called_none={one.regression.key for one in found if one.triage.state is TriageState.INVALID},
        called_real={
            one.regression.key for one in found if one.triage.state not in {TriageState.NEW, TriageState.INVALID}
        },
        since=since,
    )
    interval = counted.interval
    certainty = None if interval is None else f"95 % interval: {interval[0]:.0%} to {interval[1]:.0%} (Wilson)."
    show_numbers(
        ("False-alarm rate", "not known yet" if counted.rate is None else f"{counted.rate:.0%}", certainty),
        ("Reported", counted.reported_count, None),
        ("False", counted.false_count, None),
        ("Not triaged", counted.reported_count - counted.decided_count, None),
    )
    st.caption(
        f"Of the regressions reported in the time range above, {counted.refuted_count} were not confirmed when "
        f"measured again, and {counted.invalid_count} were marked invalid: these are false. "
        f"{counted.true_count} were confirmed by a measurement or accepted by a person: these are true. "
        "The rate is false ÷ (false + true)."
    )
