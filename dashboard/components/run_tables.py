"""What a record says about its run, as tables."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from roofwatch.collector.device.datasheets import DatasheetComparison, compare_with_datasheet
from roofwatch.dashboard.charts.runners import ceiling_name
from roofwatch.dashboard.charts.style import UNCOUNTED
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import duration_text, outcome_text, rate_text
from roofwatch.model.machine import Ceiling, Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.metrics import format_bytes, format_ns
from roofwatch.model.record import RunRecord
from roofwatch.model.results import Accuracy, CaseProfile, ProfiledActivity, StaticFacts
from roofwatch.model.stored_results import FleetRun

_KINDS = {Measurement: "measurement", Accuracy: "accuracy", StaticFacts: "compilation"}


def show_failures(record: RunRecord) -> None:
    """Show failed and unsupported measurements, checks and compilations."""
    results: list[Measurement | Accuracy | StaticFacts]
    results = [*record.measurements, *record.accuracies, *record.static_facts]
    failures = [one for one in results if one.outcome is not Outcome.OK]

    def compiled(one: Measurement | Accuracy | StaticFacts) -> str:
        return f"{one.function}, {one.target}" if isinstance(one, StaticFacts) else ""

    if failures:
        show_table(
            failures,
            Column("what", lambda one: _KINDS[type(one)]),
            Column("outcome", lambda one: one.outcome, outcome_text),
            Column("case", lambda one: one.case_id),
            Column("implementation", lambda one: one.implementation),
            Column("function and target", compiled),
            Column("message", lambda one: one.message),
            Column("help", lambda one: one.outcome.url, link="what to do"),
            omit_empty=True,
        )
    elif record.measurements:
        st.success("No failures.", icon=":material/check:")


def datasheet_columns(found: Sequence[DatasheetComparison]) -> list[Column[Ceiling]]:
    """Return what the datasheet says of each ceiling, and the measured share of it."""
    by_name = {ceiling_name(one.measured): one for one in found}

    def published(one: Ceiling) -> str:
        known = by_name.get(ceiling_name(one))
        return "" if known is None else rate_text(one.resource, known.published_per_s)

    def share(one: Ceiling) -> float | None:
        known = by_name.get(ceiling_name(one))
        return None if known is None else one.per_s / known.published_per_s

    return [Column("datasheet", published), Column("share of datasheet", share, "{:.1%}".format)]


def show_ceilings(record: RunRecord) -> None:
    st.header("Ceilings", anchor=False)
    device_name, clock_mhz = record.environment.device_name, record.sm_clock_mhz
    found = compare_with_datasheet(record.ceilings, device_name, sm_clock_mhz=clock_mhz)
    suspicious = {ceiling_name(one.measured) for one in found if one.is_suspicious}
    show_table(
        [one for one in record.ceilings if one.source == "measured"],
        Column("resource", lambda one: one.resource),
        Column("of", lambda one: one.level or one.dtype or ""),
        Column("measured", lambda one: rate_text(one.resource, one.per_s)),
        *datasheet_columns(found),
        Column(
            "warning", lambda one: "above the datasheet" if ceiling_name(one) in suspicious else ""
        ),
        Column("method", lambda one: one.method),
        if_empty="This run measured no ceilings.",
        omit_empty=True,
    )


def show_spent_time(run: FleetRun) -> None:
    """Show the wall time of each activity, and of what no activity claims."""
    st.header("Time breakdown", anchor=False)
    rest_ns = max(run.wall_ns - sum(run.spent_ns.values()), 0)
    parts = {**run.spent_ns, UNCOUNTED: rest_ns} if run.spent_ns else {}
    whole_ns = sum(parts.values()) or 1
    show_table(
        parts,
        Column("activity", lambda name: name.replace("_", " ")),
        Column("time", lambda name: parts[name], duration_text),
        Column("share of the run", lambda name: parts[name] / whole_ns, "{:.1%}".format),
        if_empty="Not recorded.",
    )


def show_launches(record: RunRecord) -> None:
    known = [
        one for one in record.measurements if one.host_ns is not None or one.memory is not None
    ]
    if not known:
        return

    def memory_column(
        title: str, name: str, write: Callable[[Any], str], help_text: str
    ) -> Column[Measurement]:
        return Column(title, lambda one: getattr(one.memory, name, None), write, help_text)

    st.header("Host time and memory per launch", anchor=False)
    show_table(
        known,
        Column("case", lambda one: one.case_id),
        Column("implementation", lambda one: one.implementation),
        Column(
            "host time",
            lambda one: one.host_ns,
            format_ns,
            "Median time to issue a launch, without waiting.",
        ),
        Column(
            "delay",
            lambda one: one.launch_delay_ns,
            format_ns,
            "From the call to the start of its first kernel.",
        ),
        memory_column(
            "allocated",
            "peak_allocated_bytes",
            format_bytes,
            "Peak memory of tensors, inputs included.",
        ),
        memory_column(
            "reserved",
            "peak_reserved_bytes",
            format_bytes,
            "Peak memory reserved by torch's allocator.",
        ),
        memory_column(
            "allocations", "allocation_count", "{:,.0f}".format, "Allocations per launch."
        ),
        memory_column(
            "fragmentation",
            "fragmentation",
            "{:.1%}".format,
            "Share of reserved memory that is free.",
        ),
        omit_empty=True,
    )


def show_profile(profile: CaseProfile) -> None:
    """Show the activities of a profiled case, longest total first, and the rest as one row."""
    rest = [None] if profile.left_out_count else []

    def total_ns(row: ProfiledActivity | None) -> int:
        return profile.left_out_ns if row is None else row.total_ns

    def known(
        title: str,
        name: str,
        write: Callable[[Any], str] | None = None,
        help_text: str | None = None,
    ) -> Column[ProfiledActivity | None]:
        """Return a column that the rest does not have."""
        return Column(title, lambda row: getattr(row, name, None), write, help_text)

    def dimensions(title: str, name: str) -> Column[ProfiledActivity | None]:
        help_text = "Of the first launch, like registers, shared memory and occupancy."
        return Column(
            title, lambda row: " × ".join(map(str, getattr(row, name, ()))), help=help_text
        )

    show_table(
        [*profile.rows, *rest],
        known("kind", "kind"),
        Column(
            "name", lambda row: row.name if row else f"{profile.left_out_count:,} more together"
        ),
        known("device", "device"),
        Column("time of a call", lambda row: total_ns(row) / profile.call_count, format_ns),
        Column(
            "share",
            lambda row: total_ns(row) / profile.busy_ns if profile.busy_ns else None,
            "{:.1%}".format,
            "Share of busy time.",
        ),
        Column(
            "of a call",
            lambda row: row and row.count / profile.call_count,
            "{:.3g}".format,
            "Launches per call.",
        ),
        known("mean", "mean_ns", format_ns),
        known("longest", "max_ns", format_ns),
        known("bytes", "bytes", format_bytes, "Copied or filled, over all calls."),
        dimensions("grid", "grid"),
        dimensions("block", "block"),
        known("registers", "registers", "{:.3g}".format),
        known("shared memory", "shared_bytes", format_bytes),
        known(
            "occupancy",
            "estimated_occupancy",
            "{:.1%}".format,
            "torch's estimate; 0 is correct for short kernels.",
        ),
        omit_empty=True,
    )
    st.caption(
        "Profiled on a hot cache: shows what was launched, and its share of the time. Not "
        "comparable "
        "with measured times."
    )


def show_environment(record: RunRecord) -> None:
    facts = record.environment.model_dump()
    knobs = facts.pop("compile_knobs")
    named = {name.replace("_", " "): value for name, value in facts.items()}
    rows = {**named, "harness version": record.harness_version, **dict(sorted(knobs.items()))}
    show_table(
        rows,
        Column("what", str),
        Column("value", lambda name: "not known" if rows[name] is None else str(rows[name])),
    )
