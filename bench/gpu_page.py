"""The page of `bench/gpu_evidence.py`: targets with what was measured, and timers beside each
other.
"""

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofwatch.ci.ab.compare import compare
from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.model.measurement import CaseRecord, Measurement
from roofwatch.model.metrics import format_ns
from roofwatch.model.record import RunRecord

TIMERS = ("cupti", "cuda_graph", "cuda_event")
SLOWDOWNS = (0.01, 0.02, 0.05)
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


def page(folder: Path, failures: dict[str, str]) -> str:
    """Markdown: every target with what was measured, and what could not be measured."""
    record = _newest_record(folder)
    lines = ["# Evidence from a GPU", ""]
    if record is not None:
        lines += _machine_lines(record)
    lines += ["| target | measured | met |", "|---|---|---|"]
    for target in measured_targets(folder, record):
        is_met = "yes" if target.is_met else "no"
        lines.append(f"| {target.text} | {target.value:.3g} | {is_met} |")
    timer_records: dict[str, RunRecord] = {}
    for timer in TIMERS:
        timer_record = _record(folder / f"timer-{timer}.json.gz")
        if timer_record is not None:
            timer_records[timer] = timer_record
    lines += ["", "## Timers, hot cache", "", *compare_timers(timer_records)]
    predicted = folder / "bounds.json"
    if predicted.exists() and record is not None:
        bounds = json.loads(predicted.read_text())
        lines += ["", "## Predicted from compiled code", ""]
        lines += _predictions(bounds, record)
    peers = folder / "peers.json"
    if peers.exists():
        lines += _peer_lines(json.loads(peers.read_text()))
    submitted = folder / "submit.json"
    if submitted.exists():
        verdict = json.loads(submitted.read_text())
        lines += [
            "",
            "## A candidate as fast as torch",
            "",
            f"`submit`: {verdict['verdict']}, {verdict['reason']}",
        ]
    lines += ["", "## Missing", ""]
    lines += [f"- {name}: {why}" for name, why in failures.items()]
    return "\n".join(lines) + "\n"


def _newest_record(folder: Path) -> RunRecord | None:
    # Each of these steps measures all kernels of the one before it.
    for name in ("quick.json.gz", "headlines.json.gz", "first.json.gz"):
        record = _record(folder / name)
        if record is not None:
            return record
    return None


def _machine_lines(record: RunRecord) -> list[str]:
    machine = record.environment
    versions = f"torch {machine.torch_version}, triton {machine.triton_version}"
    lines = [
        f"{machine.device_name}, driver {machine.driver_version}, {versions}; "
        f"commit {record.commit.sha[:12]}.",
        "",
    ]
    for ceiling in record.ceilings:
        subject = ceiling.dtype or ceiling.level or ""
        lines.append(f"- {ceiling.resource} {subject}: {ceiling.method}")
    lines.append("")
    return lines


def _peer_lines(times_by_launch: dict[str, dict[str, float]]) -> list[str]:
    lines = [
        "",
        "## The same launches by triton.testing (do_bench: cold cache, with a graph: warm)",
        "",
    ]
    for name, times_ns in times_by_launch.items():
        times = [f"{timer} {format_ns(time_ns)}" for timer, time_ns in times_ns.items()]
        lines.append(f"- {name}: {', '.join(times)}")
    return lines


def measured_targets(folder: Path, record: RunRecord | None) -> Iterator[PublishedTarget]:
    """Every target that has a measurement."""
    if record is not None:
        yield from _kernel_targets(record)
    floor_file = folder / "noise" / "noise_floor.json"
    if floor_file.exists():
        yield _false_alarm_target(floor_file)
    for extra in SLOWDOWNS:
        records = _records(folder / f"planted-{extra:.0%}" / "records")
        # The subject of a planted commit begins with its slowdown.
        records.sort(key=lambda record: record.commit.subject or "")
        # One record: the second commit was not measured yet.
        if len(records) == 2:
            base, head = records
            pairs = _paired(base, head)
            share_found = statistics.mean(_is_found(*pair) for pair in pairs)
            yield PublishedTarget(f"+{extra:.0%} found, at least 95 %", share_found, 0.95)


def _false_alarm_target(floor_file: Path) -> PublishedTarget:
    cases = NoiseFloor.parse(floor_file.read_bytes()).cases
    false_alarm_count = sum(case.is_false_alarm for case in cases)
    return PublishedTarget(
        text=f"false alarms of {len(cases)} cases measured against themselves, at most 1 %",
        value=false_alarm_count / max(1, len(cases)),
        limit=0.01,
        is_most=True,
    )


def _predictions(bounds: list[dict[str, Any]], record: RunRecord) -> Iterator[str]:
    """The share of the roof that each function can reach at most by its compiled code, and that of
    its whole case.
    """
    target = record.environment.compile_target
    measured: dict[str, float | None] = {}
    for measurement in record.measurements:
        if measurement.implementation == "triton":
            measured[measurement.case_id] = measurement.utilisation
    yield "| case | function | roof | predicted, at most | measured |"
    yield "|---|---|---|--:|--:|"
    for bound in bounds:
        share = measured.get(bound["case_id"])
        # The file has bounds for several GPUs.
        if bound["target"] != target or share is None:
            continue
        cells = [
            bound["case_id"],
            bound["function"],
            bound["roof"],
            f"{bound['predicted']:.2f}",
            f"{share:.2f}",
        ]
        yield f"| {' | '.join(cells)} |"


def _kernel_targets(record: RunRecord) -> Iterator[PublishedTarget]:
    cases = {case.case_id: case for case in record.cases}
    by_case: dict[str, dict[str, Measurement]] = {}
    for measurement in record.measurements:
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
    ours = measured["triton"]
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
    measured_rivals = [rival for rival in rivals if rival in speedups]
    if measured_rivals:
        # The fastest rival is the one over which we are least faster.
        best = min(measured_rivals, key=lambda rival: speedups[rival])
        yield PublishedTarget(f"{name}: speed relative to {best}, {limit}", speedups[best], limit)


def _speedup(ours: Measurement, rival: Measurement) -> float:
    rival_ns = rival.median_ns or 0.0
    our_ns = ours.median_ns or 1.0
    return rival_ns / our_ns


def _bytes_per_s(case: CaseRecord, measurement: Measurement) -> float:
    seconds = (measurement.median_ns or 1.0) / 1e9
    return case.memory_bytes / seconds


def _paired(base: RunRecord, head: RunRecord) -> list[tuple[Measurement, Measurement]]:
    base_measurements = _timed_by_subject(base)
    head_measurements = _timed_by_subject(head)
    in_both = [subject for subject in base_measurements if subject in head_measurements]
    return [(base_measurements[subject], head_measurements[subject]) for subject in in_both]


def _timed_by_subject(record: RunRecord) -> dict[tuple[str, str], Measurement]:
    timed: dict[tuple[str, str], Measurement] = {}
    for measurement in record.measurements:
        if measurement.blocks:
            timed[measurement.case_id, measurement.implementation] = measurement
    return timed


def _is_found(base: Measurement, head: Measurement) -> bool:
    # A step that ran out of time may have stopped between the two sides.
    count = min(len(base.blocks), len(head.blocks))
    base_blocks = [block.samples_ns for block in base.blocks[:count]]
    head_blocks = [block.samples_ns for block in head.blocks[:count]]
    compared = compare(base_blocks, head_blocks, threshold=_NOTICED)
    return compared.verdict == "regressed"


def compare_timers(records: dict[str, RunRecord]) -> Iterator[str]:
    """Median by each timer, and the highest relative to the lowest."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for timer, record in records.items():
        for subject, measurement in _timed_by_subject(record).items():
            if measurement.median_ns:
                rows.setdefault(subject, {})[timer] = measurement.median_ns
    yield f"| case | implementation | {' | '.join(records)} | difference |"
    yield f"|---|---|{'--:|' * (len(records) + 1)}"
    for subject, times_ns in rows.items():
        # A timer may not support a kernel.
        cells = [format_ns(times_ns[timer]) if timer in times_ns else "" for timer in records]
        difference = ""
        if len(times_ns) > 1:
            ratio = max(times_ns.values()) / min(times_ns.values())
            difference = f"{ratio - 1:.1%}"
        yield f"| {' | '.join([*subject, *cells, difference])} |"


def _record(file: Path) -> RunRecord | None:
    if not file.exists():
        return None
    return RunRecord.read(file)


def _records(folder: Path) -> list[RunRecord]:
    return [RunRecord.read(file) for file in folder.glob("*.json.gz")]
