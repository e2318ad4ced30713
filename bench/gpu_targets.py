"""Figures of the evidence with the limits that they must reach."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.gpu_plan import SLOWDOWNS
from roofwatch.ci.ab.compare import compare
from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.model.measurement import CaseRecord, Measurement
from roofwatch.model.record import RunRecord

_NOTICED = 0.003
"""Practical threshold for planted slowdowns, below the smallest of them."""


@dataclass(frozen=True)
class PublishedTarget:
    """A figure and the limit that it must reach."""

    text: str
    value: float
    limit: float
    is_most: bool = False
    """The limit is the highest value allowed, not the lowest."""

    @property
    def is_met(self) -> bool:
        if self.is_most:
            return self.value <= self.limit
        return self.value >= self.limit


def measured_targets(folder: Path, record: RunRecord | None) -> Iterator[PublishedTarget]:
    """Every target that has a measurement."""
    if record is not None:
        yield from _kernel_targets(record)
    floor_file = folder / "noise" / "noise_floor.json"
    if floor_file.exists():
        yield _false_alarm_target(floor_file)
    for extra in SLOWDOWNS:
        records = read_records(folder / f"planted-{extra:.0%}" / "records")
        # The subject of a planted commit begins with its slowdown.
        records.sort(key=lambda record: record.commit.subject or "")
        # One record: the second commit was not measured yet.
        if len(records) == 2:
            base, head = records
            are_found = [_is_found(*pair) for pair in _paired(base, head)]
            share_found = statistics.mean(are_found)
            yield PublishedTarget(
                text=f"+{extra:.0%} found, at least 95 %",
                value=share_found,
                limit=0.95,
            )


def _false_alarm_target(floor_file: Path) -> PublishedTarget:
    """False alarms of cases that were compared with themselves."""
    cases = NoiseFloor.parse(floor_file.read_bytes()).cases
    false_alarm_count = sum(case.is_false_alarm for case in cases)
    return PublishedTarget(
        text=f"false alarms of {len(cases)} cases measured against themselves, at most 1 %",
        value=false_alarm_count / max(1, len(cases)),
        limit=0.01,
        is_most=True,
    )


def _kernel_targets(record: RunRecord) -> Iterator[PublishedTarget]:
    """Targets of each timed case, and the rate of a copy that they refer to."""
    cases = {case.case_id: case for case in record.cases}
    by_case: dict[str, dict[str, Measurement]] = {}
    for measurement in record.measurements:
        # a failed kernel has no time to compare
        if measurement.median_ns is not None:
            by_case.setdefault(measurement.case_id, {})[measurement.implementation] = measurement
    copies: list[float] = []
    for case_id, measured in by_case.items():
        if cases[case_id].kernel == "memory_copy" and "torch" in measured:
            copies.append(_bytes_per_s(cases[case_id], measured["torch"]))
    for case_id, measured in by_case.items():
        if "triton" in measured:
            yield from _targets_of_case(cases[case_id], measured, copies)


def _targets_of_case(
    case: CaseRecord,
    measured: dict[str, Measurement],
    copies: Sequence[float],
) -> Iterator[PublishedTarget]:
    """Speed of our kernel relative to its rivals, by family and direction."""
    ours = measured["triton"]
    # above 1, ours is the faster one
    speedups: dict[str, float] = {}
    for rival, rival_measurement in measured.items():
        if rival != "triton":
            speedups[rival] = _speedup(ours, rival_measurement)
    name = case.case_id
    if case.family == "attention" and case.direction == "bwd":
        yield from _against(
            name=name,
            speedups=speedups,
            rivals=("sdpa_flash",),
            limit=1.0,
        )
    elif case.kernel == "attention":
        yield from _against(
            name=name,
            speedups=speedups,
            rivals=("sdpa_flash", "sdpa_cudnn", "torch"),
            limit=0.9,
        )
    elif case.kernel == "matmul":
        yield from _against(
            name=name,
            speedups=speedups,
            rivals=("torch",),
            limit=1.0,
        )
    elif ours.bound == "memory" and copies:
        # Pages and packed weights are read in pieces, which a copy does not have to do.
        if case.kernel in {"paged_decode_attention", "w4a16_matmul"}:
            least_share = 0.85
        else:
            least_share = 0.95
        yield PublishedTarget(
            text=f"{name}: share of copy bandwidth, {least_share}",
            value=_bytes_per_s(case, ours) / max(copies),
            limit=least_share,
        )
        yield from _against(
            name=name,
            speedups=speedups,
            rivals=("compile",),
            limit=1.0,
        )


def _against(
    name: str,
    speedups: dict[str, float],
    rivals: Sequence[str],
    limit: float,
) -> Iterator[PublishedTarget]:
    """The target against the fastest of some rivals, if one was measured."""
    measured_rivals = [rival for rival in rivals if rival in speedups]
    if measured_rivals:
        # The fastest rival is the one over which we are least faster.
        best = min(measured_rivals, key=lambda rival: speedups[rival])
        yield PublishedTarget(
            text=f"{name}: speed relative to {best}, {limit}",
            value=speedups[best],
            limit=limit,
        )


def _speedup(ours: Measurement, rival: Measurement) -> float:
    rival_ns = rival.median_ns or 0.0
    our_ns = ours.median_ns or 1.0
    return rival_ns / our_ns


def _bytes_per_s(case: CaseRecord, measurement: Measurement) -> float:
    seconds = (measurement.median_ns or 1.0) / 1e9
    return case.memory_bytes / seconds


def _paired(base: RunRecord, head: RunRecord) -> list[tuple[Measurement, Measurement]]:
    base_measurements = timed_by_subject(base)
    head_measurements = timed_by_subject(head)
    in_both = [subject for subject in base_measurements if subject in head_measurements]
    return [(base_measurements[subject], head_measurements[subject]) for subject in in_both]


def timed_by_subject(record: RunRecord) -> dict[tuple[str, str], Measurement]:
    """Timed measurements by case and implementation."""
    timed: dict[tuple[str, str], Measurement] = {}
    for measurement in record.measurements:
        if measurement.blocks:
            timed[measurement.case_key] = measurement
    return timed


def _is_found(base: Measurement, head: Measurement) -> bool:
    """Whether a planted slowdown is found between two measurements."""
    # A step that ran out of time may have stopped between the two sides.
    count = min(len(base.blocks), len(head.blocks))
    base_blocks = [block.samples_ns for block in base.blocks[:count]]
    head_blocks = [block.samples_ns for block in head.blocks[:count]]
    compared = compare(base_blocks, head_blocks, threshold=_NOTICED)
    return compared.verdict == "regressed"


def read_records(folder: Path) -> list[RunRecord]:
    return [RunRecord.read(file) for file in folder.glob("*.json.gz")]
