"""What a record says about one kernel, as tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from roofwatch.ci.ab.side_by_side import BestImplementation, find_best
from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.ci.messages import on_one_line
from roofwatch.ci.static.facts import fact_values, facts_in_words
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import code_span, natural_order, outcome_text, percent
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import AutotuneTiming, Autotuning, Measurement
from roofwatch.model.metrics import METRICS, format_counter, format_ns, metric
from roofwatch.model.results import Accuracy, Counters, StaticFacts, TensorError
from roofwatch.model.verdict import Verdict

FACT_TITLES: Mapping[str, str] = {
    "registers": "registers",
    "spilled_registers": "spilled",
    "spill_store_count": "spill stores",
    "spill_load_count": "spill loads",
    "local_bytes": "local memory",
    "shared_bytes": "shared memory",
    "theoretical_occupancy": "occupancy",
    "instruction_count": "instructions",
    "code_bytes": "code size",
}
"""Column titles of metrics of compiled code."""
_HASH_LENGTH = 12
_CONSTANT_COLUMNS = ("case", "implementation", "function", "outcome", "configuration")
"""Columns that are left out if all rows have the same value."""
_NOT_CHANGED = ("same machine code", "first commit")
_LEADS = {
    Verdict.IMPROVED: "faster",
    Verdict.UNCHANGED: "as fast",
    Verdict.REGRESSED: "slower",
    Verdict.INCONCLUSIVE: "within the noise",
}
"""Text of the verdict on the best implementation against the second best."""


def show_diagnoses(diagnoses: Sequence[Diagnosis]) -> None:
    show_table(
        diagnoses,
        Column("case", lambda one: one.evidence.case.case_id),
        Column("implementation", lambda one: one.evidence.implementation),
        Column("limit", lambda one: str(one.limit)),
        Column("why", lambda one: str(one.headline)),
        Column("first finding", lambda one: one.findings[0].title if one.findings else ""),
        Column("try", lambda one: one.findings[0].advice if one.findings else ""),
    )


@dataclass(frozen=True)
class _Case:
    case_id: str
    best: BestImplementation | None
    measurements: Mapping[str, Measurement]
    """By implementation."""

    @property
    def fastest(self) -> Measurement | None:
        return None if self.best is None else self.measurements[self.best.implementation]

    @property
    def lead(self) -> str:
        if self.best is None or self.best.comparison is None:
            return ""
        return f"{percent(self.best.comparison.speedup - 1)} against {self.best.runner_up}"

    @property
    def significance(self) -> str:
        if self.best is None:
            return ""
        against = self.best.comparison
        return "no other timed in the same way" if against is None else _LEADS[against.verdict]

    def time_of(self, implementation: str) -> str:
        measurement = self.measurements.get(implementation)
        if measurement is None:
            return "not in this run"
        median_ns = measurement.median_ns
        return measurement.outcome.replace("_", " ") if median_ns is None else format_ns(median_ns)


def show_best(measurements: Sequence[Measurement]) -> None:
    """Show the best implementation of each case, its lead, and the time of each implementation."""
    st.header("Best implementation by case", anchor=False)
    best = {one.case_id: one for one in find_best(measurements)}
    by_case: dict[str, dict[str, Measurement]] = {}
    for one in measurements:
        by_case.setdefault(one.case_id, {})[one.implementation] = one

    def time_column(name: str) -> Column[_Case]:
        return Column(on_one_line(f"{name}, time"), lambda one: one.time_of(name))

    show_table(
        [
            _Case(case_id, best.get(case_id), by_case[case_id])
            for case_id in sorted(by_case, key=natural_order)
        ],
        Column("case", lambda one: one.case_id),
        Column(
            "best", lambda one: "none was measured" if one.best is None else one.best.implementation
        ),
        Column("time", lambda one: one.fastest and one.fastest.median_ns, format_ns),
        Column(
            "speedup",
            lambda one: one.lead,
            help="How much slower the second best is, from paired blocks.",
        ),
        Column(
            "significant?",
            lambda one: one.significance,
            help="Verdict of the same comparison and threshold as for pull requests.",
        ),
        Column(
            "utilisation",
            lambda one: one.fastest and one.fastest.utilisation,
            metric("utilisation").format,
        ),
        Column("bound", lambda one: (one.fastest and one.fastest.bound) or ""),
        *map(time_column, sorted({one.implementation for one in measurements})),
        if_empty="This run has no times of it.",
    )


def show_static(facts: Sequence[StaticFacts], earlier: Sequence[StaticFacts] | None) -> None:
    """Show the compiler facts of each function and target, changed ones first.

    Args:
        facts: Facts of this run, at least one.
        earlier: Facts of the previous measured commit, if any.
    """
    before = {_key(one): one for one in earlier or ()}
    changes = {
        _key(one): "first commit" if earlier is None else _changes_text(before.get(_key(one)), one)
        for one in facts
    }

    def fact_column(name: str) -> Column[StaticFacts]:
        help_text = METRICS[name].title
        if name == "theoretical_occupancy":
            help_text = "Resident warps / maximum warps, from the resources that the code needs."
        return Column(
            FACT_TITLES[name], lambda one: getattr(one, name), metric(name).format, help_text
        )

    columns: list[Column[StaticFacts]] = [
        Column("target", lambda one: one.target),
        Column("case", lambda one: one.case_id),
        Column("implementation", lambda one: one.implementation),
        Column("function", lambda one: one.function),
        Column("changed", lambda one: changes[_key(one)]),
        Column("outcome", lambda one: one.outcome, outcome_text),
        Column(
            "limited by",
            lambda one: ", ".join(one.occupancy_limits),
            help="What prevents more blocks on an SM.",
        ),
        Column("threads", lambda one: one.thread_count),
        *map(fact_column, FACT_TITLES),
        Column("code hash", lambda one: (one.code_hash or "")[:_HASH_LENGTH]),
        Column(
            "configuration", lambda one: ", ".join(f"{k}={v}" for k, v in one.configuration.items())
        ),
    ]
    values = {column.title: {str(column.value(one)) for one in facts} for column in columns}
    common = {name: "".join(values[name]) for name in _CONSTANT_COLUMNS if len(values[name]) == 1}
    show_table(
        sorted(
            facts,
            key=lambda one: (changes[_key(one)] in _NOT_CHANGED, *map(natural_order, _key(one))),
        ),
        *(column for column in columns if column.title not in common),
        omit_empty=True,
    )
    told = [f"{name} {code_span(value)}" for name, value in common.items() if value]
    if told:
        st.caption(f"In every row: {', '.join(told)}.")


def _key(facts: StaticFacts) -> tuple[str, str, str, str]:
    return facts.case_id, facts.implementation, facts.function, facts.target


def _changes_text(before: StaticFacts | None, now: StaticFacts) -> str:
    if before is None:
        return "new"
    if before.outcome is not now.outcome:
        return f"{before.outcome.replace('_', ' ')} → {now.outcome.replace('_', ' ')}"
    if before.code_hash == now.code_hash:
        return "same machine code"
    facts = facts_in_words(fact_values(before), fact_values(now))
    return f"code changed, {facts}" if facts else "code changed"


def show_tried(tuned: Autotuning) -> None:
    """Show the configurations that the autotuner tried, fastest first, by the settings in which
    they differ.
    """
    every = [one.configuration for one in tuned.timings]
    settings = dict.fromkeys(name for one in every for name in one)
    differing = [
        name for name in settings if len({repr(one.get(name)) for one in every}) > 1
    ] or list(settings)

    def status(one: AutotuneTiming) -> str:
        if one.time_ns is None:
            return "could not run"
        return "chosen" if one.configuration == tuned.chosen else "tried"

    def setting_column(name: str) -> Column[AutotuneTiming]:
        return Column(name, lambda one: str(one.configuration.get(name, "")))

    show_table(
        sorted(tuned.timings, key=lambda one: math.inf if one.time_ns is None else one.time_ns),
        Column("time", lambda one: one.time_ns, format_ns),
        Column("result", status),
        *map(setting_column, differing),
    )


def show_counters(counters: Sequence[Counters]) -> None:
    """Show one row per counter and one column per kernel launch, and what the profiler's own rules
    found.
    """

    def launch_column(launch: Counters) -> Column[str]:
        title = f"{launch.case_id} · {launch.implementation} · {launch.function}"
        number = f" #{launch.launch_index}" if launch.launch_index else ""
        return Column(
            on_one_line(title + number),
            lambda name: (
                format_counter(name, launch.values[name]) if name in launch.values else "not read"
            ),
        )

    st.header("Hardware counters", anchor=False)
    show_table(
        dict.fromkeys(name for one in counters for name in one.values),
        Column("counter", lambda name: name.replace("_", " ")),
        *map(launch_column, counters),
        if_empty="No hardware counters in this run. On a machine with Nsight Compute: roofwatch "
        "ncu KERNEL",
    )
    findings = [(one.function, finding) for one in counters for finding in one.findings]
    if findings:
        show_table(
            findings,
            Column("function", lambda found: found[0]),
            Column("rule", lambda found: found[1].rule),
            Column("says", lambda found: found[1].message),
            Column("saves at most", lambda found: found[1].estimated_speedup, "{:.0%}".format),
        )


@dataclass(frozen=True)
class _Checked:
    """One tensor of an accuracy check; None if the check failed before any was compared."""

    check: Accuracy
    tensor: TensorError | None

    @property
    def outcome(self) -> Outcome:
        if self.tensor is None:
            return self.check.outcome
        return Outcome.OK if self.tensor.passed else Outcome.INCORRECT

    @property
    def relative_to_torch(self) -> float | None:
        if self.tensor is None or not self.tensor.baseline_rmse_ratio:
            return None
        return self.tensor.rmse_ratio / self.tensor.baseline_rmse_ratio


def show_accuracy(accuracies: Sequence[Accuracy]) -> None:
    st.header("Accuracy against the float64 reference", anchor=False)
    error, largest = metric("rmse_ratio"), metric("max_abs_error")
    show_table(
        [_Checked(one, tensor) for one in accuracies for tensor in one.tensors or (None,)],
        Column("case", lambda one: one.check.case_id),
        Column("implementation", lambda one: one.check.implementation),
        Column("outcome", lambda one: one.outcome, outcome_text),
        Column("tensor", lambda one: one.tensor.tensor if one.tensor else ""),
        Column(error.title, lambda one: one.tensor and one.tensor.rmse_ratio, error.format),
        Column(
            "torch's error", lambda one: one.tensor and one.tensor.baseline_rmse_ratio, error.format
        ),
        Column("relative to torch", lambda one: one.relative_to_torch, "{:.2f}×".format),
        Column(largest.title, lambda one: one.tensor and one.tensor.max_abs_error, largest.format),
        Column("executed on", lambda one: one.check.executor),
        Column("message", lambda one: one.check.message or ""),
        if_empty="No accuracy check is stored for this kernel in this run.",
    )
    if accuracies:
        st.caption(
            "A tensor is compared with the torch implementation of the same precision, within the "
            "limits of its dtype; "
            "a failure message has the limit."
        )
