"""Health: newest commits and runners, coverage, quarantine and the false-alarm rate."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime

import streamlit as st

from roofwatch.ci.ab.noise_floor import RunnerNoise
from roofwatch.ci.alerts.silence import ReportInterval, report_interval
from roofwatch.ci.history.recent import (
    HistoryNoise,
    noise_from_history,
    possible_changes,
)
from roofwatch.ci.history.summary import count_false_alarms
from roofwatch.ci.report.not_measured import coverage_gaps
from roofwatch.dashboard import data
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import Column, show_numbers, show_table
from roofwatch.dashboard.wording import age_text, code_span
from roofwatch.db.projects import quarantine_name
from roofwatch.db.queries import questions
from roofwatch.model.history import Regression
from roofwatch.model.machine import Outcome
from roofwatch.model.stored_results import RecentRuns, RunnerCoverage
from roofwatch.model.triage import TriagedRegression

_NOISY = 0.05
_POSSIBLE_SHOWN = 5
_MAX_COUNTED = 100
"""Maximum quarantined runs to count."""


def show_quarantine(view: View) -> None:
    waiting = data.ask(
        questions.list_fleet_runs,
        quarantine_name(view.project),
        limit=_MAX_COUNTED,
        runner_classes=view.filters.runner_classes,
        branches=view.filters.branches,
    )
    if not waiting:
        return
    count = str(len(waiting))
    # there may be more than were read
    if len(waiting) == _MAX_COUNTED:
        count += " or more"
    view.page_link(
        "run",
        f"Quarantined (unverified) runs: {count}",
        icon=":material/gpp_maybe:",
        run=waiting[0].run_id,
    )


def read_noise(view: View) -> dict[str, RunnerNoise]:
    """Read the noise of the filtered cases by runner class; false alarms stay those of whole
    calibrations.
    """
    filtered: dict[str, RunnerNoise] = {}
    for noise in data.read_runner_noise(view.project):
        cases = [case for case in noise.cases if view.filters.admits_case(case.case_id)]
        filtered[noise.runner_class] = replace(noise, cases=tuple(cases))
    return filtered


def _interval_text(interval: ReportInterval, now: datetime) -> str:
    if interval.silent_from is None:
        return "too few results to tell"
    if interval.is_silent(now):
        return f"no results for {age_text(interval.last_at, now=now).removesuffix(' ago')}"
    return "on schedule"


def health_columns(
    intervals: Mapping[str, ReportInterval],
    degraded_share: Callable[[str], float | None],
    noise: Mapping[str, RunnerNoise],
    history: Mapping[str, HistoryNoise],
) -> list[Column[str]]:
    """Return whether runner classes report, how often their device is disturbed,
    and their noise.
    """
    now = datetime.now(UTC)

    def from_history(runner: str) -> float | None:
        if runner not in history:
            return None
        return history[runner].deviation

    def calibrated(runner: str) -> float | None:
        if runner not in noise:
            return None
        return noise[runner].median_floor

    from_runs = (
        "Median over its series of the standard deviation from run to run, in its newest runs."
    )
    from_pairs = (
        "Median over its cases of the deviation between blocks of the same code. See "
        "`roofwatch calibrate`."
    )
    return [
        Column("runner class", str),
        Column(
            "state",
            lambda runner: _interval_text(intervals[runner], now),
            help="No results: none for three times its longest usual interval.",
        ),
        Column("last result", lambda runner: age_text(intervals[runner].last_at, now=now)),
        Column(
            "throttled or contended",
            degraded_share,
            "{:.1%}".format,
            "Share of measurements in which the device was throttled, or shared with another "
            "process.",
            warn_above=_NOISY,
        ),
        Column(
            "noise from history",
            from_history,
            "±{:.1%}".format,
            from_runs,
            warn_above=_NOISY,
        ),
        Column(
            "calibrated noise",
            calibrated,
            "±{:.2%}".format,
            from_pairs,
            warn_above=_NOISY,
        ),
    ]


def show_newest(
    view: View,
    runners: Sequence[RunnerCoverage],
    recent: Sequence[RecentRuns],
    regressions: Sequence[Regression],
) -> None:
    """Show the newest commit of each runner, and times that left their level but cannot be judged
    yet.
    """
    st.header("Newest commits", anchor=False)
    admitted = []
    for runs in recent:
        series = [line for line in runs.series if view.filters.admits_series(line.key)]
        admitted.append(replace(runs, series=tuple(series)))
    # what is a regression already needs no suspicion
    possible = possible_changes(admitted, regressions)
    for change in possible[:_POSSIBLE_SHOWN]:
        line = st.container(horizontal=True, vertical_alignment="center")
        line.markdown(
            f":orange-badge[?] **{code_span(change.kernel)}** on "
            f"{code_span(change.runner_class)}, {change.series_count} series: {change.claim}"
        )
        base, head = change.base.sha, change.head.sha
        view.compare_link(
            "Compare",
            base=base,
            head=head,
            runner_class=change.runner_class,
            place=line,
        )
    measured = [change for change in possible if not change.is_imported]
    if measured:
        worst = measured[0]
        st.caption("To decide one now, on a machine of that runner class:")
        revisions = f"--base {worst.base.short_sha} --head {worst.head.short_sha}"
        st.code(f"roofwatch ab path/to/bench_file.py {revisions}", language=None)
    newest = {runs.runner_class: runs.commits[-1] for runs in recent}
    cases = {runner.runner_class: runner.cases for runner in runners}

    def degraded_share(runner: str) -> float | None:
        count = sum(case.measurement_count for case in cases[runner])
        degraded_count = sum(case.degraded_count for case in cases[runner])
        return degraded_count / count if count else None

    def working_cases(runner: str) -> str:
        working_count = sum(bool(case.outcomes) for case in cases[runner])
        return f"{working_count} of {len(cases[runner])}"

    def commit_field(title: str, name: str) -> Column[str]:
        return Column(title, lambda runner: getattr(newest.get(runner), name, None))

    intervals = {runner.runner_class: report_interval(runner.result_times) for runner in runners}
    show_table(
        cases,
        *health_columns(intervals, degraded_share, read_noise(view), noise_from_history(admitted)),
        Column("cases", working_cases),
        commit_field("commit", "short_sha"),
        commit_field("subject", "subject"),
    )
    st.caption("Cases and throttling: newest run of a clean work tree.")


def show_gaps(runners: Sequence[RunnerCoverage]) -> None:
    st.header("Missing or failing cases", anchor=False)
    covered: dict[str, Mapping[str, Set[Outcome]]] = {}
    for runner in runners:
        # without a clean run, nothing is known to be missing
        if runner.run_id is not None:
            covered[runner.runner_class] = {case.case_id: case.outcomes for case in runner.cases}
    show_table(
        coverage_gaps(covered),
        Column("gap", lambda gap: str(gap.gap)),
        Column("kernel", lambda gap: gap.kernel),
        Column("runner class", lambda gap: gap.runner_class),
        Column("cases", lambda gap: f"{len(gap.case_ids)} of {gap.case_count}"),
        Column("outcome", lambda gap: ", ".join(gap.outcomes).replace("_", " ")),
        Column("example", lambda gap: gap.case_ids[0]),
        Column(
            "help", lambda gap: gap.outcomes[0].url if gap.outcomes else None, link="what to do"
        ),
        if_empty="Nothing: every case works in the newest run of every runner.",
    )
    st.caption("Newest clean run per runner, compared with all known cases.")


def show_false_alarms(regressions: Sequence[TriagedRegression], since: datetime | None) -> None:
    st.header("Alert accuracy", anchor=False)
    counted = count_false_alarms(regressions, since=since)
    certainty = None
    if counted.interval is not None:
        low, high = counted.interval
        certainty = f"95 % interval: {low:.0%} to {high:.0%} (Wilson)."
    rate = "not known yet"
    if counted.rate is not None:
        rate = f"{counted.rate:.0%}"
    show_numbers(
        ("False-alarm rate", rate, certainty),
        ("Alerts", counted.reported_count, None),
        ("False", counted.false_count, None),
        ("Untriaged", counted.reported_count - counted.decided_count, None),
    )
    st.caption(
        f"In the time range above. False: not reproduced when measured again "
        f"({counted.refuted_count}) or marked "
        f"invalid ({counted.invalid_count}). True: confirmed by a measurement or accepted "
        f"({counted.true_count}). "
        "Rate: false ÷ (false + true)."
    )
