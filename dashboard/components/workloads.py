"""Workloads: the values of a step with their formulas, and why a step changed."""

from collections.abc import Iterator
from operator import itemgetter
from uuid import UUID

import streamlit as st

from roofwatch.ci.ab.step_ledger import ledgers_of_records
from roofwatch.ci.report.step import (
    changed_rows,
    kernels_text,
    sentences,
    signed_ns,
    terms,
    what_a_step_is,
)
from roofwatch.dashboard import data
from roofwatch.dashboard.comparison import ComparedRow
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import natural_order
from roofwatch.db.queries import questions
from roofwatch.model.metrics import format_ns, metric
from roofwatch.model.record import RunRecord

CPU_NOTE = "Rates and times of a CPU say nothing about a GPU."


# --- one run


_STEP_COLUMNS = ("case", "implementation", "metric", "value", "formula")


def show_step_values(part: RunRecord) -> None:
    """Show the values of each workload of a record, with the formula of each."""
    rows = sorted(
        _values_of(part),
        key=lambda row: (natural_order(row[0]), row[1]),
    )
    columns = [Column(title, itemgetter(index)) for index, title in enumerate(_STEP_COLUMNS)]
    show_table(rows, *columns)
    if part.environment.device_kind == "cpu":
        st.caption(CPU_NOTE)


def _values_of(part: RunRecord) -> Iterator[tuple[str, ...]]:
    token_counts = {case.case_id: case.token_count for case in part.cases}
    rate = metric("tokens_per_s")
    for measurement in part.measurements:
        if measurement.median_ns is None:
            continue
        subject = measurement.case_id, measurement.implementation
        time = format_ns(measurement.median_ns)
        yield (
            *subject,
            "time",
            time,
            "median of the block medians",
        )
        token_count = token_counts[measurement.case_id]
        # a step without tokens has no rate
        if token_count:
            tokens_per_s = token_count / measurement.median_ns * 1e9
            rate_text = rate.format(tokens_per_s)
            yield (
                *subject,
                rate.title,
                rate_text,
                f"{token_count:,.0f} tokens / {time}",
            )
    for value in part.imported:
        if value.value is not None:
            unit = metric(value.key)
            yield (
                value.case_id,
                value.implementation,
                unit.title,
                unit.format(value.value),
                value.message or "",
            )


# --- two runs


def show_step_change(row: ComparedRow, base_id: UUID, head_id: UUID) -> None:
    """Show the difference of a step as a sum over kernels, gaps and overlap, if both runs profiled
    it.
    """
    if not row.is_profiled:
        return
    records = data.ask(
        questions.read_case_of_runs,
        base_id,
        head_id,
        row.key.case_id,
    )
    title = f"{row.key.case_id} {row.key.implementation}"
    # a record may hold several workloads
    ledgers = [ledger for ledger in ledgers_of_records(*records) if ledger.title == title]
    if not ledgers:
        return
    (ledger,) = ledgers
    st.header("Why the step changed", anchor=False)
    show_table(
        terms(ledger),
        Column("term", lambda term: term.name),
        Column(
            "base",
            lambda term: term.base_ns,
            format_ns,
        ),
        Column(
            "head",
            lambda term: term.head_ns,
            format_ns,
        ),
        Column(
            "change",
            lambda term: term.change_ns,
            signed_ns,
        ),
    )
    for sentence in sentences(ledger):
        st.text(sentence)
    show_table(
        changed_rows(ledger),
        Column("kernels", kernels_text),
        Column(
            "base launches",
            lambda row: row.base_launches,
            "{:.4g}".format,
        ),
        Column(
            "head launches",
            lambda row: row.head_launches,
            "{:.4g}".format,
        ),
        Column(
            "base",
            lambda row: row.base_ns,
            format_ns,
        ),
        Column(
            "head",
            lambda row: row.head_ns,
            format_ns,
        ),
        Column(
            "change of the step",
            lambda row: row.change_ns,
            signed_ns,
        ),
        if_empty="No kernel changed.",
    )
    step = what_a_step_is(ledger)
    st.caption(f"A step is {step}. Lower is better.")
