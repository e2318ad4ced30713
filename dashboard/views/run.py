"""One run: what it was measured on, how it ended, what the device did meanwhile, and where its time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo

import streamlit as st

from roofwatch.collector.profiling.source import ProfileError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.metrics import format_bytes, format_ns
from roofwatch.collector.record.record import ArtefactKind, RunRecord
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.device_timeline import MAX_SHOWN, device_timeline_figure
from roofwatch.dashboard.charts.run_timeline import run_timeline_figure
from roofwatch.dashboard.charts.spent_time import spent_time_figure
from roofwatch.dashboard.figure import show_figure
from roofwatch.dashboard.filters import Filters
from roofwatch.dashboard.frame import MAIN_FIGURE, View, open_view, say_how_to_begin
from roofwatch.dashboard.panels.profile import show_profile
from roofwatch.dashboard.profile_trace import activities_of
from roofwatch.dashboard.quantities import duration_text, energy_text
from roofwatch.dashboard.source_links import linked
from roofwatch.dashboard.tables.markup import Column
from roofwatch.dashboard.tables.run import (
    artefacts_table,
    ceilings_table,
    environment_table,
    failures_of,
    launches_table,
)
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.wording import choice_text, code_span, outcome_text, shortened
from roofwatch.dashboard.zone import written
from roofwatch.db.artefacts import StoredArtefact
from roofwatch.db.queries.fleet_values import FleetRun

_RUNS_OFFERED = 100
# of a file that is offered to take away: it is held in the server's memory
_MAX_READ_BYTES = 64 * 2**20
# of a trace, as stored: a larger one opens faster in Perfetto
_MAX_DRAWN_BYTES = 16 * 2**20


def show() -> None:
    with open_view("run", "Run", "What one run measured, on what, and where its time went.") as view:
        zone = view.zone
        runs = _runs_by_id(view.project, view.filters, st.query_params.get("run"))
        if not runs:
            _say_nothing_is_there(view)
            return
        run_id = view.link.choose(
            "Run",
            list(runs),
            parameter="run",
            title=lambda run_id: _title(runs[run_id], zone),
            default=_first_to_look_at(runs),
        )
        record = _narrowed(data.read_record(run_id), view)
        _show_head(view, record)
        if runs[run_id].is_quarantined:
            st.warning(
                "This run is in quarantine: nobody vouches for it. It is shown here alone, and counts for no trend, "
                "comparison, baseline or judgement until somebody releases it.",
                icon=":material/gpp_maybe:",
            )
        else:
            _show_comparison(view, record, runs[run_id], runs.values())
        _show_outcomes(record)
        _show_timeline(record, zone)
        _show_spent_time(record)
        _show_launches(record)
        show_profile(view, record)
        _show_ceilings(record)
        _show_environment(view, record)
        _show_artefacts(view, record)


def _runs_by_id(project: str, filters: Filters, run_id: str | None) -> dict[str, FleetRun]:
    """The newest first, and one that is asked for however old it is."""
    runs = data.list_fleet_runs(
        project,
        limit=_RUNS_OFFERED,
        or_run=run_id,
        runner_classes=filters.runner_classes,
        branches=filters.branches,
        with_quarantine=True,
    )
    return {run.run_id: run for run in runs}


def _first_to_look_at(runs: Mapping[str, FleetRun]) -> str | None:
    """The newest that somebody vouches for, or else the newest."""
    return next((run_id for run_id, run in runs.items() if not run.is_quarantined), next(iter(runs), None))


def _say_nothing_is_there(view: View) -> None:
    if view.filters.is_narrow:
        st.info("No run is within the filters: widen them.", icon=":material/filter_alt_off:")
    else:
        say_how_to_begin("This project has no runs yet. Measure a benchmark file, then store its record:")


def _title(run: FleetRun, zone: tzinfo) -> str:
    mark = "⊘ quarantined  " if run.is_quarantined else ""
    return f"{mark}{written(run.started_at, zone)}  {choice_text(run.commit, is_unreachable=run.is_unreachable)}"


def _narrowed(record: RunRecord, view: View) -> RunRecord:
    """What the filters admit of its results."""
    if not view.filters.is_narrow:
        return record
    return record.model_copy(
        update={
            "measurements": tuple(one for one in record.measurements if view.filters.admits_case(one.case_id)),
            "accuracies": tuple(one for one in record.accuracies if view.filters.admits_case(one.case_id)),
            "static_facts": tuple(one for one in record.static_facts if view.filters.admits_case(one.case_id)),
            "profiles": tuple(one for one in record.profiles if view.filters.admits_case(one.case_id)),
        }
    )


def _show_head(view: View, record: RunRecord) -> None:
    commit = record.commit
    dirty = ", with uncommitted changes" if commit.is_dirty else ""
    st.markdown(
        f"{linked(code_span(commit.sha[:8]), view.sources.commit(commit.sha))} "
        f"{code_span(shortened(commit.subject) or 'without a subject')} by "
        f"{code_span(shortened(commit.author) or 'nobody named')}{dirty}, on "
        f"{code_span(record.environment.runner_class)}"
    )
    counts = _outcome_counts(record)
    failed = sum(count for outcome, count in counts.items() if outcome not in {Outcome.OK, Outcome.UNSUPPORTED})
    wall_ns = (record.finished_at - record.started_at).total_seconds() * 1e9
    energies = [joules for joules in (record.telemetry.energy_j if record.telemetry else ()) if joules is not None]
    columns = st.columns(4)
    columns[0].metric(
        "Took", duration_text(wall_ns), border=True, help=f"From {written(record.started_at, view.zone)} on."
    )
    columns[1].metric("Measured", f"{counts.get(Outcome.OK, 0)} of {counts.total()}", border=True)
    columns[2].metric("Failed", failed, border=True)
    columns[3].metric(
        "Energy of the device",
        energy_text(max(energies)) if energies else "not read",
        border=True,
        help="By the device's own counter, from the first reading to the last.",
    )


def _outcome_counts(record: RunRecord) -> Counter[Outcome]:
    return Counter(measurement.outcome for measurement in record.measurements)


def _show_comparison(view: View, record: RunRecord, own: FleetRun, runs: Iterable[FleetRun]) -> None:
    """A link to the run before it on a runner of the same class: on its branch, unless it is no longer itself."""
    earlier = [
        run
        for run in runs
        if run.started_at < own.started_at
        and run.runner_class == own.runner_class
        and run.commit.sha != own.commit.sha
        and not run.is_quarantined
        and run.is_unreachable <= own.is_unreachable
    ]
    if not earlier:
        st.caption("No earlier run of another commit on this runner class is among the latest, to compare it with.")
        return
    previous = max(earlier, key=lambda run: run.started_at)
    st.page_link(
        "views/compare.py",
        label=f"Compare with the run before it, of {previous.commit.short_sha}",
        icon=":material/compare_arrows:",
        query_params={"project": view.project, "base": previous.commit.sha, "head": record.commit.sha},
    )


def _show_outcomes(record: RunRecord) -> None:
    st.subheader("Outcomes and errors", anchor=False)
    counts = _outcome_counts(record)
    if not counts:
        st.info("This run timed nothing.", icon=":material/timer_off:")
    else:
        st.text(", ".join(f"{count} {outcome_text(outcome)}" for outcome, count in counts.most_common()))
    failures = failures_of(record)
    if not failures.empty:
        show_table(failures)
    elif counts:
        st.success("Everything that was tried worked.", icon=":material/check:")


def _show_timeline(record: RunRecord, zone: tzinfo) -> None:
    st.subheader("The device while the cases ran", anchor=False)
    telemetry = record.telemetry
    has_readings = telemetry is not None and bool(telemetry.offset_ms)
    if not has_readings and not any(measurement.blocks for measurement in record.measurements):
        st.info("There is neither a reading of the device nor a block of samples to draw.", icon=":material/timeline:")
        return
    show_figure(run_timeline_figure(record, zone), key=MAIN_FIGURE)
    st.caption(
        "Each bar is one block of samples, as long as its samples together; a crossed one says less than others, since "
        "the device was held back or shared. Of thousands of blocks the longest of each moment is drawn, crossed ones "
        "first. Of the readings 20 a second are taken; lines keep their extremes."
    )
    if telemetry is None:
        st.caption("Nobody watched the device: on a CPU, and with an older harness, nothing is read.")
    elif telemetry.message:
        st.caption(f"Not all was read: {code_span(telemetry.message)}")


def _show_spent_time(record: RunRecord) -> None:
    st.subheader("Where its time went", anchor=False)
    if not record.spent_ns:
        st.text("The record does not say: its harness is older than this.")
        return
    wall_ns = (record.finished_at - record.started_at).total_seconds() * 1e9
    show_figure(spent_time_figure(record.spent_ns, wall_ns), key="spent")


def _show_launches(record: RunRecord) -> None:
    launches = launches_table(record)
    if launches.empty:
        return
    st.subheader("Host and memory of a launch", anchor=False)
    formats: dict[str, Callable[[float], str]] = {
        "host time": format_ns,
        "delay": format_ns,
        "allocated": format_bytes,
        "reserved": format_bytes,
        "allocations": "{:,.0f}".format,
        "fragmentation": "{:.1%}".format,
    }
    show_table(
        launches,
        formats={name: write for name, write in formats.items() if name in launches},
        columns={
            "host time": Column(help="Median time that the host takes to issue a launch, without waiting for it."),
            "delay": Column(help="From the call to the start of its first kernel."),
            "allocated": Column(help="The most that tensors held at once, inputs among them."),
            "reserved": Column(help="The most that torch's allocator held of the device."),
            "allocations": Column(help="Blocks of memory that one launch asks for."),
            "fragmentation": Column(help="Share of what is reserved that lies free beside memory in use."),
        },
    )


def _show_ceilings(record: RunRecord) -> None:
    st.subheader("Ceilings", anchor=False)
    ceilings = ceilings_table(record)
    if ceilings.empty:
        st.text("No ceiling was measured in this run.")
        return
    show_table(ceilings, formats={"share of it": "{:.1%}".format})


def _show_environment(view: View, record: RunRecord) -> None:
    table = view.link.unfold("Environment", parameter="environment")
    if table is not None:
        with table:
            show_table(environment_table(record))


def _show_artefacts(view: View, record: RunRecord) -> None:
    """Kernels on the device by the run's traces, and every file to take away."""
    stored = data.list_artefacts(str(record.run_id)) if record.artefacts else []
    st.subheader("Profiles and other files", anchor=False)
    if not stored:
        st.text("No file belongs to this run. Profile one of its cases: roofwatch profile -- python program.py")
        return
    show_table(artefacts_table(stored), formats={"size": format_bytes})
    here = [one for one in stored if one.is_stored]
    if not here:
        st.text("Their content was not sent: roofwatch push sends it with the record.")
        return
    name = view.link.choose("File", [one.name for one in here], parameter="file")
    chosen = next(one for one in here if one.name == name)
    if chosen.size_bytes > _MAX_READ_BYTES:
        st.text(
            f"It is larger than {_MAX_READ_BYTES // 2**20} MiB, which is more than a page carries. The API gives it: "
            f"GET /v1/runs/{record.run_id}/artefacts/{chosen.sha256}"
        )
        return
    # read when it is asked for: it takes memory of the server
    if view.link.switch("Read it", parameter="read"):
        _show_artefact(record, chosen)


def _show_artefact(record: RunRecord, chosen: StoredArtefact) -> None:
    content = data.read_artefact(str(record.run_id), chosen.sha256)
    is_trace = chosen.kind == ArtefactKind.TRACE
    st.download_button(
        "Download", content, file_name=chosen.name, mime="application/octet-stream", icon=":material/download:"
    )
    if not is_trace:
        return
    st.caption("A trace opens in Perfetto: at ui.perfetto.dev, *Open trace file*; nothing of it leaves your machine.")
    if chosen.size_bytes > _MAX_DRAWN_BYTES:
        st.text(f"It is larger than {_MAX_DRAWN_BYTES // 2**20} MiB, so it is not drawn here.")
        return
    try:
        activities = activities_of(content, chosen.name)
    except ProfileError as error:
        st.warning(f"It cannot be drawn: {code_span(str(error))}", icon=":material/broken_image:")
        return
    if not activities:
        st.info("The trace has no kernel, copy or fill on a device.", icon=":material/timeline:")
        return
    show_figure(device_timeline_figure(activities), key="trace")
    if len(activities) > MAX_SHOWN:
        st.caption(f"The {MAX_SHOWN:,} longest of {len(activities):,} activities; Perfetto shows all.")


if __name__ == "__main__":
    show()
