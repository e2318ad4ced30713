"""One run: its environment, failures, timelines, time spent and files."""

from collections import Counter
from collections.abc import Iterable
from datetime import tzinfo
from html import escape
from io import BytesIO
from uuid import UUID

import streamlit as st

from roofwatch.ci.messages import count_of
from roofwatch.collector.device.health import describe_health
from roofwatch.collector.profiling.activities import DeviceActivity
from roofwatch.collector.profiling.trace import Trace
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.runs import (
    MAX_KERNELS,
    MAX_SHOWN,
    device_timeline_figure,
    run_timeline_figure,
)
from roofwatch.dashboard.components.imported_values import show_imported_values
from roofwatch.dashboard.components.page import MAIN_FIGURE, View
from roofwatch.dashboard.components.run_tables import (
    show_ceilings,
    show_environment,
    show_failures,
    show_launches,
    show_profile,
    show_spent_time,
)
from roofwatch.dashboard.components.table import SUBJECT, Column, show_numbers, show_table
from roofwatch.dashboard.wording import (
    code_span,
    duration_text,
    energy_text,
    escaped,
    outcome_text,
    shortened,
    written,
)
from roofwatch.db.errors import AgedError
from roofwatch.db.queries import questions
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import read_document
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import format_bytes, format_ns, metric
from roofwatch.model.record import ArtefactKind, RunRecord
from roofwatch.model.results import CaseProfile
from roofwatch.model.stored_results import FleetRun, StoredArtefact

_RUNS_OFFERED = 100
_MAX_READ_BYTES = 64 * 2**20
"""Maximum size of a downloadable file, which is held in memory."""
_MAX_DRAWN_BYTES = 16 * 2**20
"""Maximum size of a stored trace; a larger one opens faster in Perfetto."""
_MAX_UNPACKED_BYTES = 256 * 2**20


def show_run(view: View, run_id: str) -> None:
    """Show a run; if it is not stored any more, say so and keep the address."""
    runs = view.list_runs(
        limit=_RUNS_OFFERED,
        or_run=run_id,
        with_quarantine=True,
    )
    # old runs are read too, by their id
    run = next((run for run in runs if run.run_id == run_id), None)
    view.link.keep("run", run_id)
    if run is None:
        name = escaped(shortened(run_id))
        st.html(
            f"<p class=rw-note role=status>Run <code>{name}</code> is not stored any more, or the "
            "filters hide it. The address is kept.</p>"
        )
        return
    try:
        whole_record = data.ask(questions.load_record, UUID(run_id))
        record = view.filters.narrowed(whole_record)
    except AgedError as error:
        _show_statistics(view, run, error)
        return
    _show_title(view, run)
    _show_head(view, run, record)
    if run.is_quarantined:
        st.warning(
            "This run is in quarantine: it is from an untrusted source. It is shown here only, and "
            "does not count anywhere until it is released."
        )
    else:
        _show_comparison(view, run, runs)
    if record.foreign_code is not None:
        module = code_span(record.foreign_code.module)
        st.warning(
            f"Not the code of this commit: {module} was loaded from {record.foreign_code.place}. "
            "The run is no part of any history."
        )
    _show_outcomes(record)
    show_imported_values(record)
    if record.environment.is_imported:
        st.caption("Timeline, profile, ceilings and files need a run that roofwatch measured.")
        return
    _show_timeline(record, view.zone)
    show_spent_time(run)
    show_launches(record)
    _show_profile(view, record)
    show_ceilings(record)
    view.link.unfold("Environment", lambda: show_environment(record), parameter="environment")
    _show_artefacts(view, record)


def _show_statistics(view: View, run: FleetRun, reason: AgedError) -> None:
    """Show what retention leaves of a run: the statistics of each case."""
    _show_title(view, run)
    st.info(code_span(str(reason)), icon=":material/inventory_2:")
    run_id = UUID(run.run_id)
    detail, _ = data.ask(
        questions.read_runs,
        run_id,
        run_id,
    )
    cases = [case for case in detail.cases if view.filters.admits_case(case.case_id)]
    show_table(
        cases,
        *SUBJECT,
        Column(
            "outcome",
            lambda case: case.outcome,
            outcome_text,
        ),
        Column(
            "median",
            lambda case: case.median_ns,
            format_ns,
        ),
        Column(
            "first quartile",
            lambda case: case.low_ns,
            format_ns,
        ),
        Column(
            "third quartile",
            lambda case: case.high_ns,
            format_ns,
        ),
        Column("samples", lambda case: case.sample_count),
        Column(
            "utilisation",
            lambda case: case.utilisation,
            metric("utilisation").format,
        ),
        omit_empty=True,
        key=MAIN_FIGURE,
    )


def _show_title(view: View, run: FleetRun) -> None:
    runner_class = escaped(run.runner_class)
    back = view.anchor(f"← {runner_class}", "machines", runner=run.runner_class)
    started = written(run.started_at, view.zone)
    commit = view.commit_html(run.commit)
    dirty = ""
    if run.is_dirty:
        dirty = " · with uncommitted changes"
    st.html(
        f"{back}<h2 class=rw-title>Run of {started}</h2><p>{commit}{dirty} · on {runner_class}</p>"
    )


def _show_head(view: View, run: FleetRun, record: RunRecord) -> None:
    counts = _outcome_counts(record)
    failed = sum(count for outcome, count in counts.items() if outcome.is_failure)
    ok_count = counts.get(Outcome.OK, 0)
    measured = f"{ok_count} of {counts.total()}"
    tool = record.environment.imported_from
    if tool is not None:
        show_numbers(
            ("Values", measured, None),
            ("Failed", failed, None),
        )
        st.caption(
            f"Imported from {code_span(tool)}. Machine, driver, toolchain, duration and energy are "
            f"unknown: the file does not have them."
        )
        return
    energies: list[float] = []
    if record.telemetry is not None:
        # the counter may be missing in single readings
        energies = [joules for joules in record.telemetry.energy_j if joules is not None]
    energy = "n/a"
    if energies:
        energy = energy_text(max(energies))
    started = written(record.started_at, view.zone)
    show_numbers(
        (
            "Duration",
            duration_text(run.wall_ns),
            f"From {started} on.",
        ),
        ("Measured", measured, None),
        ("Failed", failed, None),
        (
            "Device energy",
            energy,
            "From the device's counter, first to last reading.",
        ),
    )


def _outcome_counts(record: RunRecord) -> Counter[Outcome]:
    if record.environment.is_imported:
        return Counter(value.outcome for value in record.imported)
    return Counter(measurement.outcome for measurement in record.measurements)


def _show_comparison(
    view: View,
    head_run: FleetRun,
    runs: Iterable[FleetRun],
) -> None:
    """Link to a comparison with the previous run on the same runner class."""
    earlier: list[FleetRun] = []
    for run in runs:
        is_earlier = run.started_at < head_run.started_at
        is_same_class = run.runner_class == head_run.runner_class
        is_same_commit = run.commit.sha == head_run.commit.sha
        # a run on the branch is not compared with one that left it
        is_on_branch = run.is_unreachable <= head_run.is_unreachable
        is_trusted = not run.is_quarantined
        if is_earlier and is_same_class and not is_same_commit and is_on_branch and is_trusted:
            earlier.append(run)
    if not earlier:
        st.caption(
            "There is no recent run of an earlier commit on this runner class to compare with."
        )
        return
    # by the time of the run: a commit may be measured late
    previous = max(earlier, key=lambda run: run.started_at)
    previous_sha = escape(previous.commit.short_sha)
    link = view.anchor(
        f"Compare with the previous run, of {previous_sha}",
        "compare",
        base=previous.commit.sha,
        head=head_run.commit.sha,
        runner=head_run.runner_class,
    )
    st.html(f"<p>{link}</p>")


def _show_outcomes(record: RunRecord) -> None:
    st.header("Outcomes and errors", anchor=False)
    counts = _outcome_counts(record)
    if not counts:
        st.info("This run timed nothing.")
    else:
        parts: list[str] = []
        for outcome, count in counts.most_common():
            outcome_words = outcome_text(outcome)
            parts.append(f"{count} {outcome_words}")
        st.text(", ".join(parts))
    show_failures(record)


def _show_timeline(record: RunRecord, zone: tzinfo) -> None:
    st.header("Device timeline", anchor=False)
    telemetry = record.telemetry
    has_readings = telemetry is not None and bool(telemetry.offset_ms)
    has_samples = any(measurement.blocks for measurement in record.measurements)
    if not has_readings and not has_samples:
        st.info("There are no device readings and no samples.")
        return
    st.plotly_chart(run_timeline_figure(record, zone), key=MAIN_FIGURE)
    st.caption(
        "One bar per block of samples; crossed: throttled or contended. "
        f"The {MAX_KERNELS} longest kernels are drawn; of thousands of blocks, crossed ones and "
        f"the longest. "
        "The device is read 20 times per second; lines keep their extremes."
    )
    if telemetry is None:
        st.caption("No GPU telemetry.")
        return
    health = describe_health(telemetry.health)
    if health:
        st.caption(f"Before the run: {health}.")
    if telemetry.message:
        st.caption(f"Not all was read: {code_span(telemetry.message)}")


def _show_profile(view: View, record: RunRecord) -> None:
    """Show the kernels that calls of one case launched, with their share of device time."""
    st.header("Kernels launched", anchor=False)
    if not record.profiles:
        st.text("Not profiled. Use: roofwatch run --profile")
        return
    profiles: dict[str, CaseProfile] = {}
    for case_profile in record.profiles:
        name = f"{case_profile.case_id} {case_profile.implementation}"
        profiles[name] = case_profile
    chosen = view.link.choose(
        "Profiled",
        list(profiles),
        parameter="profiled",
    )
    profile = profiles[chosen]
    st.text(_profile_text(profile))
    show_profile(profile)


def _profile_text(profile: CaseProfile) -> str:
    calls = count_of(profile.call_count, "call")
    span = format_ns(profile.span_ns)
    text = f"{calls} in {span}"
    if profile.span_ns:
        idle_share = 1 - profile.busy_ns / profile.span_ns
        text += f", idle {idle_share:.1%} of it"
    if profile.launch_delay_ns is not None:
        delay = format_ns(profile.launch_delay_ns)
        text += f"; from the launch call to the start of its kernel, {delay}"
    return text


def _show_artefacts(view: View, record: RunRecord) -> None:
    """Show device activities from traces, and all files."""
    if not record.artefacts:
        return
    stored = data.ask(questions.list_artefacts, record.run_id)
    if not stored:
        return

    def storage_text(stored_file: StoredArtefact) -> str:
        if stored_file.is_stored:
            return "stored"
        return "not sent yet"

    st.header("Profiles and other files", anchor=False)
    show_table(
        stored,
        Column("file", lambda stored_file: stored_file.name),
        Column("kind", lambda stored_file: stored_file.kind.replace("_", " ")),
        Column(
            "size",
            lambda stored_file: stored_file.size_bytes,
            format_bytes,
        ),
        Column("content", storage_text),
    )
    readable: dict[str, StoredArtefact] = {}
    for stored_file in stored:
        if stored_file.is_stored:
            readable[stored_file.name] = stored_file
    if not readable:
        st.text("Their content was not sent; roofwatch push sends it with the record.")
        return
    name = view.link.choose(
        "File",
        list(readable),
        parameter="file",
    )
    chosen = readable[name]
    if chosen.size_bytes > _MAX_READ_BYTES:
        limit_mib = _MAX_READ_BYTES // 2**20
        st.text(
            f"It is larger than {limit_mib} MiB, too large for a page. The API has it: "
            f"GET /v1/runs/{record.run_id}/artefacts/{chosen.sha256}"
        )
        return
    # read on request only, because it takes server memory
    if view.link.switch("Read it", parameter="read"):
        _show_artefact(record, chosen)


def _show_artefact(record: RunRecord, chosen: StoredArtefact) -> None:
    file = str(record.run_id), chosen.sha256
    (content,) = data.read_contents(file)
    st.download_button(
        "Download",
        content,
        file_name=chosen.name,
        mime="application/octet-stream",
    )
    if chosen.kind != ArtefactKind.TRACE:
        return
    st.caption(
        "Open a trace in Perfetto: ui.perfetto.dev, *Open trace file*. It stays on your machine."
    )
    if chosen.size_bytes > _MAX_DRAWN_BYTES:
        limit_mib = _MAX_DRAWN_BYTES // 2**20
        st.text(f"It is larger than {limit_mib} MiB, so it is not drawn here.")
        return
    try:
        activities = _activities_of(content, chosen.name)
    except (ProfileError, ValueError) as error:
        reason = code_span(str(error))
        st.warning(f"It cannot be drawn: {reason}")
        return
    if not activities:
        st.info("The trace has no kernel, copy or fill on a device.")
        return
    st.plotly_chart(device_timeline_figure(activities), key="trace")
    if len(activities) > MAX_SHOWN:
        st.caption(
            f"The {MAX_SHOWN:,} longest of {len(activities):,} activities; Perfetto shows all."
        )


def _activities_of(content: bytes, name: str) -> list[DeviceActivity]:
    """Read kernels, copies and fills of a torch.profiler trace, gzipped or not."""
    document = read_document(BytesIO(content), max_bytes=_MAX_UNPACKED_BYTES)
    trace = Trace.read(document, name)
    if trace is None:
        raise ProfileError(f"{name}: not a trace of torch.profiler")
    return trace.activities
