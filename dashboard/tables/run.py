"""What a record says of its run, as tables. Text from records stays text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from roofwatch.collector.device.datasheets import beside_datasheet
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.dashboard.quantities import rate_text
from roofwatch.dashboard.wording import outcome_text

if TYPE_CHECKING:
    from roofwatch.db.artefacts import StoredArtefact


_COMPILED = "function and target"
"""Column that only compilations have."""


def failures_of(record: RunRecord) -> pd.DataFrame:
    """Everything that did not work, or could not be tried: measurements, checks, compilations."""
    frame = pd.DataFrame(_failures(record))
    return frame if frame.empty or frame[_COMPILED].any() else frame.drop(columns=_COMPILED)


def _failures(record: RunRecord) -> Iterator[dict[str, str]]:
    for kind, results in (("measurement", record.measurements), ("accuracy", record.accuracies)):
        for one in results:
            if one.outcome is not Outcome.OK:
                yield _failure(kind, one.outcome, one.case_id, one.implementation, "", one.message)
    for facts in record.static_facts:
        if facts.outcome is not Outcome.OK:
            which = f"{facts.function}, {facts.target}"
            yield _failure("compilation", facts.outcome, facts.case_id, facts.implementation, which, facts.message)


def _failure(
    kind: str, outcome: Outcome, case_id: str, implementation: str, which: str, message: str | None
) -> dict[str, str]:
    return {
        "what": kind,
        "outcome": outcome_text(outcome),
        "case": case_id,
        "implementation": implementation,
        _COMPILED: which,
        "message": message or "",
    }


def ceilings_table(record: RunRecord) -> pd.DataFrame:
    """The measured ceilings beside the datasheet's, where the device has one that is known."""
    at_ceilings = () if record.telemetry is None else record.telemetry.at_ceilings
    found = beside_datasheet(record.ceilings, record.environment.device_name, at_ceilings=at_ceilings)
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
                "share of it": None if beside is None else ceiling.per_s / beside.published_per_s,
                "doubt": "◆ above the datasheet" if beside is not None and beside.is_suspicious else "",
                "method": ceiling.method,
            }
        )
    return pd.DataFrame(rows)


def launches_table(record: RunRecord) -> pd.DataFrame:
    """What a launch takes of the host and of the memory, beside its time; of what was measured so, and no column that
    says nothing.
    """
    rows = []
    for one in record.measurements:
        if one.host_ns is None and one.memory is None:
            continue
        memory = one.memory
        rows.append(
            {
                "case": one.case_id,
                "implementation": one.implementation,
                "host time": one.host_ns,
                "delay": one.launch_delay_ns,
                "allocated": None if memory is None else float(memory.peak_allocated_bytes),
                "reserved": None if memory is None else float(memory.peak_reserved_bytes),
                "allocations": None if memory is None else float(memory.allocation_count),
                "fragmentation": None if memory is None else memory.fragmentation,
            }
        )
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def environment_table(record: RunRecord) -> pd.DataFrame:
    """Everything that the fingerprint holds, the compiler's settings by their own names."""
    facts = record.environment.model_dump()
    knobs = facts.pop("compile_knobs")
    named = {name.replace("_", " "): value for name, value in facts.items()}
    rows = [*named.items(), ("harness version", record.harness_version), *sorted(knobs.items())]
    return pd.DataFrame(
        {
            "what": [name for name, _ in rows],
            "value": ["not known" if value is None else str(value) for _, value in rows],
        }
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
