"""What a record says about its run, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from roofwatch.collector.device.datasheets import compare_with_datasheet
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Accuracy, CaseProfile, StaticFacts
from roofwatch.dashboard.wording import outcome_text, rate_text
from roofwatch.db.queries.results import StoredArtefact

_COMPILED = "function and target"
"""Column of compilations only."""


def failures_of(record: RunRecord) -> pd.DataFrame:
    """List failed and unsupported measurements, checks and compilations."""
    frame = pd.DataFrame(_failures(record))
    return frame if frame.empty or frame[_COMPILED].any() else frame.drop(columns=_COMPILED)


def _failures(record: RunRecord) -> Iterator[dict[str, str]]:
    results: list[tuple[str, str, Measurement | Accuracy | StaticFacts]] = [
        *(("measurement", "", one) for one in record.measurements),
        *(("accuracy", "", one) for one in record.accuracies),
        *(("compilation", f"{one.function}, {one.target}", one) for one in record.static_facts),
    ]
    for kind, which, one in results:
        if one.outcome is not Outcome.OK:
            yield {
                "what": kind,
                "outcome": outcome_text(one.outcome),
                "case": one.case_id,
                "implementation": one.implementation,
                _COMPILED: which,
                "message": one.message or "",
            }


def ceilings_table(record: RunRecord) -> pd.DataFrame:
    """List measured ceilings next to those of the datasheet."""
    at_ceilings = () if record.telemetry is None else record.telemetry.at_ceilings
    found = compare_with_datasheet(record.ceilings, record.environment.device_name, at_ceilings=at_ceilings)
    published = {id(one.measured): one for one in found}
    rows = []
    for ceiling in record.ceilings:
        if ceiling.source == "datasheet":
            continue
        beside = published.get(id(ceiling))
        rows.append(
            {
                "resource": ceiling.resource,
                "of": ceiling.level or ceiling.dtype or "",
                "measured": rate_text(ceiling.resource, ceiling.per_s),
                "datasheet": "" if beside is None else rate_text(ceiling.resource, beside.published_per_s),
                "share of datasheet": None if beside is None else ceiling.per_s / beside.published_per_s,
                "warning": "◆ above the datasheet" if beside is not None and beside.is_suspicious else "",
                "method": ceiling.method,
            }
        )
    return pd.DataFrame(rows)


def launches_table(record: RunRecord) -> pd.DataFrame:
    """List host time and memory per launch, without empty columns."""
    rows = [
        {
            "case": one.case_id,
            "implementation": one.implementation,
            "host time": one.host_ns,
            "delay": one.launch_delay_ns,
            "allocated": None if one.memory is None else one.memory.peak_allocated_bytes,
            "reserved": None if one.memory is None else one.memory.peak_reserved_bytes,
            "allocations": None if one.memory is None else one.memory.allocation_count,
            "fragmentation": None if one.memory is None else one.memory.fragmentation,
        }
        for one in record.measurements
        if one.host_ns is not None or one.memory is not None
    ]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def environment_table(record: RunRecord) -> pd.DataFrame:
    """List all environment facts."""
    facts = record.environment.model_dump()
    knobs = facts.pop("compile_knobs")
    named = {name.replace("_", " "): value for name, value in facts.items()}
    rows = {**named, "harness version": record.harness_version, **dict(sorted(knobs.items()))}
    return pd.DataFrame(
        {"what": list(rows), "value": ["not known" if value is None else str(value) for value in rows.values()]}
    )


def artefacts_table(stored: Sequence[StoredArtefact]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "file": [one.name for one in stored],
            "kind": [one.kind.replace("_", " ") for one in stored],
            "size": [one.size_bytes for one in stored],
            "content": ["stored" if one.is_stored else "not sent yet" for one in stored],
        }
    )


def profile_table(profile: CaseProfile) -> pd.DataFrame:
    """List the activities of a profiled case, longest total first, and the rest as one row."""
    rows: list[dict[str, object]] = [
        {
            "kind": row.kind,
            "name": row.name,
            "device": row.device,
            **_time_of(row.total_ns, profile),
            "of a call": row.count / profile.call_count,
            "mean": row.mean_ns,
            "longest": row.max_ns,
            "bytes": row.bytes,
            "grid": " × ".join(map(str, row.grid)),
            "block": " × ".join(map(str, row.block)),
            "registers": row.registers,
            "shared memory": row.shared_bytes,
            "occupancy": row.estimated_occupancy,
        }
        for row in profile.rows
    ]
    if profile.left_out_count:
        rest = {"kind": "", "name": f"{profile.left_out_count:,} more together", "device": "", "grid": "", "block": ""}
        rows.append({**rest, **_time_of(profile.left_out_ns, profile)})
    frame = pd.DataFrame(rows)
    unknown = [name for name in ("grid", "block") if name in frame and not any(frame[name])]
    return frame.drop(columns=unknown).dropna(axis="columns", how="all")


def _time_of(total_ns: int, profile: CaseProfile) -> dict[str, object]:
    """Return the time per call and its share of busy time."""
    return {
        "time of a call": total_ns / profile.call_count,
        "share": total_ns / profile.busy_ns if profile.busy_ns else None,
    }
