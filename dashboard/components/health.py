"""Coverage of the runners, and runs in quarantine."""

from collections.abc import Mapping, Sequence, Set

import streamlit as st

from roofwatch.ci.report.not_measured import CoverageGap, coverage_gaps
from roofwatch.dashboard import data
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.db.projects import quarantine_name
from roofwatch.db.queries import questions
from roofwatch.model.machine import Outcome
from roofwatch.model.stored_results import RunnerCoverage

_MAX_COUNTED = 100
"""Maximum quarantined runs to count."""


def show_quarantine(view: View) -> None:
    # quarantined runs are kept in a project of their own
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
    label = f"Quarantined (unverified) runs: {count}"
    link = view.anchor(label, "machines", run=waiting[0].run_id)
    st.html(f"<p>{link}</p>")


def show_gaps(runners: Sequence[RunnerCoverage]) -> None:
    covered: dict[str, Mapping[str, Set[Outcome]]] = {}
    for runner in runners:
        # without a clean run, nothing is known to be missing
        if runner.run_id is None:
            continue
        outcomes_of = {case.case_id: case.outcomes for case in runner.cases}
        covered[runner.runner_class] = outcomes_of

    def outcomes_text(gap: CoverageGap) -> str:
        return ", ".join(gap.outcomes).replace("_", " ")

    def help_address(gap: CoverageGap) -> str | None:
        if not gap.outcomes:
            return None
        return gap.outcomes[0].url

    show_table(
        coverage_gaps(covered),
        Column("gap", lambda gap: str(gap.gap)),
        Column("kernel", lambda gap: gap.kernel),
        Column("runner class", lambda gap: gap.runner_class),
        Column("cases", lambda gap: f"{len(gap.case_ids)} of {gap.case_count}"),
        Column("outcome", outcomes_text),
        Column("example", lambda gap: gap.case_ids[0]),
        Column("help", help_address, link="what to do"),
        if_empty="Nothing: every case works in the newest run of every runner.",
    )
    st.caption("Newest clean run per runner, compared with all known cases.")
