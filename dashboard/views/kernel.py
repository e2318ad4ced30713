"""One kernel in one run: how far from the roof, which implementation wins, what limits it, what it compiles to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.collector.device.datasheets import datasheet_ceilings
from roofwatch.collector.record.machine import Ceiling
from roofwatch.collector.record.measurement import Autotuning
from roofwatch.collector.record.metrics import metric
from roofwatch.collector.record.record import RunRecord, SourceLine
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.autotune import MAX_ROWS, autotune_figure
from roofwatch.dashboard.charts.autotune_landscape import landscape_html
from roofwatch.dashboard.charts.bandwidth import MAX_ROWS as MAX_CASES_DRAWN
from roofwatch.dashboard.charts.bandwidth import Moved, bandwidth_figure, moved
from roofwatch.dashboard.charts.roofline import place, roofline_figure
from roofwatch.dashboard.figure import show_figure
from roofwatch.dashboard.filters import Filters
from roofwatch.dashboard.frame import MAIN_FIGURE, View, open_view, say_how_to_begin
from roofwatch.dashboard.reader import is_page_dark
from roofwatch.dashboard.source_links import linked
from roofwatch.dashboard.tables.kernel import (
    Order,
    accuracy_table,
    best_table,
    counters_table,
    diagnoses_of,
    diagnosis_table,
    of_kernel,
    profiler_table,
    static_help,
    static_table,
    without_constants,
)
from roofwatch.dashboard.tables.markup import Column
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.wording import choice_text, code_span, commit_text
from roofwatch.dashboard.zone import written
from roofwatch.db.queries.fleet_values import FleetRun
from roofwatch.db.values import Series

_RUNS_OFFERED = 300
_NO_PATH = "none"
_DIAGNOSES_TOLD = 6


def show() -> None:
    with open_view("kernel", "Kernel", "How far one kernel is from the roof, why, and what it compiles to.") as view:
        runs = _runs_by_commit(view.project, view.filters, st.query_params.get("commit"))
        if not runs:
            _say_nothing_is_there(view)
            return
        choices = st.container(horizontal=True)
        run, previous = _choose_run(view, runs, choices)
        record = data.read_record(run.run_id)
        kernels = sorted({case.kernel for case in record.cases if view.filters.admits_case(case.case_id)})
        if not kernels:
            st.info(
                "The run of this commit has no such case: choose another commit, or widen the filters.",
                icon=":material/filter_alt:",
            )
            return
        kernel = view.link.choose("Kernel", kernels, parameter="kernel", place=choices)
        part = _narrowed(of_kernel(record, kernel), view)
        _show_where(view, record, kernel)
        _show_roofline(view, part)
        _show_diagnoses(view, record, part, kernel)
        _show_best(view, part)
        _show_static(part, previous, kernel)
        _show_autotuning(view, part)
        _show_counters(part)
        _show_accuracy(part)


def _runs_by_commit(project: str, filters: Filters, sha: str | None) -> dict[str, FleetRun]:
    """Of each commit the run that speaks for it, the newest commit first and what their branch has left last: one of a
    clean work tree before a dirty one, one by itself before a side of a pair.
    """
    runs = data.list_fleet_runs(
        project,
        limit=_RUNS_OFFERED,
        or_commit=sha,
        runner_classes=filters.runner_classes,
        branches=filters.branches,
    )
    found: dict[str, FleetRun] = {}
    # the runs come newest first, and sorting keeps that order within a kind
    for run in sorted(runs, key=lambda run: (run.is_dirty, run.is_paired)):
        found.setdefault(run.commit.sha, run)
    newest_first = sorted(found.items(), key=lambda item: (not item[1].is_unreachable, item[1].commit), reverse=True)
    return dict(newest_first)


def _say_nothing_is_there(view: View) -> None:
    if view.filters.is_narrow:
        st.info("No run is within the filters: widen them.", icon=":material/filter_alt_off:")
    else:
        say_how_to_begin("This project has no runs yet. Measure a benchmark file, then store its record:")


def _choose_run(view: View, runs: Mapping[str, FleetRun], place_: DeltaGenerator) -> tuple[FleetRun, FleetRun | None]:
    """The run of the chosen commit, and that of the commit before it on a runner of the same class, else on any."""
    sha = view.link.choose(
        "Commit",
        list(runs),
        parameter="commit",
        title=lambda sha: choice_text(runs[sha].commit, is_unreachable=runs[sha].is_unreachable),
        place=place_,
    )
    chosen = runs[sha]
    earlier = [
        run for run in runs.values() if run.commit < chosen.commit and run.is_unreachable <= chosen.is_unreachable
    ]
    alike = [run for run in earlier if run.runner_class == chosen.runner_class]
    return chosen, next(iter(alike or earlier), None)


def _narrowed(part: RunRecord, view: View) -> RunRecord:
    if not view.filters.is_narrow:
        return part
    admitted = view.filters.admits_case
    return part.model_copy(
        update={
            name: tuple(one for one in getattr(part, name) if admitted(one.case_id))
            for name in ("cases", "measurements", "accuracies", "static_facts", "counters")
        }
    )


def _show_where(view: View, record: RunRecord, kernel: str) -> None:
    st.caption(f"Measured on {code_span(record.environment.runner_class)}, {written(record.started_at, view.zone)}")
    lines = [one for one in record.source_lines if one.kernel == kernel]
    said = []
    if lines:
        said.append("Source: " + ", ".join(f"{_place(view, record, one)} {code_span(one.function)}" for one in lines))
    owners = view.filters.owners_of([kernel])
    if owners:
        said.append(f"Owner: {code_span(', '.join(owners))}")
    if said:
        st.markdown("  \n".join(said))


def _place(view: View, record: RunRecord, one: SourceLine) -> str:
    return linked(code_span(f"{one.file}:{one.line}"), view.sources.line(record.commit.sha, one.file, one.line))


def _show_roofline(view: View, part: RunRecord) -> None:
    st.subheader("Roofline", anchor=False)
    if not any(measurement.blocks for measurement in part.measurements):
        st.info("No case of this kernel was measured in this run.", icon=":material/show_chart:")
        return
    placed, moves = place(part.cases, part.measurements), moved(part.cases, part.measurements)
    dtypes = sorted({case.dtype for case in part.cases})
    published = datasheet_ceilings(part.environment.device_name, dtypes)
    own = [ceiling for ceiling in part.ceilings if ceiling.source == "measured"]
    if placed:
        path = _choose_path(view, part)
        show_figure(roofline_figure(placed, [*own, *published], view.zone, path), key=MAIN_FIGURE)
        _explain_roofline()
    if moves:
        _show_bandwidth(moves, [*own, *published], key="bandwidth" if placed else MAIN_FIGURE)
    if not placed and not moves:
        st.info(
            "By their model its cases neither compute nor move anything, so there is no roof to hold them to: what "
            "they take stands below.",
            icon=":material/show_chart:",
        )


def _show_bandwidth(moves: Sequence[Moved], ceilings: Sequence[Ceiling], *, key: str) -> None:
    """Of what computes nothing, which has no place on a roofline."""
    show_figure(bandwidth_figure(moves, ceilings), key=key)
    count = len({one.case.case_id for one in moves})
    more = f" The first {MAX_CASES_DRAWN} of {count} cases." if count > MAX_CASES_DRAWN else ""
    if moves[0].is_over_links:
        roofs = (
            "It computes nothing, so its figure is of what it moves: bytes that each link between ranks must carry, "
            "in a second. No run measures a ceiling of the links, so none is drawn."
        )
    else:
        roofs = (
            "It computes nothing, so its figure is of what it moves: bytes that the case at least reads and writes, in "
            "a second. Grey lines are this device's ceilings, measured in the same run; thin dotted ones are its "
            "datasheet's, where it is known. Beyond the dram line the data stayed in the cache."
        )
    st.caption(roofs + more)


def _explain_roofline() -> None:
    st.caption(
        "Grey lines are this device's ceilings, measured in the same run; thin dotted ones are its datasheet's, where "
        "it is known. How far a point lies below its line is the factor that could be won, and above the dram line the "
        "data stayed in the cache. FLOP and bytes are what the case at least needs, not what the hardware counted."
    )


def _choose_path(view: View, part: RunRecord) -> Series | None:
    """The times over commits of what the reader asks for; read only then."""
    timed = {f"{one.case_id} {one.implementation}": one for one in part.measurements if one.blocks}
    chosen = view.link.choose("Path over commits", [_NO_PATH, *timed], parameter="path")
    if chosen == _NO_PATH:
        return None
    measurement = timed[chosen]
    wanted = measurement.implementation, part.environment.runner_class
    history = data.read_case_history(part.project, measurement.case_id)
    return next((one for one in history if (one.key.implementation, one.key.runner_class) == wanted), None)


def _show_diagnoses(view: View, record: RunRecord, part: RunRecord, kernel: str) -> None:
    st.subheader("What limits it", anchor=False)
    admitted = {case.case_id for case in part.cases}
    diagnoses = [one for one in diagnoses_of(record, kernel) if one.case_id in admitted]
    if not diagnoses:
        st.text("Nothing of it was tried in this run, so there is nothing to diagnose.")
        return
    # in one piece, which a browser draws sooner than as many
    st.markdown("\n\n".join(_diagnosis_text(one) for one in diagnoses[:_DIAGNOSES_TOLD]))
    table = view.link.unfold("Every diagnosis as a table", parameter="diagnoses")
    if table is not None:
        with table:
            show_table(diagnosis_table(diagnoses))
    st.caption("Every finding with its evidence: `roofwatch diagnose` with the record and the case.")


def _diagnosis_text(one: Diagnosis) -> str:
    first = f"  \nTry: {one.findings[0].advice}" if one.findings else ""
    return (
        f"{code_span(one.case_id)} {code_span(one.implementation)}, limit **{one.limit}**: "
        f"{one.headline.quoted(code_span)}{first}"
    )


def _show_best(view: View, part: RunRecord) -> None:
    st.subheader("Best implementation by case", anchor=False)
    if not part.measurements:
        st.text("Nothing of it was timed in this run.")
        return
    order = Order.CASE
    if len({one.case_id for one in part.measurements}) > 1:
        chosen = view.link.choose("Order by", [*Order], parameter="order", place=st.container(width=220))
        order = Order(chosen)
    show_table(
        best_table(part.measurements, order),
        formats={"utilisation": metric("utilisation").format},
        columns={
            "lead": Column(help="How much longer the next one takes, from pairs of blocks."),
            "beyond noise?": Column(
                help="The verdict of the same comparison that judges a pull request, with its threshold."
            ),
        },
    )


def _show_static(part: RunRecord, previous: FleetRun | None, kernel: str) -> None:
    st.subheader("Compiled code by target", anchor=False)
    if not part.static_facts:
        st.text("No compiled code is stored for this kernel in this run.")
        return
    before = None if previous is None else data.read_kernel_of_run(previous.run_id, kernel)
    earlier = None if before is None else before.static_facts
    table, common = without_constants(static_table(part.static_facts, earlier))
    show_table(
        table,
        formats={"occupancy": metric("theoretical_occupancy").format},
        columns={title: Column(help=text) for title, text in static_help().items()},
    )
    if common:
        st.caption("In every row: " + ", ".join(f"{name} {code_span(value)}" for name, value in common.items()) + ".")
    if previous is not None:
        st.caption(
            f"*changed* is against {code_span(commit_text(previous.commit))}, the commit measured before this one. "
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
    st.subheader("What the autotuner tried", anchor=False)
    chosen = tuned[view.link.choose("Choice", list(tuned), parameter="tuned")]
    landscape = landscape_html(chosen, is_dark=is_page_dark())
    if landscape is None:
        _show_tried(chosen)
        return
    st.html(landscape)
    st.caption(
        "Each cell is the fastest configuration with these values of the two parameters that tell most of the time: "
        "the nearer to the fastest of all, the stronger its colour. ★ holds the one that was chosen, ✕ what could not "
        "run."
    )
    every = view.link.unfold("Every configuration by its time", parameter="configurations")
    if every is not None:
        with every:
            _show_tried(chosen)


def _show_tried(tuned: Autotuning) -> None:
    show_figure(autotune_figure(tuned), key="autotune")
    if len(tuned.timings) > MAX_ROWS:
        st.caption(f"The fastest {MAX_ROWS} of {len(tuned.timings)} configurations.")


def _show_counters(part: RunRecord) -> None:
    st.subheader("Hardware counters", anchor=False)
    if not part.counters:
        st.text("None was read in this run. On a machine with Nsight Compute: roofwatch ncu KERNEL")
        return
    show_table(counters_table(part))
    findings = profiler_table(part)
    if not findings.empty:
        show_table(
            findings,
            formats={"saves at most": "{:.0%}".format},
        )


def _show_accuracy(part: RunRecord) -> None:
    st.subheader("Accuracy against the float64 reference", anchor=False)
    if not part.accuracies:
        st.text("No accuracy check is stored for this kernel in this run.")
        return
    error, largest = metric("rmse_ratio"), metric("max_abs_error")
    formats = {error.title: error.format, "eager's error": error.format, largest.title: largest.format}
    show_table(
        accuracy_table(part.accuracies),
        formats={**formats, "share of eager's": "{:.2f}×".format},
    )
    st.caption(
        "A tensor is held against what the eager implementation of the same precision does, within the caps of its "
        "dtype; where it fails, the message has the limit."
    )


if __name__ == "__main__":
    show()
