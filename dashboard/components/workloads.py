"""Workloads: their newest rates on each runner, the values of a step with their formulas, and why a
step changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
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
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.regressions import sparkline
from roofwatch.dashboard.components.table import Column, grouped, show_html_table, show_table
from roofwatch.dashboard.wording import natural_order, percent, shortened
from roofwatch.db.queries import questions
from roofwatch.model.metrics import TIME, format_ns, metric
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import RecentRuns, RecentSeries
from roofwatch.spec.workload import WORKLOADS

CPU_NOTE = "Rates and times of a CPU say nothing about a GPU."
_ROWS_AT_FIRST = 10


@dataclass(frozen=True)
class _Newest:
    """The newest value of one workload on one runner class."""

    series: RecentSeries
    token_count: float | None
    is_cpu: bool

    @property
    def rates(self) -> list[float]:
        """Return the tokens per second of each run; empty without tokens."""
        if not self.token_count:
            return []
        return [self.token_count / median_ns * 1e9 for median_ns in self.series.values]

    @property
    def rank(self) -> tuple[object, ...]:
        """Return the sort key: GPUs first."""
        key = self.series.key
        return self.is_cpu, natural_order(key.case_id), key.runner_class


def show_workloads(view: View, recent: Sequence[RecentRuns]) -> None:
    """Show the newest rate and time of each workload on each runner against the run before, if
    there are any.
    """
    workloads = [newest for runner in recent for newest in _newest_of(view, runner)]
    if not workloads:
        return
    workloads.sort(key=lambda newest: newest.rank)
    st.header("Workloads", anchor=False)
    if len(workloads) > _ROWS_AT_FIRST:
        label = f"Show more than the first {_ROWS_AT_FIRST} workloads"
        if not view.link.switch(label, parameter="workloads"):
            workloads = workloads[:_ROWS_AT_FIRST]
    titles = (
        "workload",
        "runner",
        "token rate",
        "time of a step",
        "change of the rate",
        "newest runs",
        "",
    )
    show_html_table((_row(view, newest) for newest in workloads), *titles)
    note = CPU_NOTE if any(newest.is_cpu for newest in workloads) else ""
    st.caption(
        "The run before → the newest run, with the implementation that is the fastest there. "
        f"{note}"
    )


def _newest_of(view: View, runner: RecentRuns) -> list[_Newest]:
    """Return the fastest implementation of each workload in its newest run."""
    facets = view.filters.facets
    workload_cases = [case for case in facets.cases if case.family == WORKLOADS]
    token_counts = {case.case_id: case.costs.get("tokens_per_s") for case in workload_cases}
    times = [line for line in runner.series if line.key.metric == TIME.key]
    of_workloads = [line for line in times if line.key.case_id in token_counts]
    admitted = [line for line in of_workloads if view.filters.admits_series(line.key)]
    fastest: dict[str, RecentSeries] = {}
    for case_id, series in grouped(admitted, lambda line: line.key.case_id).items():
        # of the newest commit that any implementation was measured at
        fastest[case_id] = min(
            series,
            key=lambda line: (-line.places[-1], line.values[-1]),
        )
    return [
        _Newest(
            series=series,
            token_count=token_counts[case_id],
            is_cpu=runner.runner_class in facets.cpu_classes,
        )
        for case_id, series in fastest.items()
    ]


def _row(view: View, newest: _Newest) -> list[str]:
    return [f"<td>{cell}</td>" for cell in _cells(view, newest)]


def _cells(view: View, newest: _Newest) -> Iterator[str]:
    """Write the cells of a row as HTML. Text from records is escaped."""
    key = newest.series.key
    times_ns = newest.series.values
    case = escape(shortened(key.case_id.removeprefix(f"{key.kernel}/")))
    yield (
        f"<b>{escape(shortened(key.kernel))}</b> {escape(shortened(key.implementation))}<br>{case}"
    )
    badge = "<span class=rw-badge>CPU</span>" if newest.is_cpu else ""
    yield f"{escape(shortened(key.runner_class))} {badge}"
    yield " → ".join(map(metric("tokens_per_s").format, newest.rates[-2:]))
    yield " → ".join(map(metric("median_ns").format, times_ns[-2:]))
    change = ""
    # a rate rises when the time falls
    if len(times_ns) > 1:
        change = percent(times_ns[-2] / times_ns[-1] - 1)
    yield change
    yield sparkline(newest.rates or times_ns)
    yield view.anchor(
        "Trend",
        "roof",
        kernel=key.kernel,
        metric="tokens_per_s" if newest.token_count else "median_ns",
        case=key.case_id,
        runner=key.runner_class,
    )


# --- one run


_STEP_COLUMNS = ("case", "implementation", "metric", "value", "formula")


def show_step_values(part: RunRecord) -> None:
    """Show the values of each workload of a record, with the formula of each."""
    show_table(
        sorted(
            _values_of(part),
            key=lambda row: (natural_order(row[0]), row[1]),
        ),
        *(Column(title, itemgetter(index)) for index, title in enumerate(_STEP_COLUMNS)),
    )
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
        yield (*subject, "time", time, "median of the block medians")
        token_count = token_counts[measurement.case_id]
        if token_count:
            rate_text = rate.format(token_count / measurement.median_ns * 1e9)
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
    records = data.ask(questions.read_case_of_runs, base_id, head_id, row.key.case_id)
    title = f"{row.key.case_id} {row.key.implementation}"
    ledgers = [ledger for ledger in ledgers_of_records(*records) if ledger.title == title]
    if not ledgers:
        return
    (ledger,) = ledgers
    st.header("Why the step changed", anchor=False)
    show_table(
        terms(ledger),
        Column("term", lambda term: term.name),
        Column("base", lambda term: term.base_ns, format_ns),
        Column("head", lambda term: term.head_ns, format_ns),
        Column("change", lambda term: term.change_ns, signed_ns),
    )
    for sentence in sentences(ledger):
        st.text(sentence)
    show_table(
        changed_rows(ledger),
        Column("kernels", kernels_text),
        Column("base launches", lambda row: row.base_launches, "{:.4g}".format),
        Column("head launches", lambda row: row.head_launches, "{:.4g}".format),
        Column("base", lambda row: row.base_ns, format_ns),
        Column("head", lambda row: row.head_ns, format_ns),
        Column("change of the step", lambda row: row.change_ns, signed_ns),
        if_empty="No kernel changed.",
    )
    st.caption(f"A step is {what_a_step_is(ledger)}. Lower is better.")
