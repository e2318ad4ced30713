"""Deal a suite to the devices of a cluster, and join the records of the shares."""

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
    """Cases that are measured together, on devices of one machine."""

    number: int
    case_ids: tuple[str, ...]
    rank_count: int
    """Devices that it takes: more than one for kernels that several processes launch together."""

    def plan(self, plan: RunPlan) -> RunPlan:
        """The plan of all, for these cases alone."""
        # ids are patterns there, and may have brackets
        return replace(plan, cases=tuple(glob.escape(case_id) for case_id in self.case_ids))


@dataclass(frozen=True)
class _Dealt:
    case_id: str
    rank_count: int
    implementation_count: int


def deal(selected: Sequence[Selected], share_count: int) -> tuple[Share, ...]:
    """Cut a suite into shares of about equal numbers of results.

    Cases stay in the suite's order, so that those of one kernel, which share what is compiled and tuned, mostly stay
    together; the same suite is cut the same way every time.

    Args:
        selected: What is to be measured.
        share_count: About so many; more where kernels need different numbers of devices, fewer where there are fewer
            cases.
    """
    cases = list(_cases(selected))
    fair_count = max(1.0, len(selected) / share_count)
    shares: list[Share] = []
    for rank_count in sorted({case.rank_count for case in cases}):
        alike = [case for case in cases if case.rank_count == rank_count]
        for case_ids in _cut(alike, fair_count):
            shares.append(Share(len(shares), case_ids, rank_count))
    return tuple(shares)


def _cases(selected: Iterable[Selected]) -> Iterable[_Dealt]:
    for (case_id, rank_count), group in groupby(selected, key=lambda one: (one.case.case_id, one.rank_count)):
        yield _Dealt(case_id, rank_count, sum(1 for _ in group))


def _cut(cases: Sequence[_Dealt], fair_count: float) -> Iterable[tuple[str, ...]]:
    total_count, share_number = 0, 0
    share: list[str] = []
    for case in cases:
        # by its middle, so that a large case goes where most of it belongs
        number = int((total_count + case.implementation_count / 2) / fair_count)
        if share and number != share_number:
            yield tuple(share)
            share = []
        share_number = number
        share.append(case.case_id)
        total_count += case.implementation_count
    if share:
        yield tuple(share)


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
