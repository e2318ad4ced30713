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
class Target:
    """A figure and the limit that it must reach."""

    text: str
    value: float
    limit: float
    is_most: bool = False
    """The limit is the highest value allowed, not the lowest."""

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit if self.is_most else self.value >= self.limit


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
            *(
                f"- {each.resource} {each.dtype or each.level or ''}: {each.method}"
                for each in record.ceilings
            ),
            "",
        ]
    lines += ["| target | measured | met |", "|---|---|---|"]
    for target in measured_targets(folder, record):
        lines.append(f"| {target.text} | {target.value:.3g} | {'yes' if target.is_met else 'no'} |")
    timers = {timer: _record(folder / f"timer-{timer}.json.gz") for timer in TIMERS}
    lines += [
        "",
        "## Timers, hot cache",
        "",
        *compare_timers({name: one for name, one in timers.items() if one}),
    ]
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
            lines.append(
                f"- {name}: "
                + ", ".join(f"{timer} {format_ns(ns)}" for timer, ns in times_ns.items())
            )
    submitted = folder / "submit.json"
    if submitted.exists():
        verdict = json.loads(submitted.read_text())
        lines += [
            "",
            "## A candidate as fast as torch",
            "",
            f"`submit`: {verdict['verdict']}, {verdict['reason']}",
        ]
    lines += ["", "## Missing", "", *(f"- {name}: {why}" for name, why in failures.items())]
    return "\n".join(lines) + "\n"


def measured_targets(folder: Path, record: RunRecord | None) -> Iterator[Target]:
    """Every target that has a measurement."""
    if record is not None:
        yield from _kernel_targets(record)
    floor_file = folder / "noise" / "noise_floor.json"
    if floor_file.exists():
        cases = NoiseFloor.parse(floor_file.read_bytes()).cases
        false_alarms = sum(case.is_false_alarm for case in cases) / max(1, len(cases))
        yield Target(
            f"false alarms of {len(cases)} cases measured against themselves, at most 1 %",
            false_alarms,
            0.01,
            True,
        )
    for extra in SLOWDOWNS:
        sides = sorted(
            _records(folder / f"planted-{extra:.0%}" / "records"),
            key=lambda one: one.commit.subject or "",
        )
        if len(sides) == 2:
            found = [_is_found(*pair) for pair in _paired(*sides)]
            yield Target(f"+{extra:.0%} found, at least 95 %", statistics.mean(found), 0.95)


def _predictions(bounds: list[dict[str, Any]], record: RunRecord) -> Iterator[str]:
    """The share of the roof that each function can reach at most by its compiled code, and that of
    its whole case.
    """
    target = f"sm_{(record.environment.compute_capability or '').replace('.', '')}"
    measured = {
        one.case_id: one.utilisation
        for one in record.measurements
        if one.implementation == "triton"
    }
    yield "| case | function | roof | predicted, at most | measured |"
    yield "|---|---|---|--:|--:|"
    for one in bounds:
        share = measured.get(one["case_id"])
        if one["target"] == target and share is not None:
            yield (
                f"| {one['case_id']} | {one['function']} | {one['roof']} | "
                f"{one['predicted']:.2f} | {share:.2f} |"
            )


def _kernel_targets(record: RunRecord) -> Iterator[Target]:
    cases = {case.case_id: case for case in record.cases}
    by_case: dict[str, dict[str, Measurement]] = {}
    for measurement in record.measurements:
        if measurement.median_ns is not None:
            by_case.setdefault(measurement.case_id, {})[measurement.implementation] = measurement
    copied = [
        name
        for name, one in by_case.items()
        if cases[name].kernel == "memory_copy" and "torch" in one
    ]
    copies = [_bytes_per_s(cases[name], by_case[name]["torch"]) for name in copied]
    for name, one in by_case.items():
        ours, case = one.get("triton"), cases[name]
        if ours is None or ours.median_ns is None:
            continue
        speedups = {rival: _speedup(ours, each) for rival, each in one.items() if rival != "triton"}
        if case.family == "attention" and case.direction == "bwd":
            yield from _against(name, speedups, ("sdpa_flash",), 1.0)
        elif case.kernel == "attention":
            yield from _against(name, speedups, ("sdpa_flash", "sdpa_cudnn", "torch"), 0.9)
        elif case.kernel == "matmul":
            yield from _against(name, speedups, ("torch",), 1.0)
        elif ours.bound == "memory" and copies:
            share = 0.85 if case.kernel in {"paged_decode_attention", "w4a16_matmul"} else 0.95
            yield Target(
                f"{name}: share of copy bandwidth, {share}",
                _bytes_per_s(case, ours) / max(copies),
                share,
            )
            yield from _against(name, speedups, ("compile",), 1.0)


def _against(
    name: str, speedups: dict[str, float], rivals: Sequence[str], limit: float
) -> Iterator[Target]:
    known = {rival: speedups[rival] for rival in rivals if rival in speedups}
    if known:
        best = min(known, key=lambda rival: known[rival])
        yield Target(f"{name}: speed relative to {best}, {limit}", known[best], limit)


def _speedup(ours: Measurement, other: Measurement) -> float:
    return (other.median_ns or 0.0) / (ours.median_ns or 1.0)


def _bytes_per_s(case: CaseRecord, measurement: Measurement) -> float:
    return case.memory_bytes / (measurement.median_ns or 1.0) * 1e9


def _paired(base: RunRecord, head: RunRecord) -> list[tuple[Measurement, Measurement]]:
    after = {(one.case_id, one.implementation): one for one in head.measurements if one.blocks}
    keys = ((one, (one.case_id, one.implementation)) for one in base.measurements if one.blocks)
    return [(one, after[key]) for one, key in keys if key in after]


def _is_found(base: Measurement, head: Measurement) -> bool:
    count = min(len(base.blocks), len(head.blocks))
    sides = [[block.samples_ns for block in side.blocks[:count]] for side in (base, head)]
    return compare(*sides, threshold=_NOTICED).verdict == "regressed"


def compare_timers(records: dict[str, RunRecord]) -> Iterator[str]:
    """Median by each timer, and the highest relative to the lowest."""
    times = {
        timer: {
            (one.case_id, one.implementation): one.median_ns
            for one in record.measurements
            if one.median_ns
        }
        for timer, record in records.items()
    }
    yield f"| case | implementation | {' | '.join(times)} | difference |"
    yield f"|---|---|{'--:|' * (len(times) + 1)}"
    for key in dict.fromkeys(key for each in times.values() for key in each):
        known = [each[key] for each in times.values() if key in each]
        cells = [format_ns(each[key]) if key in each else "" for each in times.values()]
        difference = f"{max(known) / min(known) - 1:.1%}" if len(known) > 1 else ""
        yield f"| {' | '.join((*key, *cells, difference))} |"


def _record(file: Path) -> RunRecord | None:
    return RunRecord.read(file) if file.exists() else None


def _records(folder: Path) -> list[RunRecord]:
    return [RunRecord.read(file) for file in folder.glob("*.json.gz")]
