"""The evidence of one change point, base and head side by side. What differs comes from `ci.side_by_side`."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from ci.counters import CounterMove
from ci.remark import Remark
from ci.side_by_side import Conditions, SideBySide, code_diff, side_by_side
from ci.static.comparison import StaticJudgement
from ci.static.facts import fact_values
from collector.artefact import ArtefactKind
from collector.measurement import Measurement
from collector.metrics import format_ns, metric
from collector.record import RunRecord
from dashboard import data
from dashboard.charts.distribution import distribution_figure
from dashboard.tables.table import NO_VALUE, show_table
from dashboard.wording import VERDICT_MARKS, code_span, outcome_text, percent
from db.errors import StoreError
from db.values import ChangePoint

_COUNTERS_SHOWN = 20
_DIFF_LINES = 400
_LARGEST_DISASSEMBLY_BYTES = 4 * 2**20


def show_evidence(change: ChangePoint) -> None:
    """Everything that the runs before and at a change point know of its case and implementation."""
    series = change.series
    sides = data.read_sides(series.project, change.previous_commit.sha, change.commit.sha, series.runner_class)
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
    _show_samples(found)
    left, right = st.columns(2)
    with left:
        _show_conditions(found)
    with right:
        _show_environment(found)
    _show_code(found)
    _show_disassembly(base, head)
    _show_counters(found.counters)


def _inert(remark: Remark) -> str:
    return remark.quoted(code_span)


def _show_samples(found: SideBySide) -> None:
    st.subheader("Times, base and head", anchor=False)
    if not _samples(found.base) and not _samples(found.head):
        st.text("Neither side has a time.")
        return
    st.plotly_chart(distribution_figure(found.base, found.head), key="distribution")
    st.caption(
        f"Base: {_side_text(found.base)}. Head: {_side_text(found.head)}. Raw samples; a curve further left is faster."
    )


def _samples(measurement: Measurement | None) -> int:
    return 0 if measurement is None else len(measurement.samples_ns)


def _side_text(measurement: Measurement | None) -> str:
    if measurement is None:
        return "not measured in that run"
    if measurement.median_ns is None:
        message = f" {code_span(measurement.message)}" if measurement.message else ""
        return f"{outcome_text(measurement.outcome)}{message}"
    return f"median {format_ns(measurement.median_ns)} of {len(measurement.samples_ns)} samples"


def _show_conditions(found: SideBySide) -> None:
    st.subheader("Clocks and throttling", anchor=False)
    rows = {
        "clock of the multiprocessors": [_amount(one.sm_clock_mhz, "MHz") for one in _sides(found)],
        "clock of the memory": [_amount(one.memory_clock_mhz, "MHz") for one in _sides(found)],
        "power": [_amount(one.power_w, "W") for one in _sides(found)],
        "highest temperature": [_amount(one.temperature_c, "°C") for one in _sides(found)],
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


def _show_code(found: SideBySide) -> None:
    st.subheader("Machine code", anchor=False)
    if not found.code:
        same = found.unchanged_code_count
        st.text(f"The same on all {same} compiled functions." if same else "No compiled code is stored for it.")
        return
    rows = [row for judged in found.code for row in _code_rows(judged)]
    show_table(pd.DataFrame(rows))
    for remark in dict.fromkeys(_inert(judged.detail) for judged in found.code if judged.detail is not None):
        st.markdown(f"◆ {remark}")


def _code_rows(judged: StaticJudgement) -> list[dict[str, str]]:
    """A row for each fact that moved, one at least."""
    place = {
        "target": judged.target,
        "function": judged.function,
        "verdict": VERDICT_MARKS[judged.verdict].text,
    }
    if judged.base is None or judged.head is None or not judged.moved_facts:
        return [{**place, "fact": judged.word, "base": NO_VALUE, "head": NO_VALUE}]
    before, after = fact_values(judged.base), fact_values(judged.head)
    return [
        {
            **place,
            "fact": metric(name).title,
            "base": metric(name).format(before[name]),
            "head": metric(name).format(after[name]),
        }
        for name in judged.moved_facts
    ]


def _show_disassembly(base: RunRecord, head: RunRecord) -> None:
    pairs = _common_disassemblies(base, head)
    # some megabytes, which few readers ask for
    if not pairs or not st.toggle(f"Disassembly: {len(pairs)} files differ", key="disassembly"):
        return
    name = st.selectbox("File", sorted(pairs), key="disassembly:file")
    try:
        before, after = (
            data.read_artefact(str(record.run_id), digest).decode(errors="replace")
            for record, digest in zip((base, head), pairs[name], strict=True)
        )
    except StoreError as error:
        st.info(f"Not both sides are stored: {code_span(str(error))}", icon=":material/code_off:")
        return
    diff, more = code_diff(before, after, line_limit=_DIFF_LINES)
    st.code(diff, language="diff")
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


def _show_counters(moves: tuple[CounterMove, ...]) -> None:
    st.subheader("Hardware counters", anchor=False)
    if not moves:
        st.markdown("None moved, or none were read on both sides.")
        return
    shown = moves[:_COUNTERS_SHOWN]
    show_table(
        pd.DataFrame(
            {
                "counter": [move.name for move in shown],
                "kernel of the device": [move.function for move in shown],
                "base": [f"{move.base:,.4g}" for move in shown],
                "head": [f"{move.head:,.4g}" for move in shown],
                "change": [percent(move.relative_change) for move in shown],
            }
        )
    )
    if len(moves) > len(shown):
        st.caption(f"The {len(shown)} of {len(moves)} that moved most.")
