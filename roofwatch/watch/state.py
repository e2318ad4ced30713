"""What a folder of records says about a branch on one runner class."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofwatch.ci.causes.evidence import SupportingEvidence
from roofwatch.ci.history.history import analyse_series
from roofwatch.ci.suspicion import find_suspicion
from roofwatch.model.agenda import ChangedRange, Subject, SuspectCase, WatchState
from roofwatch.model.history import (
    CommitRef,
    Pair,
    Regression,
    RegressionState,
    Series,
    SeriesKey,
    SeriesPoint,
    timing_of,
)
from roofwatch.model.record import RunRecord, Side
from roofwatch.model.verdict import THRESHOLDS

_DEFAULT_RUN_S = 600.0
_DEFAULT_CASE_S = 10.0


@dataclass(frozen=True)
class KnownHistory:
    """Series, pairs and regressions of the records."""

    state: WatchState
    regressions: tuple[Regression, ...]


def read_history(
    records: Iterable[RunRecord], commits: Sequence[CommitRef], runner_class: str
) -> KnownHistory:
    """Analyse the records of one project, those of the branch and the runner class.

    Args:
        records: Of one project; others than of the branch and the runner class are left out.
        commits: Of the branch, oldest first.
        runner_class: Of this machine.
    """
    by_sha = {commit.sha: commit for commit in commits}
    own = [
        record
        for record in records
        if record.commit.sha in by_sha
        and not record.commit.is_dirty
        and record.foreign_code is None
        and record.environment.runner_class == runner_class
    ]
    series = _series(own, by_sha)
    pairs = _pairs(own, by_sha)
    analysis = analyse_series(series, SupportingEvidence(pairs))
    regressions = tuple(analysis.regressions())
    calibrations = [pair.measured_at for pair in pairs if pair.base == pair.head]
    state = WatchState(
        commits=tuple(commits),
        measured=frozenset(record.commit.sha for record in own),
        paired=frozenset((pair.base.sha, pair.head.sha) for pair in pairs),
        suspects=tuple(_suspects(series)),
        ranges=tuple(_ranges(regressions)),
        calibrated_at=max(calibrations, default=None),
        seconds_of_run=_seconds_of_run(own),
        seconds_of_case=_seconds_of_case(own),
    )
    return KnownHistory(state, regressions)


def _series(records: Sequence[RunRecord], by_sha: dict[str, CommitRef]) -> list[Series]:
    """The median times of each case; runs of pairs count as runs of their commits."""
    points: dict[SeriesKey, list[SeriesPoint]] = defaultdict(list)
    for record in records:
        for measured in record.measurements:
            key = SeriesKey(
                project=record.project,
                case_id=measured.case_id,
                implementation=measured.implementation,
                metric="median_ns",
                runner_class=record.environment.runner_class,
            )
            timing = timing_of(measured.timer, measured.cache) if measured.blocks else ""
            points[key].append(
                SeriesPoint(
                    commit=by_sha[record.commit.sha],
                    run_id=str(record.run_id),
                    measured_at=record.started_at,
                    outcome=measured.outcome,
                    value=measured.median_ns,
                    message=measured.message,
                    block_count=len(measured.blocks),
                    timing=timing,
                )
            )
    return [
        Series(key, tuple(sorted(own, key=lambda point: (point.commit, point.measured_at))))
        for key, own in sorted(points.items())
    ]


def _pairs(records: Sequence[RunRecord], by_sha: dict[str, CommitRef]) -> list[Pair]:
    sides: dict[tuple[str, Side], RunRecord] = {}
    for record in records:
        if record.pairing is not None:
            sides[str(record.pairing.pair_id), record.pairing.side] = record
    pairs: list[Pair] = []
    for (pair_id, side), head in sides.items():
        base = sides.get((pair_id, Side.BASE))
        if side is not Side.HEAD or base is None:
            continue
        base_blocks = _blocks_ns(base)
        for subject, head_blocks in _blocks_ns(head).items():
            if subject not in base_blocks:
                continue
            case_id, implementation = subject
            pairs.append(
                Pair(
                    project=head.project,
                    pair_id=pair_id,
                    base=by_sha[base.commit.sha],
                    head=by_sha[head.commit.sha],
                    case_id=case_id,
                    implementation=implementation,
                    runner_class=head.environment.runner_class,
                    measured_at=head.started_at,
                    base_blocks_ns=base_blocks[subject],
                    head_blocks_ns=head_blocks,
                )
            )
    return pairs


def _blocks_ns(record: RunRecord) -> dict[Subject, tuple[tuple[float, ...], ...]]:
    return {
        (measured.case_id, measured.implementation): tuple(
            tuple(block.samples_ns) for block in measured.blocks
        )
        for measured in record.measurements
        if measured.blocks
    }


def _suspects(series: Sequence[Series]) -> list[SuspectCase]:
    suspects: list[SuspectCase] = []
    for one in series:
        values: dict[CommitRef, list[float]] = defaultdict(list)
        for point in one.points:
            if point.value is not None:
                values[point.commit].append(point.value)
        medians = [statistics.median(own) for own in values.values()]
        suspicion = find_suspicion(medians, min_relative_change=THRESHOLDS.relative_change)
        if suspicion is None:
            continue
        measured = list(values)
        suspects.append(
            SuspectCase(
                subject=(one.key.case_id, one.key.implementation),
                suspicion=suspicion,
                base=measured[-suspicion.value_count - 1],
                head=measured[-suspicion.value_count],
            )
        )
    return suspects


def _ranges(regressions: Sequence[Regression]) -> list[ChangedRange]:
    """The confirmed changes of times, by the commits between which they lie."""
    ranges: dict[tuple[CommitRef, CommitRef], set[Subject]] = defaultdict(set)
    for regression in regressions:
        if not regression.is_confirmed or regression.state is not RegressionState.OPEN:
            continue
        for point in regression.change_points:
            if point.before is not None and point.after is not None:
                subject = (point.series.case_id, point.series.implementation)
                ranges[point.previous_commit, point.commit].add(subject)
    return [
        ChangedRange(subjects=frozenset(subjects), base=base, head=head)
        for (base, head), subjects in ranges.items()
    ]


def _seconds_of_run(records: Sequence[RunRecord]) -> float:
    durations = [
        (record.finished_at - record.started_at).total_seconds()
        for record in records
        if record.pairing is None
    ]
    return statistics.median(durations) if durations else _DEFAULT_RUN_S


def _seconds_of_case(records: Sequence[RunRecord]) -> float:
    durations = [
        (record.finished_at - record.started_at).total_seconds() / len(record.measurements)
        for record in records
        if record.pairing is not None and record.measurements
    ]
    return statistics.median(durations) if durations else _DEFAULT_CASE_S
