"""What a record says about one kernel, as tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.ab.side_by_side import BestImplementation, find_best
from roofwatch.ci.messages import on_one_line
from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import natural_order
from roofwatch.model.measurement import AutotuneTiming, Autotuning, Measurement
from roofwatch.model.metrics import format_counter, format_counter_name, format_ns, metric
from roofwatch.model.results import Counters, ProfilerFinding
from roofwatch.model.verdict import Verdict

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
        # the only implementation leads nobody
        if self.best is None or self.best.comparison is None:
            return ""
        speedup = self.best.comparison.speedup
        return f"{speedup:.2f}× as fast as {self.best.runner_up}"

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
    implementations: set[str] = set()
    for measurement in measurements:
        of_case = by_case.setdefault(measurement.case_id, {})
        of_case[measurement.implementation] = measurement
        implementations.add(measurement.implementation)
    cases: list[_Case] = []
    for case_id in sorted(by_case, key=natural_order):
        case = _Case(case_id, best.get(case_id), by_case[case_id])
        cases.append(case)

    def time_column(name: str) -> Column[_Case]:
        title = on_one_line(f"{name}, time")
        return Column(title, lambda case: case.time_of(name))

    show_table(
        cases,
        Column("case", lambda case: case.case_id),
        Column("best", lambda case: case.winner),
        Column(
            "time",
            lambda case: case.fastest and case.fastest.median_ns,
            format_ns,
        ),
        Column(
            "speedup",
            lambda case: case.lead,
            help="Time of the second best over that of the best, from paired blocks.",
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
        *map(time_column, sorted(implementations)),
    )


def show_tried(tuned: Autotuning) -> None:
    """Show the configurations that the autotuner tried, fastest first, by the settings in which
    they differ.
    """
    configurations = [timing.configuration for timing in tuned.timings]
    values: dict[str, set[str]] = {}
    for configuration in configurations:
        for name in configuration:
            # 1 and 1.0 are different settings
            values[name] = {repr(tried.get(name)) for tried in configurations}
    differing = [name for name, texts in values.items() if len(texts) > 1]
    # a single configuration was tried
    if not differing:
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
        Column(
            "time",
            lambda timing: timing.time_ns,
            format_ns,
        ),
        Column("result", status),
        *map(setting_column, differing),
    )


def show_counters(counters: Sequence[Counters]) -> None:
    """Show one row per counter and one column per kernel launch, and what the profiler's own rules
    found.
    """

    def launch_column(launch: Counters) -> Column[str]:
        title = f"{launch.case_id} · {launch.implementation} · {launch.function}"
        # the first launch needs no number
        if launch.launch_index:
            title += f" #{launch.launch_index}"

        def text(name: str) -> str:
            if name not in launch.values:
                return "not read"
            return format_counter(name, launch.values[name])

        return Column(on_one_line(title), text)

    # in order of appearance
    names: dict[str, None] = {}
    findings: list[tuple[str, ProfilerFinding]] = []
    for launch in counters:
        names.update(dict.fromkeys(launch.values))
        findings.extend((launch.function, finding) for finding in launch.findings)
    show_table(
        names,
        Column("counter", format_counter_name),
        *map(launch_column, counters),
    )
    if findings:
        show_table(
            findings,
            Column("function", lambda pair: pair[0]),
            Column("rule", lambda pair: pair[1].rule),
            Column("says", lambda pair: pair[1].message),
            Column(
                "saves at most",
                lambda pair: pair[1].estimated_speedup,
                "{:.0%}".format,
            ),
        )
