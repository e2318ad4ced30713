"""Series, pairs, counters and profiles of record files, as the database has them of ingested ones.

Pure. Sides of pairs count as runs of their commits.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.history.steps import ERROR, JUDGED_FACTS, SECONDARY_METRICS
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
from roofwatch.model.metrics import OPERATOR_METRICS, TIME
from roofwatch.model.proofs import OPERATORS
from roofwatch.model.record import RunRecord, Side
from roofwatch.model.results import Counters, StaticFacts
from roofwatch.model.run_setting import setting_of
from roofwatch.model.stored_results import CountedRun, ProfiledRun

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
        run = _Run(
            record=record,
            commit=commits[record.commit.sha],
            setting=setting_of(record.environment, record.harness_version),
        )
        for key, point in _points_of(run, tensors):
            points[key].append(point)
    series: list[Series] = []
    for key in sorted(points):
        in_order = sorted(points[key], key=_position_of)
        series.append(Series(key, tuple(in_order)))
    return series


def _points_of(run: _Run, tensors: Mapping[CaseKey, set[str]]) -> Iterator[_Keyed]:
    yield from _times(run)
    yield from _errors(run, tensors)
    yield from _compiled(run)
    yield from _operator_costs(run)


def _position_of(point: SeriesPoint) -> tuple[CommitRef, object, str]:
    """Order by commit; a commit that was measured twice, by time."""
    return point.commit, point.measured_at, point.run_id


def _times(run: _Run) -> Iterator[_Keyed]:
    """The time of each measurement, and the other metrics that were measured with it."""
    for measured in run.record.measurements:
        point = run.point(measured.outcome, measured.median_ns, measured.message)
        quartiles_ns = measured.quartiles_ns
        if quartiles_ns is not None:
            point.low, point.high = quartiles_ns
        # a failed measurement has no block
        point.block_count = len(measured.blocks) or None
        point.timing = timing_of(measured.timer, measured.cache)
        _add_conditions(point, measured)
        key = run.key_on_runner(measured.case_id, measured.implementation, TIME.key)
        yield key, point
        # They share the conditions of the time, but have no interval of their own.
        for metric in SECONDARY_METRICS:
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
    clocks_mhz: list[float] = []
    temperatures_c: list[float] = []
    reasons: set[str] = set()
    for block in measured.blocks:
        state = block.device_state
        # A CPU has no state, and a driver may not tell every quantity.
        if state is None:
            continue
        if state.sm_clock_mhz:
            clocks_mhz.append(state.sm_clock_mhz)
        if state.temperature_c is not None:
            temperatures_c.append(state.temperature_c)
        reasons.update(state.degraded_by)
    point.sm_clock_mhz = None
    if clocks_mhz:
        point.sm_clock_mhz = statistics.median(clocks_mhz)
    # The hottest block is the one that may have been throttled.
    point.temperature_c = max(temperatures_c, default=None)
    point.degraded_by = tuple(sorted(reasons))
    choices: list[TunedChoice] = []
    for tuned in measured.autotuning:
        configuration = _configuration_text(tuned.chosen)
        choices.append(TunedChoice(tuned.function, tuned.key, configuration))
    point.choices = tuple(choices)


def _configuration_text(chosen: Mapping[str, object]) -> str:
    settings = [f"{name}={chosen[name]}" for name in sorted(chosen)]
    return ", ".join(settings)


def _tensors_of(records: Sequence[RunRecord]) -> dict[CaseKey, set[str]]:
    """The tensors that any record has an error of, by case and implementation."""
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
        key = run.key_on_runner(*subject, ERROR)
        # without any tensor, the failures make a series of their own
        compared_tensors = tensors[subject] or {""}
        for tensor in compared_tensors:
            value = ratios.get(tensor)
            # A tensor that this commit does not have.
            if accuracy.outcome is Outcome.OK and value is None:
                continue
            point = run.point(accuracy.outcome, value, accuracy.message)
            yield replace(key, tensor=tensor), point


def _compiled(run: _Run) -> Iterator[_Keyed]:
    for facts in run.record.static_facts:
        for metric in _metrics_of(facts):
            value = getattr(facts, metric)
            point = run.point(facts.outcome, value, facts.message)
            point.code_hash = facts.code_hash
            # compiled for a target, whatever the machine
            key = run.key(facts.case_id, facts.implementation, metric)
            key_of_function = replace(key, function=facts.function, target=facts.target)
            yield key_of_function, point


def _metrics_of(facts: StaticFacts) -> list[str]:
    """The known facts; of code that did not compile, the first stands for all."""
    if facts.outcome is not Outcome.OK:
        return [JUDGED_FACTS[0]]
    return [metric for metric in JUDGED_FACTS if getattr(facts, metric) is not None]


def _operator_costs(run: _Run) -> Iterator[_Keyed]:
    for cost in run.record.operator_costs:
        for metric in OPERATOR_METRICS:
            value = float(getattr(cost, metric))
            point = run.point(Outcome.OK, value, None)
            key = run.key(cost.case_id, cost.implementation, metric)
            yield replace(key, function=OPERATORS), point


# --- evidence


def pairs_of(records: Sequence[RunRecord], commits: Mapping[str, CommitRef]) -> list[Pair]:
    """List the pairs of records: each case and implementation that both sides timed."""
    bases: dict[str, RunRecord] = {}
    heads: dict[str, RunRecord] = {}
    # The two sides are records of their own, with one pair ID.
    for record in records:
        if record.pairing is None:
            continue
        if record.pairing.side is Side.BASE:
            sides = bases
        else:
            sides = heads
        sides[str(record.pairing.pair_id)] = record
    pairs: list[Pair] = []
    for pair_id, head in heads.items():
        base = bases.get(pair_id)
        # A base that was stopped or is not fetched yet leaves its head alone.
        if base is not None:
            pairs += _pairs_of_sides(pair_id, base, head, commits)
    return pairs


def _pairs_of_sides(
    pair_id: str,
    base: RunRecord,
    head: RunRecord,
    commits: Mapping[str, CommitRef],
) -> Iterator[Pair]:
    base_measurements = {measured.case_key: measured for measured in base.measurements}
    base_code = base.run_code
    head_code = head.run_code
    for measured in head.measurements:
        base_measured = base_measurements.get(measured.case_key)
        # A case that failed on one side has no pair of times.
        if base_measured is None or not base_measured.blocks or not measured.blocks:
            continue
        yield Pair(
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
            is_same_code=base_code.is_same(head_code, measured.case_key),
        )


def _blocks_ns(measured: Measurement) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(block.samples_ns) for block in measured.blocks)


def counted_runs(
    records: Sequence[RunRecord], commits: Mapping[str, CommitRef]
) -> list[CountedRun]:
    """List the hardware counters of each case and run, in the order of the branch."""
    runs: list[CountedRun] = []
    for record in records:
        launches_by_case: dict[CaseKey, list[Counters]] = defaultdict(list)
        for counters in record.counters:
            launches_by_case[counters.case_key].append(counters)
        for (case_id, implementation), launches in launches_by_case.items():
            run = CountedRun(
                case_id=case_id,
                implementation=implementation,
                runner_class=record.environment.runner_class,
                commit=commits[record.commit.sha],
                counters=tuple(launches),
            )
            runs.append(run)
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
