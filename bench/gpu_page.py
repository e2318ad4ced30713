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
    lines = ["# Evidence from a GPU", ""]
    record = (
        _record(folder / "quick.json.gz")
        or _record(folder / "headlines.json.gz")
        or _record(folder / "first.json.gz")
    )
    if record is not None:
        machine = record.environment
        lines += [
            f"{machine.device_name}, driver {machine.driver_version}, torch "
            f"{machine.torch_version}, triton "
            f"{machine.triton_version}; commit {record.commit.sha[:12]}.",
            "",
        ]
        for ceiling in record.ceilings:
            subject = ceiling.dtype or ceiling.level or ""
            lines.append(f"- {ceiling.resource} {subject}: {ceiling.method}")
        lines.append("")
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
        lines += [
            "",
            "## Predicted from compiled code",
            "",
            *_predictions(json.loads(predicted.read_text()), record),
        ]
    peers = folder / "peers.json"
    if peers.exists():
        lines += [
            "",
            "## The same launches by triton.testing (do_bench: cold cache, with a graph: warm)",
            "",
        ]
        for name, times_ns in json.loads(peers.read_text()).items():
            times = [f"{timer} {format_ns(time_ns)}" for timer, time_ns in times_ns.items()]
            lines.append(f"- {name}: {', '.join(times)}")
    submitted = folder / "submit.json"
    if submitted.exists():
        verdict = json.loads(submitted.read_text())
        lines += [
            "",
            "## A candidate as fast as torch",
            "",
            f"`submit`: {verdict['verdict']}, {verdict['reason']}",
        ]
    lines += [
        "",
        "## Missing",
        "",
        *(f"- {name}: {why}" for name, why in failures.items()),
    ]
    return "\n".join(lines) + "\n"


def measured_targets(folder: Path, record: RunRecord | None) -> Iterator[PublishedTarget]:
    """Every target that has a measurement."""
    if record is not None:
        yield from _kernel_targets(record)
    floor_file = folder / "noise" / "noise_floor.json"
    if floor_file.exists():
        cases = NoiseFloor.parse(floor_file.read_bytes()).cases
        false_alarms = sum(case.is_false_alarm for case in cases) / max(1, len(cases))
        yield PublishedTarget(
            text=f"false alarms of {len(cases)} cases measured against themselves, at most 1 %",
            value=false_alarms,
            limit=0.01,
            is_most=True,
        )
    for extra in SLOWDOWNS:
        records = _records(folder / f"planted-{extra:.0%}" / "records")
        # the subject of a planted commit begins with its slowdown
        records.sort(key=lambda record: record.commit.subject or "")
        if len(records) == 2:
            base, head = records
            share_found = statistics.mean(_is_found(*pair) for pair in _paired(base, head))
            yield PublishedTarget(f"+{extra:.0%} found, at least 95 %", share_found, 0.95)


def _predictions(bounds: list[dict[str, Any]], record: RunRecord) -> Iterator[str]:
    """The share of the roof that each function can reach at most by its compiled code, and that of
    its whole case.
    """
    target = record.environment.compile_target
    measured = {
        bound.case_id: bound.utilisation
        for bound in record.measurements
        if bound.implementation == "triton"
    }
    yield "| case | function | roof | predicted, at most | measured |"
    yield "|---|---|---|--:|--:|"
    for bound in bounds:
        share = measured.get(bound["case_id"])
        if bound["target"] == target and share is not None:
            yield (
                f"| {bound['case_id']} | {bound['function']} | {bound['roof']} | "
                f"{bound['predicted']:.2f} | {share:.2f} |"
            )


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
    for name, measured in by_case.items():
        case = cases[name]
        ours = measured.get("triton")
        if ours is None or ours.median_ns is None:
            continue
        speedups = {
            rival: _speedup(ours, rival_measurement)
            for rival, rival_measurement in measured.items()
        }
        del speedups["triton"]
        if case.family == "attention" and case.direction == "bwd":
            yield from _against(name, speedups, ("sdpa_flash",), 1.0)
        elif case.kernel == "attention":
            yield from _against(name, speedups, ("sdpa_flash", "sdpa_cudnn", "torch"), 0.9)
        elif case.kernel == "matmul":
            yield from _against(name, speedups, ("torch",), 1.0)
        elif ours.bound == "memory" and copies:
            share = 0.85 if case.kernel in {"paged_decode_attention", "w4a16_matmul"} else 0.95
            yield PublishedTarget(
                f"{name}: share of copy bandwidth, {share}",
                _bytes_per_s(case, ours) / max(copies),
                share,
            )
            yield from _against(name, speedups, ("compile",), 1.0)


def _against(
    name: str,
    speedups: dict[str, float],
    rivals: Sequence[str],
    limit: float,
) -> Iterator[PublishedTarget]:
    measured_rivals = [rival for rival in rivals if rival in speedups]
    if measured_rivals:
        best = min(measured_rivals, key=lambda rival: speedups[rival])
        yield PublishedTarget(f"{name}: speed relative to {best}, {limit}", speedups[best], limit)


def _speedup(ours: Measurement, rival: Measurement) -> float:
    return (rival.median_ns or 0.0) / (ours.median_ns or 1.0)


def _bytes_per_s(case: CaseRecord, measurement: Measurement) -> float:
    return case.memory_bytes / (measurement.median_ns or 1.0) * 1e9


def _paired(base: RunRecord, head: RunRecord) -> list[tuple[Measurement, Measurement]]:
    base_measurements = _timed_by_subject(base)
    head_measurements = _timed_by_subject(head)
    in_both = [subject for subject in base_measurements if subject in head_measurements]
    return [(base_measurements[subject], head_measurements[subject]) for subject in in_both]


def _timed_by_subject(record: RunRecord) -> dict[tuple[str, str], Measurement]:
    timed = [measurement for measurement in record.measurements if measurement.blocks]
    return {(measurement.case_id, measurement.implementation): measurement for measurement in timed}


def _is_found(base: Measurement, head: Measurement) -> bool:
    count = min(len(base.blocks), len(head.blocks))
    base_blocks = [block.samples_ns for block in base.blocks[:count]]
    head_blocks = [block.samples_ns for block in head.blocks[:count]]
    return compare(base_blocks, head_blocks, threshold=_NOTICED).verdict == "regressed"


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
