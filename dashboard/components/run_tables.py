"""What a record says about its run, as tables."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from roofwatch.collector.device.datasheets import DatasheetCeiling, compare_with_datasheet
from roofwatch.dashboard.charts.runners import ceiling_name, measured_ceilings
from roofwatch.dashboard.charts.style import UNCOUNTED
from roofwatch.dashboard.components.table import SUBJECT, Column, show_table
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
    results = [
        *record.measurements,
        *record.accuracies,
        *record.static_facts,
    ]
    failures = [failure for failure in results if failure.outcome is not Outcome.OK]

    def compiled(failure: Measurement | Accuracy | StaticFacts) -> str:
        if not isinstance(failure, StaticFacts):
            return ""
        return f"{failure.function}, {failure.target}"

    if failures:
        show_table(
            failures,
            Column("what", lambda failure: _KINDS[type(failure)]),
            Column(
                "outcome",
                lambda failure: failure.outcome,
                outcome_text,
            ),
            *SUBJECT,
            Column("function and target", compiled),
            Column("message", lambda failure: failure.message),
            Column(
                "help",
                lambda failure: failure.outcome.url,
                link="what to do",
            ),
            omit_empty=True,
        )
    elif record.measurements:
        st.success("No failures.", icon=":material/check:")


def datasheet_columns(comparisons: Sequence[DatasheetCeiling]) -> list[Column[Ceiling]]:
    """Return what the datasheet says of each ceiling, and the measured share of it."""
    by_name = {ceiling_name(comparison.measured): comparison for comparison in comparisons}

    def published(ceiling: Ceiling) -> str:
        comparison = by_name.get(ceiling_name(ceiling))
        if comparison is None:
            return ""
        return rate_text(ceiling.resource, comparison.published_per_s)

    def share(ceiling: Ceiling) -> float | None:
        comparison = by_name.get(ceiling_name(ceiling))
        if comparison is None:
            return None
        return ceiling.per_s / comparison.published_per_s

    return [
        Column("datasheet", published),
        Column("share of datasheet", share, "{:.1%}".format),
    ]


def show_ceilings(record: RunRecord) -> None:
    st.header("Ceilings", anchor=False)
    comparisons = compare_with_datasheet(
        record.ceilings,
        record.environment.device_name,
        sm_clock_mhz=record.sm_clock_mhz,
    )
    suspicious: set[str] = set()
    for comparison in comparisons:
        if comparison.is_suspicious:
            suspicious.add(ceiling_name(comparison.measured))

    def warning(ceiling: Ceiling) -> str:
        if ceiling_name(ceiling) in suspicious:
            return "above the datasheet"
        return ""

    show_table(
        measured_ceilings(record.ceilings),
        Column("resource", lambda ceiling: ceiling.resource),
        Column("of", lambda ceiling: ceiling.level or ceiling.dtype or ""),
        Column("measured", lambda ceiling: rate_text(ceiling.resource, ceiling.per_s)),
        *datasheet_columns(comparisons),
        Column("warning", warning),
        Column("method", lambda ceiling: ceiling.method),
        if_empty="This run measured no ceilings.",
        omit_empty=True,
    )


def show_spent_time(run: FleetRun) -> None:
    """Show the wall time of each activity, and of what no activity claims."""
    st.header("Time breakdown", anchor=False)
    parts: dict[str, float] = dict(run.spent_ns)
    if parts:
        claimed_ns = sum(parts.values())
        parts[UNCOUNTED] = max(run.wall_ns - claimed_ns, 0)
    whole_ns = sum(parts.values()) or 1
    show_table(
        parts,
        Column("activity", lambda name: name.replace("_", " ")),
        Column(
            "time",
            lambda name: parts[name],
            duration_text,
        ),
        Column(
            "share of the run",
            lambda name: parts[name] / whole_ns,
            "{:.1%}".format,
        ),
        if_empty="Not recorded.",
    )


def show_launches(record: RunRecord) -> None:
    measurements: list[Measurement] = []
    for measurement in record.measurements:
        is_observed = measurement.host_ns is not None or measurement.memory is not None
        if is_observed:
            measurements.append(measurement)
    if not measurements:
        return

    def memory_column(
        title: str,
        name: str,
        write: Callable[[Any], str],
        help_text: str,
    ) -> Column[Measurement]:
        return Column(
            title,
            lambda measurement: getattr(measurement.memory, name, None),
            write,
            help_text,
        )

    st.header("Host time and memory per launch", anchor=False)
    show_table(
        measurements,
        *SUBJECT,
        Column(
            "host time",
            lambda measurement: measurement.host_ns,
            format_ns,
            "Median time to issue a launch, without waiting.",
        ),
        Column(
            "delay",
            lambda measurement: measurement.launch_delay_ns,
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
            "allocations",
            "allocation_count",
            "{:,.0f}".format,
            "Allocations per launch.",
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
    rows: list[ProfiledActivity | None] = list(profile.rows)
    if profile.left_out_count:
        rows.append(None)  # the rest

    def total_ns(row: ProfiledActivity | None) -> int:
        if row is None:
            return profile.left_out_ns
        return row.total_ns

    def name(row: ProfiledActivity | None) -> str:
        if row is None:
            return f"{profile.left_out_count:,} more together"
        return row.name

    def share(row: ProfiledActivity | None) -> float | None:
        if not profile.busy_ns:
            return None
        return total_ns(row) / profile.busy_ns

    def field(
        title: str,
        name: str,
        write: Callable[[Any], str] | None = None,
        help_text: str | None = None,
    ) -> Column[ProfiledActivity | None]:
        """Return a column that the rest does not have."""
        return Column(
            title,
            lambda row: getattr(row, name, None),
            write,
            help_text,
        )

    def dimensions(title: str, name: str) -> Column[ProfiledActivity | None]:
        def sizes(row: ProfiledActivity | None) -> str:
            texts = [str(size) for size in getattr(row, name, ())]
            return " × ".join(texts)

        help_text = "Of the first launch, like registers, shared memory and occupancy."
        return Column(title, sizes, help=help_text)

    show_table(
        rows,
        field("kind", "kind"),
        Column("name", name),
        field("device", "device"),
        Column(
            "time of a call",
            lambda row: total_ns(row) / profile.call_count,
            format_ns,
        ),
        Column(
            "share",
            share,
            "{:.1%}".format,
            "Share of busy time.",
        ),
        Column(
            "of a call",
            lambda row: row and row.count / profile.call_count,
            "{:.3g}".format,
            "Launches per call.",
        ),
        field("mean", "mean_ns", format_ns),
        field("longest", "max_ns", format_ns),
        field(
            "bytes",
            "bytes",
            format_bytes,
            "Copied or filled, over all calls.",
        ),
        dimensions("grid", "grid"),
        dimensions("block", "block"),
        field("registers", "registers", "{:.3g}".format),
        field("shared memory", "shared_bytes", format_bytes),
        field(
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
    # every field, also those of later versions
    facts = record.environment.model_dump()
    knobs = facts.pop("compile_knobs")
    rows = {name.replace("_", " "): value for name, value in facts.items()}
    rows["harness version"] = record.harness_version
    rows.update(sorted(knobs.items()))

    def text(name: str) -> str:
        value = rows[name]
        if value is None:
            return "not known"
        return str(value)

    show_table(rows, Column("what", str), Column("value", text))
