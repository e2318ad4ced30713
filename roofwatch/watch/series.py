"""Series, pairs, counters and profiles of record files, as the database has them of ingested ones.

Pure. Sides of pairs count as runs of their commits.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.model.case_key import CaseKey
from roofwatch.model.history import (
    CommitRef,
    Pair,
    RunSetting,
    Series,
    SeriesKey,
    SeriesPoint,
    TunedChoice,
    timing_of,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.metrics import OPERATOR_METRICS
from roofwatch.model.proofs import OPERATORS
from roofwatch.model.record import RunRecord, Side
from roofwatch.model.results import Counters, StaticFacts
from roofwatch.model.run_setting import setting_of
from roofwatch.model.stored_results import CountedRun, ProfiledRun

# The metric that regressions are about.
TIME = "median_ns"
_SECONDARY = ("host_ns", "peak_allocated_bytes")
_ERROR = "rmse_ratio"
_FACTS = (
    "registers",
    "spilled_registers",
    "spill_store_count",
    "spill_load_count",
    "local_bytes",
    "shared_bytes",
    "theoretical_occupancy",
)

_Keyed = tuple[SeriesKey, SeriesPoint]


@dataclass(frozen=True)
class _Run:
    """What all points of a record share."""

    record: RunRecord
    commit: CommitRef
    setting: RunSetting

    def key(self, case_id: str, implementation: str, metric: str) -> SeriesKey:
        return SeriesKey(
            project=self.record.project,
            case_id=case_id,
            implementation=implementation,
            metric=metric,
        )

    def key_on_runner(self, case_id: str, implementation: str, metric: str) -> SeriesKey:
        key = self.key(case_id, implementation, metric)
        return replace(key, runner_class=self.record.environment.runner_class)

    def point(self, outcome: Outcome, value: float | None, message: str | None) -> SeriesPoint:
        return SeriesPoint(
            commit=self.commit,
            run_id=str(self.record.run_id),
            measured_at=self.record.started_at,
            outcome=outcome,
            value=value if outcome is Outcome.OK else None,
            message=message,
            setting=self.setting,
        )


def series_of(records: Sequence[RunRecord], commits: Mapping[str, CommitRef]) -> list[Series]:
    """List the judged series of records, in the order of their keys.

    Args:
        records: Of one project.
        commits: Of the branch, by sha; every record's commit is one of them.
    """
    tensors = _tensors_of(records)
    points: dict[SeriesKey, list[SeriesPoint]] = defaultdict(list)
    for record in records:
        setting = setting_of(record.environment, record.harness_version)
        run = _Run(record, commits[record.commit.sha], setting)
        for keyed_points in (
            _times(run),
            _errors(run, tensors),
            _compiled(run),
            _operator_costs(run),
        ):
            for key, point in keyed_points:
                points[key].append(point)
    series: list[Series] = []
    for key, own_points in sorted(points.items()):
        in_order = sorted(own_points, key=_place_of)
        series.append(Series(key, tuple(in_order)))
    return series


def _place_of(point: SeriesPoint) -> tuple[CommitRef, object, str]:
    return point.commit, point.measured_at, point.run_id


def _times(run: _Run) -> Iterator[_Keyed]:
    for measured in run.record.measurements:
        point = run.point(measured.outcome, measured.median_ns, measured.message)
        low_high = measured.quartiles_ns
        if low_high is not None:
            point.low, point.high = low_high
        point.block_count = len(measured.blocks) or None
        point.timing = timing_of(measured.timer, measured.cache)
        _add_conditions(point, measured)
        key = run.key_on_runner(measured.case_id, measured.implementation, TIME)
        yield key, point
        # They share the conditions of the time, but have no interval of their own.
        for metric in _SECONDARY:
            value = getattr(measured, metric)
            if value is not None:
                secondary_point = replace(
                    point,
                    value=value,
                    low=None,
                    high=None,
                    block_count=None,
                )
                yield replace(key, metric=metric), secondary_point


def _add_conditions(point: SeriesPoint, measured: Measurement) -> None:
    """Add the device's state during a measurement, and what the autotuner chose."""
    states = [block.device_state for block in measured.blocks if block.device_state is not None]
    clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz]
    temperatures_c = [state.temperature_c for state in states if state.temperature_c is not None]
    reasons: set[str] = set()
    for state in states:
        reasons.update(state.degraded_by)
    point.sm_clock_mhz = None
    if clocks:
        point.sm_clock_mhz = statistics.median(clocks)
    # The hottest block is the one that may have been throttled.
    point.temperature_c = max(temperatures_c, default=None)
    point.degraded_by = tuple(sorted(reasons))
    choices: list[TunedChoice] = []
    for tuned in measured.autotuning:
        configuration = _configuration_text(tuned.chosen)
        choices.append(TunedChoice(tuned.function, tuned.key, configuration))
    point.choices = tuple(choices)


def _configuration_text(chosen: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(chosen.items()))


def _tensors_of(records: Sequence[RunRecord]) -> dict[CaseKey, set[str]]:
    tensors: dict[CaseKey, set[str]] = defaultdict(set)
    for record in records:
        for accuracy in record.accuracies:
            subject = accuracy.case_key
            tensors[subject].update(error.tensor for error in accuracy.tensors)
    return tensors


def _errors(run: _Run, tensors: Mapping[CaseKey, set[str]]) -> Iterator[_Keyed]:
    """A failed check counts for all tensors."""
    for accuracy in run.record.accuracies:
        subject = accuracy.case_key
        ratios = {error.tensor: error.rmse_ratio for error in accuracy.tensors}
        key = run.key_on_runner(*subject, _ERROR)
        for tensor in tensors[subject] or {""}:
            value = ratios.get(tensor)
            # A tensor that this commit does not have.
            if accuracy.outcome is Outcome.OK and value is None:
                continue
            point = run.point(accuracy.outcome, value, accuracy.message)
            yield replace(key, tensor=tensor), point


def _compiled(run: _Run) -> Iterator[_Keyed]:
    for facts in run.record.static_facts:
        for metric in _metrics_of(facts):
            point = run.point(facts.outcome, getattr(facts, metric), facts.message)
            point.code_hash = facts.code_hash
            key = run.key(facts.case_id, facts.implementation, metric)
            yield replace(key, function=facts.function, target=facts.target), point


def _metrics_of(facts: StaticFacts) -> list[str]:
    """The known facts; of code that did not compile, the first stands for all."""
    if facts.outcome is not Outcome.OK:
        return [_FACTS[0]]
    return [metric for metric in _FACTS if getattr(facts, metric) is not None]


def _operator_costs(run: _Run) -> Iterator[_Keyed]:
    for cost in run.record.operator_costs:
        for metric in OPERATOR_METRICS:
            point = run.point(Outcome.OK, float(getattr(cost, metric)), None)
            key = run.key(cost.case_id, cost.implementation, metric)
            yield replace(key, function=OPERATORS), point


# --- evidence


def pairs_of(records: Sequence[RunRecord], commits: Mapping[str, CommitRef]) -> list[Pair]:
    """List the pairs of records: each case and implementation that both sides timed."""
    sides: dict[tuple[str, Side], RunRecord] = {}
    # The two sides are records of their own, with one pair ID.
    for record in records:
        if record.pairing is not None:
            sides[str(record.pairing.pair_id), record.pairing.side] = record
    pairs: list[Pair] = []
    for (pair_id, side), head in sides.items():
        base = sides.get((pair_id, Side.BASE))
        if side is not Side.HEAD or base is None:
            continue
        base_measurements = {measured.case_key: measured for measured in base.measurements}
        for measured in head.measurements:
            base_measured = base_measurements.get(measured.case_key)
            # A case that failed on one side has no pair of times.
            if base_measured is None or not (measured.blocks and base_measured.blocks):
                continue
            pair = Pair(
                project=head.project,
                pair_id=pair_id,
                base=commits[base.commit.sha],
                head=commits[head.commit.sha],
                case_id=measured.case_id,
                implementation=measured.implementation,
                runner_class=head.environment.runner_class,
                measured_at=head.started_at,
                base_blocks_ns=_blocks_ns(base_measured),
                head_blocks_ns=_blocks_ns(measured),
                timing=timing_of(measured.timer, measured.cache),
                harness_version=head.harness_version,
                preset=head.preset,
            )
            pairs.append(pair)
    return pairs


def _blocks_ns(measured: Measurement) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(block.samples_ns) for block in measured.blocks)


def counted_runs(
    records: Sequence[RunRecord], commits: Mapping[str, CommitRef]
) -> list[CountedRun]:
    """List the hardware counters of each case and run, in the order of the branch."""
    runs: list[CountedRun] = []
    for record in records:
        by_subject: dict[CaseKey, list[Counters]] = defaultdict(list)
        for counters in record.counters:
            by_subject[counters.case_key].append(counters)
        for (case_id, implementation), launches in by_subject.items():
            runs.append(
                CountedRun(
                    case_id=case_id,
                    implementation=implementation,
                    runner_class=record.environment.runner_class,
                    commit=commits[record.commit.sha],
                    counters=tuple(launches),
                )
            )
    return sorted(runs, key=lambda run: run.commit)


def profiled_runs(
    records: Sequence[RunRecord], commits: Mapping[str, CommitRef]
) -> list[ProfiledRun]:
    """List the profiles of each case and run, in the order of the branch."""
    runs: list[ProfiledRun] = []
    for record in records:
        runner_class = record.environment.runner_class
        commit = commits[record.commit.sha]
        runs.extend(ProfiledRun(runner_class, commit, profile) for profile in record.profiles)
    return sorted(runs, key=lambda run: run.commit)
