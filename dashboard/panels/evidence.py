"""The evidence of one change point, base and head side by side. What differs comes from
`roofwatch.ci.ab.side_by_side`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import streamlit as st

from roofwatch.ci.ab.changes import Change
from roofwatch.ci.ab.launches import LaunchMove
from roofwatch.ci.ab.side_by_side import Conditions, SideBySide, code_diff, side_by_side
from roofwatch.ci.message import Remark
from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.metrics import Layer, format_ns
from roofwatch.collector.record.record import ArtefactKind, RunRecord
from roofwatch.dashboard import data
from roofwatch.dashboard.charts.distribution import distribution_figure
from roofwatch.dashboard.figure import show_figure
from roofwatch.dashboard.frame import MAIN_FIGURE, View
from roofwatch.dashboard.quantities import counter_text
from roofwatch.dashboard.tables.code import code_table, worst_first
from roofwatch.dashboard.tables.markup import NO_VALUE, Column
from roofwatch.dashboard.tables.table import show_table
from roofwatch.dashboard.wording import code_span, outcome_text, percent
from roofwatch.db.errors import StoreError
from roofwatch.db.values import ChangePoint

_COUNTERS_SHOWN = 20
_DIFF_LINES = 400
_DIFF_LINES_UNFOLDED, _DIFF_PX = 24, 480
_LARGEST_DISASSEMBLY_BYTES = 4 * 2**20


def show_evidence(view: View, change: ChangePoint) -> None:
    """Everything that the runs before and at a change point know of its case and implementation; what is about the
    layer that moved comes first.
    """
    series = change.series
    sides = data.read_sides(
        series.project, change.previous_commit.sha, change.commit.sha, series.case_id, series.runner_class
    )
    if sides is None:
        st.info(
            "The run of one side is not stored any more, so there is nothing to lay side by side.",
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
    _show_launches(found.launches)
    _show_counters(found.counters)
    left, right = st.columns(2)
    with left:
        _show_conditions(found)
    with right:
        _show_environment(found)


def _inert(remark: Remark) -> str:
    return remark.quoted(code_span)


def _show_samples(found: SideBySide) -> None:
    st.subheader("Times, base and head", anchor=False)
    if not _samples(found.base) and not _samples(found.head):
        st.markdown(f"Neither side has a time. Base: {_side_text(found.base)}. Head: {_side_text(found.head)}.")
        return
    show_figure(distribution_figure(found.base, found.head), key=MAIN_FIGURE)
    st.caption(
        f"Base: {_side_text(found.base)}. Head: {_side_text(found.head)}. Raw samples; a curve further left is faster."
    )


def _samples(measurement: Measurement | None) -> int:
    return 0 if measurement is None else len(measurement.samples_ns)


def _side_text(measurement: Measurement | None) -> str:
    if measurement is None:
        return "no sample of it is stored"
    if measurement.median_ns is None:
        message = f" {code_span(measurement.message)}" if measurement.message else ""
        return f"{outcome_text(measurement.outcome)}{message}"
    return f"median {format_ns(measurement.median_ns)} of {len(measurement.samples_ns)} samples"


def _show_conditions(found: SideBySide) -> None:
    st.subheader("Clocks and throttling", anchor=False)
    readings = {
        "clock of the multiprocessors": [(one.sm_clock_mhz, "MHz") for one in _sides(found)],
        "clock of the memory": [(one.memory_clock_mhz, "MHz") for one in _sides(found)],
        "power": [(one.power_w, "W") for one in _sides(found)],
        "highest temperature": [(one.temperature_c, "°C") for one in _sides(found)],
    }
    read = {
        name: [_amount(*one) for one in sides]
        for name, sides in readings.items()
        if any(value is not None for value, _ in sides)
    }
    if not read:
        st.text("Nobody watched the device on either side: on a CPU nothing is read.")
        return
    rows = {
        **read,
        "held back by": [", ".join(one.held_back_by).replace("_", " ") or NO_VALUE for one in _sides(found)],
        "blocks throttled or shared": [f"{one.degraded_block_count} of {one.block_count}" for one in _sides(found)],
    }
    show_table(_base_and_head(rows))


def _sides(found: SideBySide) -> tuple[Conditions, Conditions]:
    return found.base_conditions, found.head_conditions


def _amount(value: float | None, unit: str) -> str:
    return "not read" if value is None else f"{value:,.0f} {unit}"


def _base_and_head(rows: dict[str, list[str]]) -> pd.DataFrame:
    return pd.DataFrame(
        {"": list(rows), "base": [row[0] for row in rows.values()], "head": [row[1] for row in rows.values()]}
    )


def _show_environment(found: SideBySide) -> None:
    st.subheader("Environment", anchor=False)
    if found.environment:
        show_table(_base_and_head({one.name: list(one.values) for one in found.environment}))
    else:
        st.text("The same machine, driver and toolchain on both sides.")
    for choice in found.choices:
        st.markdown(f"◆ {_inert(choice)}")


def _show_code(view: View, found: SideBySide, base: RunRecord, head: RunRecord) -> None:
    st.subheader("Machine code", anchor=False)
    if not found.code:
        same = found.unchanged_code_count
        st.text(f"The same on all {same} compiled functions." if same else "No compiled code is stored for it.")
        return
    show_table(
        code_table(found.code),
        columns={
            "judged": Column(
                help="By the facts that cost time wherever they appear, such as spills. Others may move without harm."
            )
        },
    )
    for remark, targets in _remarks(found.code).items():
        st.markdown(f"{code_span(', '.join(targets))}: {remark}")
    if found.unchanged_code_count:
        st.caption(f"The machine code of {found.unchanged_code_count} more compiled functions is the same.")
    _show_disassembly(view, base, head)


def _remarks(code: Iterable[StaticJudgement]) -> dict[str, list[str]]:
    """What is said of how the code moved, each once with its targets."""
    told: dict[str, list[str]] = {}
    for judged in worst_first(code):
        if judged.detail is not None:
            told.setdefault(_inert(judged.detail), []).append(judged.target)
    return told


def _show_disassembly(view: View, base: RunRecord, head: RunRecord) -> None:
    pairs = _common_disassemblies(base, head)
    if not pairs:
        return
    count = "1 file differs" if len(pairs) == 1 else f"{len(pairs)} files differ"
    # some megabytes, which few readers ask for
    if not view.link.switch(f"Disassembly: {count}", parameter="disassembly"):
        return
    name = view.link.choose("File", sorted(pairs), parameter="file")
    try:
        before, after = (
            content.decode(errors="replace")
            for content in data.read_contents(str(base.run_id), pairs[name][0], str(head.run_id), pairs[name][1])
        )
    except StoreError as error:
        st.info(f"Not both sides are stored: {code_span(str(error))}", icon=":material/code_off:")
        return
    diff, more = code_diff(before, after, line_limit=_DIFF_LINES)
    st.code(diff, language="diff", height=_DIFF_PX if diff.count("\n") > _DIFF_LINES_UNFOLDED else "content")
    if more:
        st.caption(f"{more} more lines differ; the whole files are in the Run view.")


def _common_disassemblies(base: RunRecord, head: RunRecord) -> dict[str, tuple[str, str]]:
    """Digests of the files that both runs name alike and that differ, by name."""
    before, after = (_disassemblies(record) for record in (base, head))
    return {name: (before[name], after[name]) for name in before.keys() & after.keys() if before[name] != after[name]}


def _disassemblies(record: RunRecord) -> dict[str, str]:
    return {
        one.name: one.sha256
        for one in record.artefacts
        if one.kind == ArtefactKind.DISASSEMBLY and one.size_bytes <= _LARGEST_DISASSEMBLY_BYTES
    }


def _show_launches(moves: tuple[LaunchMove, ...]) -> None:
    """Nothing where no case was profiled on both sides, or all is as before."""
    if not moves:
        return
    st.subheader("What it launches otherwise", anchor=False)
    show_table(
        pd.DataFrame({"launched": [str(move.remark) for move in moves], "share": [move.share for move in moves]}),
        formats={"share": "{:.1%}".format},
        columns={"share": Column(help="Of the time of a call under a profiler.")},
    )


def _show_counters(moves: tuple[Change, ...]) -> None:
    st.subheader("Hardware counters", anchor=False)
    if not moves:
        st.markdown("None moved, or none were read on both sides.")
        return
    shown = moves[:_COUNTERS_SHOWN]
    show_table(
        pd.DataFrame(
            {
                "counter": [move.metric.replace("_", " ") for move in shown],
                "kernel of the device": [move.part for move in shown],
                "base": [counter_text(move.metric, move.base) for move in shown],
                "head": [counter_text(move.metric, move.head) for move in shown],
                "change": [percent(move.relative_change) if move.base else "from nothing" for move in shown],
            }
        )
    )
    if len(moves) > len(shown):
        st.caption(f"The {len(shown)} of {len(moves)} that moved most.")
