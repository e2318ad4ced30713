"""The evidence of one change point, base and head side by side."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import streamlit as st

from roofwatch.ci.ab.launches import LaunchEvidence
from roofwatch.ci.ab.side_by_side import SideBySide, code_diff, side_by_side
from roofwatch.ci.judge.change import Change
from roofwatch.ci.messages import Remark, count_of
from roofwatch.ci.static.comparison import CodeEvidence, StaticChange, moved_facts_of, word_of
from roofwatch.ci.static.facts import fact_values
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.samples import samples_html
from roofwatch.dashboard.components.code_table import FACT_TITLES
from roofwatch.dashboard.components.markup import show_markup
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import (
    code_span,
    natural_order,
    outcome_text,
    percent,
    transition_text,
)
from roofwatch.db.errors import StoreError
from roofwatch.model.history import ChangePoint
from roofwatch.model.machine import DeviceState
from roofwatch.model.measurement import Measurement, median_of
from roofwatch.model.metrics import Layer, format_counter, format_counter_name, format_ns, metric
from roofwatch.model.record import ArtefactKind, RunRecord
from roofwatch.model.verdict import Verdict

_DIFF_LINES = 400
_DIFF_LINES_UNFOLDED, _DIFF_PX = 24, 480
_LARGEST_DISASSEMBLY_BYTES = 4 * 2**20


def show_evidence(view: View, change: ChangePoint) -> None:
    """Show what both runs know about the case and implementation; the layer that changed comes
    first.
    """
    series = change.series
    sides = data.read_sides(change)
    if sides is None:
        _show_levels(change)
        return
    base, head = sides
    comparison = side_by_side(
        base,
        head,
        series.case_id,
        series.implementation,
    )
    for refusal in comparison.refusals:
        reason = _inert(refusal)
        st.warning(f"Not comparable: {reason}", icon=":material/block:")
    # the reader looks for what changed first
    if series.definition.layer is Layer.STATIC:
        _show_code(view, comparison, base, head)
        _show_samples(comparison)
    else:
        _show_samples(comparison)
        _show_code(view, comparison, base, head)
    # what a profile shows, if both sides were profiled
    if comparison.launches:
        _show_launches(comparison.launches)
    if comparison.counters:
        _show_counters(comparison.counters)
    conditions = condition_rows(comparison.base, comparison.head)
    _show_base_and_head("Clocks and throttling", conditions)
    environment = {entry.name: entry.values for entry in comparison.environment}
    _show_base_and_head("Environment", environment)
    for choice in comparison.choices:
        st.markdown(_inert(choice))
    notes: list[str] = []
    if not comparison.code:
        notes.append(_same_code(comparison.unchanged_code_count))
    if not comparison.counters:
        has_counters = all(_has_counters(record, series.implementation) for record in sides)
        if has_counters:
            notes.append("No counter changed.")
        else:
            notes.append("No counter data.")
    if not conditions:
        notes.append("No GPU telemetry.")
    if not environment:
        notes.append("The same machine, driver and toolchain on both sides.")
    st.caption(" ".join(notes))


def _has_counters(record: RunRecord, implementation: str) -> bool:
    return any(counters.implementation == implementation for counters in record.counters)


def _same_code(function_count: int) -> str:
    if function_count == 0:
        return "No compiled code."
    return f"The machine code of {function_count} compiled functions is the same."


def _show_levels(change: ChangePoint) -> None:
    """Show the levels of both sides, which are all that is stored of them."""
    title = code_span(change.series.definition.title)
    levels = code_span(transition_text(change))
    st.markdown(f"{title}, base and head: {levels}.")
    st.caption(
        "Samples, compiled code, counters, machine, driver and toolchain of both sides are not "
        "stored: another tool measured them, or a run is no longer stored."
    )


def _inert(remark: Remark) -> str:
    return remark.quoted(code_span)


def _show_samples(comparison: SideBySide) -> None:
    st.subheader("Times, base and head", anchor=False)
    base_text = _side_text(comparison.base)
    head_text = _side_text(comparison.head)
    summary = f"Base: {base_text}. Head: {head_text}."
    timed_sides: dict[str, Measurement] = {}
    if comparison.base is not None and comparison.base.samples_ns:
        timed_sides["base"] = comparison.base
    if comparison.head is not None and comparison.head.samples_ns:
        timed_sides["head"] = comparison.head
    if not timed_sides:
        st.markdown(f"Neither side has a time. {summary}")
        return
    show_markup(samples_html(timed_sides), key="distribution")
    st.caption(f"{summary} Each launch is a line, each block's median a dot; left is faster.")


def _side_text(measurement: Measurement | None) -> str:
    if measurement is None:
        return "no samples stored"
    if measurement.median_ns is None:
        text = outcome_text(measurement.outcome)
        if measurement.message:
            text += f" {code_span(measurement.message)}"
        return text
    median = format_ns(measurement.median_ns)
    # how far a median can be trusted depends on its blocks
    blocks = count_of(len(measurement.blocks), "block")
    sample_count = len(measurement.samples_ns)
    return f"median {median} of {blocks}, {sample_count} samples"


def condition_rows(*sides: Measurement | None) -> dict[str, list[str]]:
    """Describe clocks, power, temperature and throttling on each side; empty if neither was
    monitored.
    """
    states = [_states_of(side) for side in sides]
    rows: dict[str, list[str]] = {}
    for (name, unit), reading_of in _READINGS.items():
        readings = [reading_of(of_side) for of_side in states]
        if any(readings):
            rows[name] = [_reading_text(value, unit) for value in readings]
    if rows:
        rows["throttled by"] = [_reasons_text(of_side) for of_side in states]
        rows["blocks throttled or contended"] = [_degraded_text(side) for side in sides]
    return rows


def _reading_text(value: float | None, unit: str) -> str:
    if not value:
        return "not read"
    return f"{value:,.0f} {unit}"


def _highest_temperature_c(states: Sequence[DeviceState]) -> float | None:
    temperatures_c = [state.temperature_c or 0 for state in states]
    return max(temperatures_c, default=None)


_READINGS: Mapping[tuple[str, str], Callable[[Sequence[DeviceState]], float | None]] = {
    ("SM clock", "MHz"): lambda states: median_of(state.sm_clock_mhz for state in states),
    ("memory clock", "MHz"): lambda states: median_of(state.memory_clock_mhz for state in states),
    ("power", "W"): lambda states: median_of(state.power_w for state in states),
    ("highest temperature", "°C"): _highest_temperature_c,
}
"""What the device reported over the blocks of a measurement, by name and unit."""


def _states_of(side: Measurement | None) -> list[DeviceState]:
    blocks = getattr(side, "blocks", ())
    return [block.device_state for block in blocks if block.device_state is not None]


def _reasons_text(states: Iterable[DeviceState]) -> str:
    reasons: set[str] = set()
    for state in states:
        reasons.update(state.clock_event_reasons)
    if not reasons:
        return "nothing"
    return ", ".join(sorted(reasons)).replace("_", " ")


def _degraded_text(side: Measurement | None) -> str:
    degraded_count = sum(bool(state.degraded_by) for state in _states_of(side))
    block_count = len(getattr(side, "blocks", ()))
    return f"{degraded_count} of {block_count}"


def _show_base_and_head(title: str, rows: Mapping[str, Sequence[str]]) -> None:
    if not rows:
        return
    st.subheader(title, anchor=False)
    show_table(
        rows,
        Column("", str),
        Column("base", lambda name: rows[name][0]),
        Column("head", lambda name: rows[name][1]),
    )


def _show_code(
    view: View,
    comparison: SideBySide,
    base: RunRecord,
    head: RunRecord,
) -> None:
    if not comparison.code:
        return
    st.subheader("Machine code", anchor=False)
    changes = worst_first(comparison.code)
    show_table(changes, *code_columns(comparison.code))
    targets_of: dict[str, list[str]] = {}
    for judged in changes:
        if judged.detail is not None:
            remark = _inert(judged.detail)
            targets_of.setdefault(remark, []).append(judged.subject.target)
    for remark, targets in targets_of.items():
        targets_text = code_span(", ".join(targets))
        st.markdown(f"{targets_text}: {remark}")
    count = comparison.unchanged_code_count
    if count:
        st.caption(f"The machine code of {count} more compiled functions is the same.")
    _show_disassembly(view, base, head)


def code_columns(changes: Sequence[StaticChange]) -> list[Column[StaticChange]]:
    """Return the columns of changed code: what changed, and each fact that differs,
    as `68 → 232`.
    """
    moved: set[str] = set()
    for change in changes:
        moved.update(moved_facts_of(change))
    parts = {change.subject.part for change in changes}

    def verdict(change: StaticChange) -> str:
        # a change that is neither better nor worse has no verdict
        if change.verdict is Verdict.UNCHANGED:
            return word_of(change)
        return change.verdict

    def fact_column(name: str) -> Column[StaticChange]:
        return Column(FACT_TITLES[name], lambda change: _fact_text(change, name))

    columns: list[Column[StaticChange]] = [
        Column("target", lambda change: change.subject.target),
    ]
    # the only function needs no name
    if len(parts) > 1:
        columns.append(Column("function", lambda change: change.subject.part))
    columns.append(
        Column(
            "judged",
            verdict,
            help="By facts that always cost time, such as spills. Other facts may change without "
            "harm.",
        )
    )
    columns.extend(fact_column(name) for name in FACT_TITLES if name in moved)
    return columns


def worst_first(changes: Iterable[StaticChange]) -> list[StaticChange]:
    def rank(change: StaticChange) -> tuple[object, ...]:
        is_harmless = change.verdict is not Verdict.REGRESSED
        return is_harmless, natural_order(change.subject.target)

    return sorted(changes, key=rank)


def _fact_text(change: StaticChange, name: str) -> str:
    evidence = change.evidence
    if not isinstance(evidence, CodeEvidence):
        return ""
    if evidence.base is None or evidence.head is None:
        return ""
    base_value = fact_values(evidence.base).get(name)
    head_value = fact_values(evidence.head).get(name)
    # a fact that one side lacks is no change of it
    if base_value is None or head_value is None:
        return ""
    write = metric(name).format
    if base_value == head_value:
        return write(head_value)
    return f"{write(base_value)} → {write(head_value)}"


def _show_disassembly(view: View, base: RunRecord, head: RunRecord) -> None:
    base_digests = _disassemblies(base)
    head_digests = _disassemblies(head)
    # a file of one side alone has no difference to show
    in_both = base_digests.keys() & head_digests.keys()
    differing: list[str] = []
    for name in sorted(in_both):
        is_same = base_digests[name] == head_digests[name]
        if not is_same:
            differing.append(name)
    if not differing:
        return
    count = f"{len(differing)} files differ"
    if len(differing) == 1:
        count = "1 file differs"
    # some megabytes: read on request only
    if not view.link.switch(f"Disassembly: {count}", parameter="disassembly"):
        return
    name = view.link.choose(
        "File",
        differing,
        parameter="file",
    )
    base_file = str(base.run_id), base_digests[name]
    head_file = str(head.run_id), head_digests[name]
    try:
        contents = data.read_contents(base_file, head_file)
    except StoreError as error:
        reason = code_span(str(error))
        st.info(f"Not both sides are stored: {reason}", icon=":material/code_off:")
        return
    base_text, head_text = (content.decode(errors="replace") for content in contents)
    diff, more = code_diff(
        base_text,
        head_text,
        line_limit=_DIFF_LINES,
    )
    is_long = diff.count("\n") > _DIFF_LINES_UNFOLDED
    st.code(
        diff,
        language="diff",
        height=_DIFF_PX if is_long else "content",
    )
    if more:
        st.caption(f"{more} more lines differ; the complete files are in the Run view.")


def _disassemblies(record: RunRecord) -> dict[str, str]:
    """Return digests by name."""
    digests: dict[str, str] = {}
    for artefact in record.artefacts:
        if artefact.kind != ArtefactKind.DISASSEMBLY:
            continue
        if artefact.size_bytes <= _LARGEST_DISASSEMBLY_BYTES:
            digests[artefact.name] = artefact.sha256
    return digests


def _show_launches(launches: Sequence[Change[LaunchEvidence]]) -> None:
    st.subheader("Changed launches", anchor=False)
    show_table(
        launches,
        Column("launched", lambda launch: str(launch.detail)),
        Column(
            "share",
            lambda launch: launch.evidence.share,
            "{:.1%}".format,
            "Share of the profiled time of a call.",
        ),
    )


def _show_counters(changes: Sequence[Change[None]]) -> None:

    def relative_change(change: Change[None]) -> float | None:
        if change.base:
            return change.relative_change
        return None

    def base_text(change: Change[None]) -> str:
        base, _ = change.values
        return format_counter(change.metric, base)

    def head_text(change: Change[None]) -> str:
        _, head = change.values
        return format_counter(change.metric, head)

    st.subheader("Hardware counters", anchor=False)
    show_table(
        changes,
        Column("counter", lambda change: format_counter_name(change.metric)),
        Column("kernel of the device", lambda change: change.subject.part),
        Column("base", base_text),
        Column("head", head_text),
        Column("change", relative_change, percent),
    )
