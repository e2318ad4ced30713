"""Split a suite into shares for the devices of a cluster, and join the records of the shares."""

from __future__ import annotations

import glob
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any

from roofwatch.collector.record.machine import Ceiling
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.run_plan import RunPlan, Selected


@dataclass(frozen=True)
class Share:
    """Cases that are measured together on one machine."""

    number: int
    case_ids: tuple[str, ...]
    rank_count: int
    """Devices that it needs."""

    def plan(self, plan: RunPlan) -> RunPlan:
        """The run's plan, limited to these cases."""
        return replace(plan, cases=tuple(glob.escape(case_id) for case_id in self.case_ids))


def deal(selected: Sequence[Selected], share_count: int) -> tuple[Share, ...]:
    """Split a suite into shares with about equal numbers of results.

    Cases keep their order, so that most cases of a kernel, which share compilation and tuning, stay together.

    Args:
        selected: What to measure.
        share_count: Approximate number of shares. Each share has cases of one rank count.
    """
    fair_count = max(1.0, len(selected) / share_count)
    shares: list[Share] = []
    for rank_count in sorted({one.rank_count for one in selected}):
        by_share: dict[int, list[str]] = {}
        total_count = 0
        same_ranks = (one for one in selected if one.rank_count == rank_count)
        for case_id, group in groupby(same_ranks, key=lambda one: one.case.case_id):
            count = sum(1 for _ in group)
            # a case goes to the share that contains its middle
            by_share.setdefault(int((total_count + count / 2) / fair_count), []).append(case_id)
            total_count += count
        for case_ids in by_share.values():
            shares.append(Share(len(shares), tuple(case_ids), rank_count))
    return tuple(shares)


def join(records: Sequence[RunRecord], run_id: uuid.UUID) -> tuple[RunRecord, ...]:
    """Join the records of shares that were measured in equal environments.

    The highest ceiling of each kind counts: equal devices have equal limits, and each measures from below. Device
    readings between blocks are left out, as they come from several devices.

    Args:
        records: In the order of the suite.
        run_id: ID of the distributed run; the first joined record gets it.

    Returns:
        One record per environment.
    """
    by_environment: dict[str, list[RunRecord]] = {}
    for record in records:
        by_environment.setdefault(record.environment.model_dump_json(), []).append(record)
    ids = [run_id, *(uuid.uuid5(run_id, environment) for environment in list(by_environment)[1:])]
    return tuple(_joined(same, its_id) for same, its_id in zip(by_environment.values(), ids, strict=True))


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
        "source_lines": tuple(dict.fromkeys(line for record in records for line in record.source_lines)),
    }
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
