"""One kernel in one run: utilisation, the best implementation, its limit, and its compiled code."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.ci.diagnosis.diagnose import collect_evidence, diagnose
from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.collector.device.datasheets import datasheet_ceilings
from roofwatch.dashboard import data
from roofwatch.dashboard.charts import kernel as charts
from roofwatch.dashboard.components.imported_values import show_imported_values
from roofwatch.dashboard.components.kernel_tables import (
    show_accuracy,
    show_best,
    show_counters,
    show_diagnoses,
    show_static,
    show_tried,
)
from roofwatch.dashboard.components.page import MAIN_FIGURE, View, open_view
from roofwatch.dashboard.components.ratios import show_ratios
from roofwatch.dashboard.components.table import grouped
from roofwatch.dashboard.components.workloads import show_step_values
from roofwatch.dashboard.wording import choice_text, code_span, written
from roofwatch.db.queries import questions
from roofwatch.model.history import Series
from roofwatch.model.machine import Ceiling, Outcome
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import FleetRun
from roofwatch.spec.workload import WORKLOADS

_RUNS_OFFERED = 300
_NO_PATH = "none"
_DIAGNOSES_SHOWN = 6


def show() -> None:
    with open_view(
        "kernel", "Kernel", "Roofline, bottleneck and compiled code of one kernel."
    ) as view:
        choices = st.container(horizontal=True)
        runs = _runs_by_commit(view, choices)
        run, previous = _choose_run(view, runs, choices)
        record = data.ask(questions.load_record, UUID(run.run_id))
        kernels = sorted(
            {case.kernel for case in record.cases if view.filters.admits_case(case.case_id)}
        )
        if not kernels:
            st.info(
                "The run of this commit has no such case: choose another commit, or widen the "
                "filters.",
                icon=":material/filter_alt:",
            )
            return
        kernel = view.link.choose("Kernel", kernels, parameter="kernel", place=choices)
        part = view.filters.narrowed(record, kernel=kernel)
        _show_where(view, record, kernel)
        show_ratios(view, part)
        if record.environment.imported_from is not None:
            show_imported_values(part, title="Values of this run")
            st.caption(
                "Roofline, diagnosis, machine code and counters need a run that roofwatch measured."
            )
            return
        if any(case.family == WORKLOADS for case in part.cases):
            show_step_values(part)
        else:
            _show_roofline(view, part)
        _show_diagnoses(view, record, part)
        show_best(part.measurements)
        _show_static(part, previous, kernel)
        _show_autotuning(view, part)
        show_counters(part.counters)
        show_accuracy(part.accuracies)


def _runs_by_commit(view: View, place: DeltaGenerator) -> dict[str, FleetRun]:
    """Return the best run of each commit on a chosen runner class, newest commit first, unreachable
    commits last.
    """
    asked = st.query_params.get("commit")
    runs = view.list_runs(limit=_RUNS_OFFERED, or_commit=asked)
    classes = list(dict.fromkeys(run.runner_class for run in runs))
    default = next((run.runner_class for run in runs if run.commit.sha == asked), None)
    runner_class = view.link.choose(
        "Runner", classes, parameter="runner", default=default, place=place
    )
    own = [run for run in runs if run.runner_class == runner_class]
    # sorting is stable, so newest runs stay first
    own.sort(key=lambda run: (run.is_dirty, run.is_pair_side))
    own.sort(key=lambda run: (not run.is_unreachable, run.commit), reverse=True)
    return {
        sha: of_commit[0] for sha, of_commit in grouped(own, lambda run: run.commit.sha).items()
    }


def _choose_run(
    view: View, runs: Mapping[str, FleetRun], place: DeltaGenerator
) -> tuple[FleetRun, FleetRun | None]:
    """Return the run of the chosen commit, and one of the commit before."""
    sha = view.link.choose(
        "Commit",
        list(runs),
        parameter="commit",
        title=lambda sha: choice_text(runs[sha].commit, is_unreachable=runs[sha].is_unreachable),
        place=place,
    )
    chosen = runs[sha]
    earlier = [
        run
        for run in runs.values()
        if run.commit < chosen.commit and run.is_unreachable <= chosen.is_unreachable
    ]
    return chosen, next(iter(earlier), None)


def _show_where(view: View, record: RunRecord, kernel: str) -> None:
    sources = [
        f"{view.sources.line(record.commit.sha, one.file, one.line)} {code_span(one.function)}"
        for one in record.source_lines
        if one.kernel == kernel
    ]
    owners = view.filters.owners_of([kernel])
    parts = [
        f"Measured on {code_span(record.environment.runner_class)}, "
        f"{written(record.started_at, view.zone)}"
    ]
    parts += [f"Source: {', '.join(sources)}"] if sources else []
    parts += [f"Owner: {code_span(', '.join(owners))}"] if owners else []
    st.caption("  \n".join(parts))


def _show_roofline(view: View, part: RunRecord) -> None:
    st.header("Roofline", anchor=False)
    if not any(measurement.blocks for measurement in part.measurements):
        st.info("This run has no measurement of this kernel.", icon=":material/show_chart:")
        return
    points = charts.points_of(part.cases, part.measurements)
    placed = [one for one in points if one.has_arithmetic]
    moves = [one for one in points if not one.has_arithmetic]
    dtypes = sorted({case.dtype for case in part.cases})
    published = datasheet_ceilings(part.environment.device_name, dtypes)
    ceilings = [*(ceiling for ceiling in part.ceilings if ceiling.source == "measured"), *published]
    if placed:
        path = _choose_path(view, part)
        st.plotly_chart(charts.roofline_figure(placed, ceilings, view.zone, path), key=MAIN_FIGURE)
        st.caption(
            "Grey lines are this device's ceilings, measured in the same run; thin dotted ones "
            "are its datasheet's, "
            "if known. The distance of a point below its line is the possible speedup. Above the "
            "dram line, data "
            "stayed in the cache. FLOP and bytes are the minimum that the case needs, not "
            "hardware counters."
        )
    if moves:
        _show_bandwidth(moves, ceilings, key="bandwidth" if placed else MAIN_FIGURE)
    if not placed and not moves:
        st.info(
            "By the cost model its cases have no arithmetic and move no bytes, so there is no "
            "roofline. "
            "Their times are below.",
            icon=":material/show_chart:",
        )


def _show_bandwidth(
    moves: Sequence[charts.Point], ceilings: Sequence[Ceiling], *, key: str
) -> None:
    st.plotly_chart(charts.bandwidth_figure(moves, ceilings), key=key)
    count = len({one.case.case_id for one in moves})
    more = f" The first {charts.MAX_ROWS} of {count} cases." if count > charts.MAX_ROWS else ""
    if moves[0].is_over_links:
        roofs = (
            "It has no arithmetic, so the figure shows bytes per second over each link between "
            "ranks. "
            "There is no measured ceiling for links."
        )
    else:
        roofs = (
            "It has no arithmetic, so the figure shows the minimum bytes read and written per "
            "second. "
            "Grey lines are ceilings measured in the same run; thin dotted lines are from the "
            "datasheet. "
            "Beyond the dram line, data stayed in the cache."
        )
    st.caption(roofs + more)


def _choose_path(view: View, part: RunRecord) -> Series | None:
    """Return the times of a chosen case over commits, if requested."""
    timed = {f"{one.case_id} {one.implementation}": one for one in part.measurements if one.blocks}
    chosen = view.link.choose(
        "History on the roofline",
        [_NO_PATH, *timed],
        parameter="path",
        place=st.container(width=480),
    )
    if chosen == _NO_PATH:
        return None
    measurement = timed[chosen]
    wanted = measurement.implementation, part.environment.runner_class
    history = data.ask(questions.read_case_history, part.project, measurement.case_id)
    return next(
        (one for one in history if (one.key.implementation, one.key.runner_class) == wanted), None
    )


def _show_diagnoses(view: View, record: RunRecord, part: RunRecord) -> None:
    st.header("What limits it", anchor=False)
    # diagnosis uses the rest of the record too
    subjects = [
        (one.case_id, one.implementation)
        for one in part.measurements
        if one.outcome is not Outcome.UNSUPPORTED
    ]
    diagnoses = list(map(diagnose, collect_evidence(record, subjects)))
    if not diagnoses:
        st.text("This run did not measure it, so there is no diagnosis.")
        return
    for one in diagnoses[:_DIAGNOSES_SHOWN]:
        st.markdown(_diagnosis_text(one))
    view.link.unfold(
        "Every diagnosis as a table", lambda: show_diagnoses(diagnoses), parameter="diagnoses"
    )
    st.caption(
        "For every finding with its evidence, run `roofwatch diagnose` with the record and the "
        "case."
    )


def _diagnosis_text(one: Diagnosis) -> str:
    first = f"  \nTry: {one.findings[0].advice}" if one.findings else ""
    return (
        f"{code_span(one.evidence.case.case_id)} {code_span(one.evidence.implementation)}, limit "
        f"**{one.limit}**: "
        f"{one.headline.quoted(code_span)}{first}"
    )


def _show_static(part: RunRecord, previous: FleetRun | None, kernel: str) -> None:
    st.header("Compiled code by target", anchor=False)
    if not part.static_facts:
        st.text("No compiled code is stored for this kernel in this run.")
        return
    before = (
        None
        if previous is None
        else data.ask(questions.read_kernel_of_run, UUID(previous.run_id), kernel)
    )
    show_static(part.static_facts, None if before is None else before.static_facts)
    if previous is not None:
        st.caption(
            f"*changed* is against {code_span(choice_text(previous.commit))}, the commit measured "
            f"before this one. "
            "Equal hashes are equal machine code."
        )


def _show_autotuning(view: View, part: RunRecord) -> None:
    tuned = {
        f"{one.case_id} {one.implementation} {choice.function} ({choice.key})": choice
        for one in part.measurements
        for choice in one.autotuning
        if choice.timings
    }
    if not tuned:
        return
    st.header("What the autotuner tried", anchor=False)
    chosen = tuned[view.link.choose("Choice", list(tuned), parameter="tuned")]
    landscape = charts.landscape_figure(chosen)
    if landscape is None:
        show_tried(chosen)
        return
    st.plotly_chart(landscape, key="landscape")
    st.caption(
        "Time as a multiple of the fastest: each cell is the best configuration with these values "
        "of the two "
        "parameters that matter most. Configurations that could not run are in the list below."
    )
    view.link.unfold(
        "Every configuration by its time", lambda: show_tried(chosen), parameter="configurations"
    )


if __name__ == "__main__":
    show()
