"""What one run says about a kernel, under tabs: only those with data, and only the chosen one is
drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import streamlit as st

from roofwatch.ci.diagnosis.diagnose import collect_evidence, diagnose
from roofwatch.collector.device.datasheets import datasheet_ceilings
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.roofline import points_of, roofline_svg
from roofwatch.dashboard.charts.runners import measured_ceilings
from roofwatch.dashboard.components.accuracy_table import show_accuracy
from roofwatch.dashboard.components.analysis_tables import show_analyses
from roofwatch.dashboard.components.code_table import show_static
from roofwatch.dashboard.components.kernel_tables import show_best, show_counters, show_tried
from roofwatch.dashboard.components.limits_table import limits_html
from roofwatch.dashboard.components.markup import show_markup
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.roof_table import RoofRow, choices_of
from roofwatch.dashboard.components.workloads import show_step_values
from roofwatch.dashboard.wording import choice_text, code_span, current_attribute, escaped, written
from roofwatch.db.queries import questions
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Autotuning
from roofwatch.model.record import RunRecord
from roofwatch.model.results import StaticFacts
from roofwatch.model.stored_results import FleetRun
from roofwatch.spec.workload import WORKLOADS

_RUNS_TRIED = 5
"""Newest runs in which a kernel is looked for: a run may lack some."""


@dataclass(frozen=True)
class KernelRun:
    """One kernel in one run, and in the run of the commit before."""

    run: FleetRun
    part: RunRecord
    previous: FleetRun | None

    def read_previous(self) -> RunRecord | None:
        if self.previous is None:
            return None
        return data.ask(
            questions.read_kernel_of_run,
            UUID(self.previous.run_id),
            self.part.cases[0].kernel,
        )


def find_kernel_run(view: View, row: RoofRow) -> KernelRun | None:
    """Find the run of the commit in the address, else the newest with the kernel of a row, on its
    runner.
    """
    sha = view.link.asked_or_chosen("commit")
    runs = data.ask(
        questions.list_fleet_runs,
        view.project,
        limit=_RUNS_TRIED * 4,
        or_commit=sha,
        runner_classes=(row.key.runner_class,),
        branches=view.filters.branches,
    )

    def doubts(run: FleetRun) -> tuple[bool, ...]:
        return run.is_unreachable, run.is_dirty, run.is_pair_side

    # sorting is stable, so newest runs stay first
    in_order = sorted(runs, key=doubts)
    in_order.sort(key=lambda run: run.commit, reverse=True)
    of_commit = [run for run in in_order if run.commit.sha == sha]
    candidates = of_commit or in_order
    for run in candidates[:_RUNS_TRIED]:
        part = data.ask(
            questions.read_kernel_of_run,
            UUID(run.run_id),
            row.key.kernel,
        )
        if part is not None and part.cases:
            # in the order of the branch: the newest before it
            earlier = (candidate for candidate in in_order if candidate.commit < run.commit)
            previous = next(earlier, None)
            return KernelRun(run, part, previous)
    return None


def show_tabs(view: View, row: RoofRow) -> None:
    """Show the tabs of the kernel of a row, and what the chosen one holds."""
    found_run = find_kernel_run(view, row)
    if found_run is None:
        return
    tabs = _tabs_of(found_run)
    if not tabs:
        return
    names = list(tabs)
    chosen = names[0]
    asked_tab = view.link.asked_or_chosen("tab")
    # a link may name a tab that this kernel has not
    if asked_tab is not None and asked_tab in tabs:
        chosen = asked_tab
        view.link.keep("tab", chosen)
    st.html(_bar_html(view, row, names, chosen, found_run))
    tabs[chosen]()


def _bar_html(
    view: View,
    row: RoofRow,
    names: Sequence[str],
    chosen: str,
    found_run: KernelRun,
) -> str:
    links: list[str] = []
    for name in names:
        current = current_attribute(is_current=name == chosen)
        choices = choices_of(row.key)
        links.append(
            view.anchor(
                name,
                view.name,
                attributes=current,
                tab=name,
                **choices,
            )
        )
    run = found_run.run
    started = written(run.started_at, view.zone)
    where = escaped(f"run of {run.commit.short_sha}, {started}")
    tabs = "".join(links)
    return (
        f'<nav class="rw-tabs" aria-label="Of the newest run">{tabs}'
        f'<span class="rw-soft">{where}</span></nav>'
    )


def _tabs_of(found_run: KernelRun) -> Mapping[str, Callable[[], None]]:
    part = found_run.part
    is_workload = any(case.family == WORKLOADS for case in part.cases)
    points = points_of(part.cases, part.measurements)
    tuned: list[Autotuning] = []
    for measurement in part.measurements:
        # a cached choice has no timings to show
        tuned += [tuning for tuning in measurement.autotuning if tuning.timings]
    candidates: tuple[tuple[str, object, Callable[[], None]], ...] = (
        ("step", is_workload, partial(show_step_values, part)),
        ("roofline", points and not is_workload, partial(_show_roofline, part)),
        ("limits", part.measurements, partial(_show_limits, found_run)),
        ("implementations", part.measurements, partial(show_best, part.measurements)),
        ("machine code", part.static_facts, partial(_show_code, found_run)),
        ("accuracy", part.accuracies, partial(show_accuracy, part.accuracies)),
        ("counters", part.counters, partial(show_counters, part.counters)),
        ("autotuner", tuned, partial(_show_tuned, tuned)),
    )
    return {name: show for name, has_data, show in candidates if has_data}


def _show_roofline(part: RunRecord) -> None:
    points = points_of(part.cases, part.measurements)
    dtypes = sorted({point.case.dtype for point in points})
    measured = measured_ceilings(part.ceilings)
    published = datasheet_ceilings(part.environment.device_name, dtypes)
    drawing = roofline_svg(points, [*measured, *published])
    show_markup(drawing, key="roofline")
    st.caption(
        "Lines are the ceilings of this device, measured in the same run; dotted ones are its "
        "datasheet's. FLOP and bytes are the least that a case needs, not hardware counters: "
        "above the dram line, data stayed in the cache."
    )


# --- limits


def _show_limits(found_run: KernelRun) -> None:
    part = found_run.part
    # a diagnosis uses the rest of the record too
    record = data.ask(questions.load_record, UUID(found_run.run.run_id))
    subjects = [
        measurement.case_key
        for measurement in part.measurements
        if measurement.outcome is not Outcome.UNSUPPORTED
    ]
    diagnoses = [diagnose(evidence) for evidence in collect_evidence(record, subjects)]
    table = limits_html(diagnoses, part.environment.compile_target)
    show_markup(table, key="limits")
    st.caption("`roofwatch diagnose` with the record and the case has every finding.")


# --- machine code and the autotuner


def _show_code(found_run: KernelRun) -> None:
    part = found_run.part
    previous_part = found_run.read_previous()
    previous_facts: Sequence[StaticFacts] | None = None
    if previous_part is not None:
        previous_facts = previous_part.static_facts
    show_static(part.static_facts, previous_facts)
    if found_run.previous is not None:
        previous_commit = code_span(choice_text(found_run.previous.commit))
        st.caption(
            f"*changed* is against {previous_commit}, the commit measured before this one. Equal "
            "hashes are equal machine code."
        )
    if part.overflow_proofs:
        show_analyses(part.overflow_proofs, part.operator_costs)


def _show_tuned(tuned: Sequence[Autotuning]) -> None:
    for tuning in tuned:
        function = code_span(tuning.function)
        key = code_span(tuning.key or "one choice")
        st.markdown(f"{function} {key}")
        show_tried(tuning)
