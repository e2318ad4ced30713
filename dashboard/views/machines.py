"""Is a machine healthy, what will it do next, and what does it cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import streamlit as st

from roofwatch.dashboard import data
from roofwatch.dashboard.components.health import show_gaps, show_quarantine
from roofwatch.dashboard.components.machine_cards import (
    DAYS,
    FleetFacts,
    Machine,
    card_html,
    machines_of,
    noise_of,
    state_of,
)
from roofwatch.dashboard.components.machine_detail import RUNS_READ, show_machine
from roofwatch.dashboard.components.page import View, note_whole_runs, open_view
from roofwatch.dashboard.components.run_page import show_run
from roofwatch.dashboard.components.spending import show_spending
from roofwatch.dashboard.runner_state import STATE_WORDS
from roofwatch.db.queries import questions
from roofwatch.model.stored_results import FleetRun, RunnerCoverage

_NOT_LIVE_AFTER = timedelta(days=90)


def show() -> None:
    with open_view(
        "machines", "Machines", "are the runners healthy, what do they do next, what do they cost"
    ) as view:
        # a run is a page of its own, also one that is gone
        asked_run = st.query_params.get("run")
        if asked_run is not None:
            show_run(view, asked_run)
            return
        runs = view.list_runs(limit=RUNS_READ, of_each_class=True)
        runner_classes = dict.fromkeys(run.runner_class for run in runs)
        runner_class = view.link.read(
            "Runner class",
            ["", *runner_classes],
            parameter="runner",
        )
        if runner_class:
            of_class = [run for run in runs if run.runner_class == runner_class]
            newest_first = sorted(of_class, key=_start, reverse=True)
            show_machine(view, runner_class, newest_first)
            return
        _show_cards(view, runs)
        view.link.unfold(
            "What it costs: device time, energy and money",
            partial(show_spending, view),
            parameter="costs",
        )
        view.link.unfold(
            "Missing or failing cases",
            partial(show_gaps, _coverage(view)),
            parameter="gaps",
        )
        show_quarantine(view)


def _start(run: FleetRun) -> datetime:
    return run.started_at


def _show_cards(view: View, runs: Sequence[FleetRun]) -> None:
    note_whole_runs(view)
    recent = data.ask(
        questions.read_recent_runs,
        view.project,
        runner_classes=view.filters.runner_classes,
    )
    jobs = data.ask(questions.list_jobs, view.project)
    machines = machines_of(runs)
    facts = FleetFacts(
        now=_end_of_strips(runs),
        degraded_shares=_degraded_shares(view, runs),
        noise={machine.key: noise_of(machine, recent) for machine in machines},
        jobs=jobs,
    )

    def urgency_of(machine: Machine) -> int:
        state = state_of(machine, facts)
        return STATE_WORDS.index(state.word)

    # what needs somebody stands first; sorting is stable
    machines.sort(key=urgency_of)
    cards: list[str] = []
    for machine in machines:
        siblings = [
            sibling
            for sibling in machines
            if sibling.runner_class == machine.runner_class and sibling != machine
        ]
        cards.append(card_html(view, machine, siblings, facts))
    st.html(
        f"<div class=rw-cards>{''.join(cards)}</div>"
        "<p class='rw-soft rw-below'>A strip has one cell a day: "
        "<i class='rw-cell ok'></i> measured, <i class='rw-cell throttled'></i> throttled or "
        "shared, <i class='rw-cell none'></i> no run. Ceilings: the newest against the machine's "
        "own median.</p>"
    )


def _end_of_strips(runs: Sequence[FleetRun]) -> datetime:
    """Return now, or the newest run of a history that ended long ago."""
    newest = max(run.finished_at for run in runs)
    now = datetime.now(UTC)
    if now - newest < _NOT_LIVE_AFTER:
        return now
    return newest


def _degraded_shares(view: View, runs: Sequence[FleetRun]) -> dict[str, float]:
    """Return the share of throttled or shared measurements of the runs of a month."""
    oldest = _end_of_strips(runs) - timedelta(days=DAYS)
    recent = tuple(UUID(run.run_id) for run in runs if run.started_at >= oldest)
    if not recent:
        return {}
    costs = data.ask(
        questions.list_kernel_costs,
        recent,
        case_ids=view.filters.case_ids,
    )
    measured = Counter[str]()
    degraded = Counter[str]()
    for cost in costs:
        measured[cost.run_id] += cost.measurement_count
        degraded[cost.run_id] += cost.degraded_count
    return {run_id: degraded[run_id] / count for run_id, count in measured.items() if count}


def _coverage(view: View) -> list[RunnerCoverage]:
    """Return what the newest clean run of each runner has of the admitted cases."""
    covered: list[RunnerCoverage] = []
    for runner in view.runners:
        if not view.filters.admits_runner(runner.runner_class):
            continue
        cases = [case for case in runner.cases if view.filters.admits_case(case.case_id)]
        covered.append(replace(runner, cases=tuple(cases)))
    return covered


if __name__ == "__main__":
    show()
