"""What a record says about one kernel, as tables."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from roofwatch.ci.ab.side_by_side import BestImplementation, find_best
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


@dataclass(frozen=True)
class _Case:
    case_id: str
    best: BestImplementation | None
    measurements: Mapping[str, Measurement]
    """By implementation."""

    @property
    def fastest(self) -> Measurement | None:
        if self.best is None:
            return None
        return self.measurements[self.best.implementation]

    @property
    def winner(self) -> str:
        if self.best is None:
            return "none was measured"
        return self.best.implementation

    @property
    def lead(self) -> str:
        if self.best is None or self.best.comparison is None:
            return ""
        return f"{percent(self.best.comparison.speedup - 1)} against {self.best.runner_up}"

    @property
    def significance(self) -> str:
        if self.best is None:
            return ""
        comparison = self.best.comparison
        if comparison is None:
            return "no other timed in the same way"
        return _LEADS[comparison.verdict]

    def time_of(self, implementation: str) -> str:
        measurement = self.measurements.get(implementation)
        if measurement is None:
            return "not in this run"
        if measurement.median_ns is None:
            return measurement.outcome.replace("_", " ")
        return format_ns(measurement.median_ns)


def show_best(measurements: Sequence[Measurement]) -> None:
    """Show the best implementation of each case, its lead, and the time of each implementation."""
    best = {winner.case_id: winner for winner in find_best(measurements)}
    by_case: dict[str, dict[str, Measurement]] = {}
    for measurement in measurements:
        by_case.setdefault(measurement.case_id, {})[measurement.implementation] = measurement
    cases = [
        _Case(case_id, best.get(case_id), by_case[case_id])
        for case_id in sorted(by_case, key=natural_order)
    ]
    implementations = sorted({measurement.implementation for measurement in measurements})

    def time_column(name: str) -> Column[_Case]:
        return Column(on_one_line(f"{name}, time"), lambda case: case.time_of(name))

    show_table(
        cases,
        Column("case", lambda case: case.case_id),
        Column("best", lambda case: case.winner),
        Column("time", lambda case: case.fastest and case.fastest.median_ns, format_ns),
        Column(
            "speedup",
            lambda case: case.lead,
            help="How much slower the second best is, from paired blocks.",
        ),
        Column(
            "significant?",
            lambda case: case.significance,
            help="Verdict of the same comparison and threshold as for pull requests.",
        ),
        Column(
            "utilisation",
            lambda case: case.fastest and case.fastest.utilisation,
            metric("utilisation").format,
        ),
        Column("bound", lambda case: (case.fastest and case.fastest.bound) or ""),
        *map(time_column, implementations),
    )


def show_static(facts: Sequence[StaticFacts], earlier: Sequence[StaticFacts] | None) -> None:
    """Show the compiler facts of each function and target, changed ones first.

    Args:
        facts: Facts of this run, at least one.
        earlier: Facts of the previous measured commit, if any.
    """
    earlier_facts = {_key(fact): fact for fact in earlier or ()}
    changes = {_key(fact): "first commit" for fact in facts}
    if earlier is not None:
        for fact in facts:
            changes[_key(fact)] = _changes_text(earlier_facts.get(_key(fact)), fact)

    def fact_column(name: str) -> Column[StaticFacts]:
        help_text = METRICS[name].title
        if name == "theoretical_occupancy":
            help_text = "Resident warps / maximum warps, from the resources that the code needs."
        return Column(
            FACT_TITLES[name], lambda fact: getattr(fact, name), metric(name).format, help_text
        )

    def rank(fact: StaticFacts) -> tuple[object, ...]:
        # changed code first
        is_unchanged = changes[_key(fact)] in _NOT_CHANGED
        return (is_unchanged, *map(natural_order, _key(fact)))

    columns: list[Column[StaticFacts]] = [
        Column("target", lambda fact: fact.target),
        Column("case", lambda fact: fact.case_id),
        Column("implementation", lambda fact: fact.implementation),
        Column("function", lambda fact: fact.function),
        Column("changed", lambda fact: changes[_key(fact)]),
        Column("outcome", lambda fact: fact.outcome, outcome_text),
        Column(
            "limited by",
            lambda fact: ", ".join(fact.occupancy_limits),
            help="What prevents more blocks on an SM.",
        ),
        Column("threads", lambda fact: fact.thread_count),
        *map(fact_column, FACT_TITLES),
        Column("code hash", lambda fact: (fact.code_hash or "")[:_HASH_LENGTH]),
        Column("configuration", _configuration_text),
    ]
    # a value that all rows share is a sentence below the table
    common = _common_values(facts, columns)
    show_table(
        sorted(facts, key=rank),
        *(column for column in columns if column.title not in common),
        omit_empty=True,
    )
    constants = [f"{name} {code_span(value)}" for name, value in common.items() if value]
    if constants:
        st.caption(f"In every row: {', '.join(constants)}.")


def _common_values(
    facts: Sequence[StaticFacts],
    columns: Sequence[Column[StaticFacts]],
) -> dict[str, str]:
    """Values that are equal in all rows, by title of their column."""
    common: dict[str, str] = {}
    for column in columns:
        values = {str(column.value(fact)) for fact in facts}
        if column.title in _CONSTANT_COLUMNS and len(values) == 1:
            common[column.title] = values.pop()
    return common


def _configuration_text(facts: StaticFacts) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.configuration.items())


def _key(facts: StaticFacts) -> tuple[str, str, str, str]:
    return facts.case_id, facts.implementation, facts.function, facts.target


def _changes_text(base: StaticFacts | None, head: StaticFacts) -> str:
    if base is None:
        return "new"
    if base.outcome is not head.outcome:
        return f"{base.outcome.replace('_', ' ')} → {head.outcome.replace('_', ' ')}"
    if base.code_hash == head.code_hash:
        return "same machine code"
    facts = facts_in_words(fact_values(base), fact_values(head))
    if not facts:
        return "code changed"
    return f"code changed, {facts}"


def show_tried(tuned: Autotuning) -> None:
    """Show the configurations that the autotuner tried, fastest first, by the settings in which
    they differ.
    """
    configurations = [timing.configuration for timing in tuned.timings]
    values: dict[str, set[str]] = {}
    for configuration in configurations:
        for name in configuration:
            values[name] = {repr(tried.get(name)) for tried in configurations}
    differing = [name for name, texts in values.items() if len(texts) > 1]
    if not differing:  # a single configuration was tried
        differing = list(values)

    def status(timing: AutotuneTiming) -> str:
        if timing.time_ns is None:
            return "could not run"
        if timing.configuration == tuned.chosen:
            return "chosen"
        return "tried"

    def order(timing: AutotuneTiming) -> float:
        if timing.time_ns is None:
            return math.inf
        return timing.time_ns

    def setting_column(name: str) -> Column[AutotuneTiming]:
        return Column(name, lambda timing: str(timing.configuration.get(name, "")))

    show_table(
        sorted(tuned.timings, key=order),
        Column("time", lambda timing: timing.time_ns, format_ns),
        Column("result", status),
        *map(setting_column, differing),
    )


def show_counters(counters: Sequence[Counters]) -> None:
    """Show one row per counter and one column per kernel launch, and what the profiler's own rules
    found.
    """

    def launch_column(launch: Counters) -> Column[str]:
        title = f"{launch.case_id} · {launch.implementation} · {launch.function}"
        if launch.launch_index:
            title += f" #{launch.launch_index}"

        def text(name: str) -> str:
            if name not in launch.values:
                return "not read"
            return format_counter(name, launch.values[name])

        return Column(on_one_line(title), text)

    show_table(
        dict.fromkeys(name for launch in counters for name in launch.values),
        Column("counter", lambda name: name.replace("_", " ")),
        *map(launch_column, counters),
    )
    findings = [(launch.function, finding) for launch in counters for finding in launch.findings]
    if findings:
        show_table(
            findings,
            Column("function", lambda pair: pair[0]),
            Column("rule", lambda pair: pair[1].rule),
            Column("says", lambda pair: pair[1].message),
            Column("saves at most", lambda pair: pair[1].estimated_speedup, "{:.0%}".format),
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
        if self.tensor.passed:
            return Outcome.OK
        return Outcome.INCORRECT

    @property
    def relative_to_torch(self) -> float | None:
        if self.tensor is None or not self.tensor.baseline_rmse_ratio:
            return None
        return self.tensor.rmse_ratio / self.tensor.baseline_rmse_ratio


def show_accuracy(accuracies: Sequence[Accuracy]) -> None:
    error = metric("rmse_ratio")
    largest = metric("max_abs_error")

    def tensor_column(
        title: str,
        name: str,
        write: Callable[[float], str] | None = None,
    ) -> Column[_Checked]:
        """Return a column of a tensor, which a failed check may not have."""
        return Column(title, lambda checked: getattr(checked.tensor, name, None), write)

    show_table(
        [_Checked(check, tensor) for check in accuracies for tensor in check.tensors or (None,)],
        Column("case", lambda checked: checked.check.case_id),
        Column("implementation", lambda checked: checked.check.implementation),
        Column("outcome", lambda checked: checked.outcome, outcome_text),
        tensor_column("tensor", "tensor"),
        tensor_column(error.title, "rmse_ratio", error.format),
        tensor_column("torch's error", "baseline_rmse_ratio", error.format),
        Column("relative to torch", lambda checked: checked.relative_to_torch, "{:.2f}×".format),
        tensor_column(largest.title, "max_abs_error", largest.format),
        Column("executed on", lambda checked: checked.check.executor),
        Column("message", lambda checked: checked.check.message or ""),
    )
    st.caption(
        "A tensor is compared with the torch implementation of the same precision, within the "
        "limits of its dtype; a failure message has the limit."
    )
