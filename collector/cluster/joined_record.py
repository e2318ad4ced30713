"""The records of shares, joined to one for each kind of machine, as if one device had measured them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from roofwatch.collector.record.machine import Ceiling
from roofwatch.collector.record.record import RunRecord


def join(records: Sequence[RunRecord], run_id: uuid.UUID) -> tuple[RunRecord, ...]:
    """Join the records of shares that were measured in equal environments.

    What was seen of a device stays with each block; the readings between blocks, which are of several devices at one
    time, have no place in one record and are left out. The ceiling of each kind is the highest that any of the devices
    showed: devices of one class have one roof, which each measures from below.

    Args:
        records: In the order of the suite.
        run_id: Of the run that was spread.

    Returns:
        One for each environment, in the order of their first shares; the first has the run's id.
    """
    by_environment: dict[str, list[RunRecord]] = {}
    for record in records:
        by_environment.setdefault(record.environment.model_dump_json(), []).append(record)
    ids = [run_id, *(uuid.uuid5(run_id, environment) for environment in list(by_environment)[1:])]
    return tuple(_joined(alike, its_id) for alike, its_id in zip(by_environment.values(), ids, strict=True))


def _joined(records: Sequence[RunRecord], run_id: uuid.UUID) -> RunRecord:
    spent_ns: Counter[str] = Counter()
    for record in records:
        spent_ns.update(record.spent_ns)
    changed: dict[str, Any] = {
        "run_id": run_id,
        "started_at": min(record.started_at for record in records),
        "finished_at": max(record.finished_at for record in records),
        "ceilings": _highest(chain.from_iterable(record.ceilings for record in records)),
        "telemetry": records[0].telemetry if len(records) == 1 else None,
        "spent_ns": dict(spent_ns),
    }
    changed["source_lines"] = tuple(dict.fromkeys(line for record in records for line in record.source_lines))
    for results in ("cases", "measurements", "accuracies", "static_facts", "counters", "profiles"):
        changed[results] = tuple(chain.from_iterable(getattr(record, results) for record in records))
    return RunRecord.model_validate(records[0].model_copy(update=changed).model_dump())


def _highest(ceilings: Iterable[Ceiling]) -> tuple[Ceiling, ...]:
    highest: dict[tuple[object, ...], Ceiling] = {}
    for ceiling in ceilings:
        key = (ceiling.resource, ceiling.level, ceiling.dtype, ceiling.source, ceiling.method)
        if key not in highest or ceiling.per_s > highest[key].per_s:
            highest[key] = ceiling
    return tuple(highest.values())
