"""The evidence of one change point, base and head side by side."""

from collections.abc import Iterable, Mapping, Sequence

import streamlit as st

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.ab.launches import LaunchMove
from roofwatch.ci.ab.side_by_side import SideBySide, code_diff, side_by_side
from roofwatch.ci.messages import Remark, count_of
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.ci.static.facts import fact_values
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.runs import distribution_figure
from roofwatch.dashboard.components.kernel_tables import FACT_TITLES
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
from roofwatch.db.queries import questions
from roofwatch.model.history import ChangePoint
from roofwatch.model.measurement import Measurement, median_of
from roofwatch.model.metrics import Layer, format_counter, format_ns, metric
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
    if series.is_imported:
        _show_imported_sides(change)
        return
    sides = data.ask(
        questions.read_case_of_both,
        series.project,
        change.previous_commit.sha,
        change.commit.sha,
        series.case_id,
        runner_class=series.runner_class or None,
    )
    if sides is None:
        st.info(
            "The run of one side is no longer stored, so base and head cannot be compared.",
            icon=":material/compare:",
        )
        return
    base, head = sides
    found = side_by_side(base, head, series.case_id, series.implementation)
    for refusal in found.refusals:
        st.warning(f"Not comparable: {_inert(refusal)}", icon=":material/block:")
    if series.definition.layer is Layer.STATIC:
        _show_code(view, found, base, head)
        _show_samples(found)
    else:
        _show_samples(found)
        _show_code(view, found, base, head)
    if found.launches:
        _show_launches(found.launches)
    if found.counters:
        _show_counters(found.counters)
    conditions = condition_rows(found.base, found.head)
    _show_base_and_head("Clocks and throttling", conditions)
    _show_base_and_head("Environment", {one.name: one.values for one in found.environment})
    for choice in found.choices:
        st.markdown(_inert(choice))
    have_counters = all(
        any(one.implementation == series.implementation for one in side.counters) for side in sides
    )
    same_code = f"The machine code of {found.unchanged_code_count} compiled functions is the same."
    empty = {
        same_code if found.unchanged_code_count else "No compiled code.": found.code,
        "No counter changed." if have_counters else "No counter data.": found.counters,
        "No GPU telemetry.": conditions,
        "The same machine, driver and toolchain on both sides.": found.environment,
    }
    st.caption(" ".join(sentence for sentence, rows in empty.items() if not rows))


def _show_imported_sides(change: ChangePoint) -> None:
    """Show what an import knows about both sides: their levels."""
    levels = code_span(transition_text(change))
    st.markdown(f"{code_span(change.series.definition.title)}, base and head: {levels}.")
    st.caption(
        "Samples, compiled code, counters, machine, driver and toolchain are unknown: the files "
        "of the other tool do not have them."
    )


def _inert(remark: Remark) -> str:
    return remark.quoted(code_span)


def _show_samples(found: SideBySide) -> None:
    st.subheader("Times, base and head", anchor=False)
    summary = f"Base: {_side_text(found.base)}. Head: {_side_text(found.head)}."
    if not any(side is not None and side.samples_ns for side in (found.base, found.head)):
        st.markdown(f"Neither side has a time. {summary}")
        return
    st.plotly_chart(distribution_figure(found.base, found.head), key="distribution")
    st.caption(f"{summary} Raw samples; a curve further left is faster.")


def _side_text(measurement: Measurement | None) -> str:
    if measurement is None:
        return "no samples stored"
    if measurement.median_ns is None:
        message = f" {code_span(measurement.message)}" if measurement.message else ""
        return f"{outcome_text(measurement.outcome)}{message}"
    blocks = count_of(len(measurement.blocks), "block")
    count = len(measurement.samples_ns)
    return f"median {format_ns(measurement.median_ns)} of {blocks}, {count} samples"


def condition_rows(*sides: Measurement | None) -> dict[str, list[str]]:
    """Describe clocks, power, temperature and throttling on each side; empty if neither was
    monitored.
    """
    blocks = [() if side is None else side.blocks for side in sides]
    states = [
        [block.device_state for block in side if block.device_state is not None] for side in blocks
    ]
    readings: dict[str, tuple[list[float | None], str]] = {
        "SM clock": ([median_of(one.sm_clock_mhz for one in side) for side in states], "MHz"),
        "memory clock": (
            [median_of(one.memory_clock_mhz for one in side) for side in states],
            "MHz",
        ),
        "power": ([median_of(one.power_w for one in side) for side in states], "W"),
        "highest temperature": (
            [max((one.temperature_c or 0 for one in side), default=None) for side in states],
            "°C",
        ),
    }
    rows = {
        name: [f"{value:,.0f} {unit}" if value else "not read" for value in values]
        for name, (values, unit) in readings.items()
        if any(values)
    }
    if rows:
        throttled = [
            sorted({reason for one in side for reason in one.clock_event_reasons})
            for side in states
        ]
        degraded = [sum(bool(one.degraded_by) for one in side) for side in states]
        rows["throttled by"] = [
            ", ".join(reasons).replace("_", " ") or "nothing" for reasons in throttled
        ]
        rows["blocks throttled or contended"] = [
            f"{count} of {len(side)}" for count, side in zip(degraded, blocks, strict=True)
        ]
    return rows


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


def _show_code(view: View, found: SideBySide, base: RunRecord, head: RunRecord) -> None:
    if not found.code:
        return
    st.subheader("Machine code", anchor=False)
    show_table(worst_first(found.code), *code_columns(found.code))
    targets_of: dict[str, list[str]] = {}
    for judged in worst_first(found.code):
        if judged.detail is not None:
            targets_of.setdefault(_inert(judged.detail), []).append(judged.target)
    for remark, targets in targets_of.items():
        st.markdown(f"{code_span(', '.join(targets))}: {remark}")
    if found.unchanged_code_count:
        st.caption(
            f"The machine code of {found.unchanged_code_count} more compiled functions is the same."
        )
    _show_disassembly(view, base, head)


def code_columns(judged: Sequence[StaticJudgement]) -> list[Column[StaticJudgement]]:
    """Return the columns of changed code: what changed, and each fact that differs,
    as `68 → 232`.
    """
    moved = {name for one in judged for name in one.moved_facts}
    functions = [Column[StaticJudgement]("function", lambda one: one.function)]

    def fact_column(name: str) -> Column[StaticJudgement]:
        return Column(FACT_TITLES[name], lambda one: _fact_text(one, name))

    return [
        Column("target", lambda one: one.target),
        *(functions if len({one.function for one in judged}) > 1 else []),
        Column(
            "judged",
            # a change that is neither better nor worse has no verdict
            lambda one: one.word if one.verdict is Verdict.UNCHANGED else one.verdict,
            help="By facts that always cost time, such as spills. Other facts may change without "
            "harm.",
        ),
        *(fact_column(name) for name in FACT_TITLES if name in moved),
    ]


def worst_first(judged: Iterable[StaticJudgement]) -> list[StaticJudgement]:
    return sorted(
        judged, key=lambda one: (one.verdict is not Verdict.REGRESSED, natural_order(one.target))
    )


def _fact_text(judged: StaticJudgement, name: str) -> str:
    if judged.base is None or judged.head is None:
        return ""
    before, after = (fact_values(facts).get(name) for facts in (judged.base, judged.head))
    if before is None or after is None:
        return ""
    write = metric(name).format
    return write(after) if before == after else f"{write(before)} → {write(after)}"


def _show_disassembly(view: View, base: RunRecord, head: RunRecord) -> None:
    before, after = _disassemblies(base), _disassemblies(head)
    differing = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    if not differing:
        return
    count = "1 file differs" if len(differing) == 1 else f"{len(differing)} files differ"
    # some megabytes: read on request only
    if not view.link.switch(f"Disassembly: {count}", parameter="disassembly"):
        return
    name = view.link.choose("File", differing, parameter="file")
    try:
        contents = data.read_contents(
            (str(base.run_id), before[name]), (str(head.run_id), after[name])
        )
    except StoreError as error:
        st.info(f"Not both sides are stored: {code_span(str(error))}", icon=":material/code_off:")
        return
    texts = [content.decode(errors="replace") for content in contents]
    diff, more = code_diff(texts[0], texts[1], line_limit=_DIFF_LINES)
    st.code(
        diff,
        language="diff",
        height=_DIFF_PX if diff.count("\n") > _DIFF_LINES_UNFOLDED else "content",
    )
    if more:
        st.caption(f"{more} more lines differ; the complete files are in the Run view.")


def _disassemblies(record: RunRecord) -> dict[str, str]:
    """Return digests by name."""
    return {
        one.name: one.sha256
        for one in record.artefacts
        if one.kind == ArtefactKind.DISASSEMBLY and one.size_bytes <= _LARGEST_DISASSEMBLY_BYTES
    }


def _show_launches(moves: Sequence[LaunchMove]) -> None:
    st.subheader("Changed launches", anchor=False)
    show_table(
        moves,
        Column("launched", lambda move: str(move.remark)),
        Column(
            "share",
            lambda move: move.share,
            "{:.1%}".format,
            "Share of the profiled time of a call.",
        ),
    )


def _show_counters(moves: Sequence[Change]) -> None:
    st.subheader("Hardware counters", anchor=False)
    show_table(
        moves,
        Column("counter", lambda move: move.metric.replace("_", " ")),
        Column("kernel of the device", lambda move: move.part),
        Column("base", lambda move: format_counter(move.metric, move.base)),
        Column("head", lambda move: format_counter(move.metric, move.head)),
        Column("change", lambda move: move.relative_change if move.base else None, percent),
    )
