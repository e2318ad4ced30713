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
from roofwatch.ci.history.recent import Spread, compare_medians
from roofwatch.ci.report.step import (
    changed_rows,
    kernels_text,
    sentences,
    signed_ns,
    terms,
    what_a_step_is,
)
from roofwatch.dashboard import data
from roofwatch.dashboard.comparison import ComparedCase
from roofwatch.dashboard.components.page import MAIN_FIGURE, View
from roofwatch.dashboard.components.regressions import sparkline
from roofwatch.dashboard.components.table import Column, grouped, show_html_table, show_table
from roofwatch.dashboard.wording import natural_order, percent, shortened
from roofwatch.db.queries import questions
from roofwatch.model.metrics import TIME, format_ns, metric
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import RecentRuns, RecentSeries
from roofwatch.model.verdict import Verdict
from roofwatch.spec.workload import WORKLOADS

CPU_NOTE = "Rates and times of a CPU say nothing about a GPU."
_ROWS_AT_FIRST = 10


@dataclass(frozen=True)
class _Newest:
    """The newest value of one workload on one runner class."""

    series: RecentSeries
    token_count: float | None
    is_cpu: bool
    is_within_noise: bool

    @property
    def rates(self) -> list[float]:
        """Return the tokens per second of each run; empty without tokens."""
        return (
            [self.token_count / median_ns * 1e9 for median_ns in self.series.values]
            if self.token_count
            else []
        )

    @property
    def place(self) -> tuple[object, ...]:
        """Return the sort key: GPUs first."""
        return self.is_cpu, natural_order(self.series.key.case_id), self.series.key.runner_class


def show_workloads(view: View, recent: Sequence[RecentRuns]) -> None:
    """Show the newest rate and time of each workload on each runner against the run before, if
    there are any.
    """
    found = sorted(
        (one for runner in recent for one in _newest_of(view, runner)), key=lambda one: one.place
    )
    if not found:
        return
    st.header("Workloads", anchor=False)
    if len(found) > _ROWS_AT_FIRST and not view.link.switch(
        f"Show more than the first {_ROWS_AT_FIRST} workloads", parameter="workloads"
    ):
        found = found[:_ROWS_AT_FIRST]
    titles = (
        "workload",
        "runner",
        "token rate",
        "time of a step",
        "change of the rate",
        "newest runs",
        "",
    )
    show_html_table(([f"<td>{cell}</td>" for cell in _cells(view, one)] for one in found), *titles)
    st.caption(
        "The run before → the newest run, with the implementation that is the fastest there. "
        f"{CPU_NOTE if any(one.is_cpu for one in found) else ''}"
    )


def _newest_of(view: View, runner: RecentRuns) -> list[_Newest]:
    """Return the fastest implementation of each workload in its newest run."""
    facets = view.filters.facets
    tokens = {
        case.case_id: case.costs.get("tokens_per_s")
        for case in facets.cases
        if case.family == WORKLOADS
    }
    own = [
        one
        for one in runner.series
        if one.key.metric == TIME.key
        and one.key.case_id in tokens
        and view.filters.admits_series(one.key)
    ]
    by_case = grouped(own, lambda one: one.key.case_id)
    best = {
        case: min(own, key=lambda one: (-one.places[-1], one.values[-1]))
        for case, own in by_case.items()
    }
    known = {
        (case, one.key.implementation): one.values
        for case, one in best.items()
        if len(one.values) > 1
    }
    spreads = {
        case: spread
        for case, medians_ns in known.items()
        if (spread := Spread.of(medians_ns)) is not None
    }
    judged = compare_medians(
        {case: (medians_ns[-2], medians_ns[-1]) for case, medians_ns in known.items()}, spreads
    )
    quiet = {case for (case, _), one in judged.items() if one.verdict is Verdict.UNCHANGED}
    is_cpu = runner.runner_class in facets.cpu_classes
    return [_Newest(one, tokens[case], is_cpu, case in quiet) for case, one in best.items()]


def _cells(view: View, one: _Newest) -> Iterator[str]:
    """Write the cells of a row as HTML. Text from records is escaped."""
    key, times_ns = one.series.key, one.series.values
    name = "tokens_per_s" if one.token_count else "median_ns"
    case = escape(shortened(key.case_id.removeprefix(f"{key.kernel}/")))
    yield (
        f"<b>{escape(shortened(key.kernel))}</b> {escape(shortened(key.implementation))}<br>{case}"
    )
    yield (
        f"{escape(shortened(key.runner_class))} "
        f"{'<span class=rw-badge>CPU</span>' if one.is_cpu else ''}"
    )
    for unit, values in (("tokens_per_s", one.rates), ("median_ns", times_ns)):
        yield " → ".join(map(metric(unit).format, values[-2:]))
    change = percent(times_ns[-2] / times_ns[-1] - 1) if len(times_ns) > 1 else ""
    yield f"{change}{', within noise' if one.is_within_noise else ''}"
    yield sparkline(one.rates or times_ns)
    asked = {"kernel": key.kernel, "metric": name, "case": key.case_id, "runner": key.runner_class}
    yield view.anchor("Trend", "trends", **asked)


# --- one run


_STEP_COLUMNS = ("case", "implementation", "metric", "value", "formula")


def show_step_values(part: RunRecord) -> None:
    """Show the values of each workload of a record, with the formula of each."""
    st.header("Values of a step", anchor=False)
    show_table(
        sorted(_values_of(part), key=lambda row: (natural_order(row[0]), row[1])),
        *(Column(title, itemgetter(at)) for at, title in enumerate(_STEP_COLUMNS)),
        if_empty="This run has no measurement of this workload.",
        key=MAIN_FIGURE,
    )
    if part.environment.device_kind == "cpu":
        st.caption(CPU_NOTE)


def _values_of(part: RunRecord) -> Iterator[tuple[str, ...]]:
    token_counts = {case.case_id: case.token_count for case in part.cases}
    for one in part.measurements:
        if one.median_ns is not None:
            count, time = token_counts[one.case_id], format_ns(one.median_ns)
            yield one.case_id, one.implementation, "time", time, "median of the block medians"
            if count:
                rate = metric("tokens_per_s")
                text = rate.format(count / one.median_ns * 1e9)
                yield (
                    one.case_id,
                    one.implementation,
                    rate.title,
                    text,
                    f"{count:,.0f} tokens / {time}",
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


def show_step_changes(
    view: View, rows: Sequence[ComparedCase], base_id: UUID, head_id: UUID
) -> None:
    """Show the difference of a step as a sum over kernels, gaps and overlap, if both runs profiled
    any of the rows.
    """
    profiled = {f"{row.case_id} {row.implementation}": row for row in rows if row.is_profiled}
    if not profiled:
        return
    st.header("Why a step changed", anchor=False)
    title = view.link.choose("Step of", list(profiled), parameter="step")
    records = data.ask(questions.read_case_of_runs, base_id, head_id, profiled[title].case_id)
    ledger = next(one for one in ledgers_of_records(*records) if one.title == title)
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
