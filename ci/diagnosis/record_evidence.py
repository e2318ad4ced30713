"""Collect what one record holds about each case and implementation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.collector.record.machine import Environment
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Counters, StaticFacts

_Result = TypeVar("_Result", Measurement, StaticFacts, Counters)

_EMPTY_KERNEL = "empty_launch"
_AMD_TARGETS = {"9.4": "gfx942", "9.5": "gfx950"}


class RecordEvidence:
    """Groups the results of a record once for all cases."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._cases = {case.case_id: case for case in record.cases}
        self._measurements = _by_subject(record.measurements)
        self._facts = _by_subject(record.static_facts)
        self._counters = _by_subject(record.counters)
        self._target = _target_of(record.environment)
        states = [block.device_state for each in record.measurements for block in each.blocks]
        clocks_mhz = [state.sm_clock_mhz for state in states if state is not None and state.sm_clock_mhz]
        self._highest_clock_mhz = max(clocks_mhz, default=None)

    def of(self, case_id: str, implementation: str) -> Evidence:
        """Collect the evidence for one case and implementation.

        Raises:
            KeyError: the record has no such case.
        """
        record, subject = self._record, (case_id, implementation)
        measurement = next(iter(self._measurements[subject]), None)
        facts = self._facts[subject]
        return Evidence(
            case=self._cases[case_id],
            implementation=implementation,
            environment=record.environment,
            ceilings=record.ceilings,
            measurement=measurement,
            target=self._target,
            facts=tuple(fact for fact in facts if fact.target == self._target) or tuple(facts),
            counters=tuple(self._counters[subject]),
            others=self._other_medians_ns(measurement),
            floor_ns=self._floor_ns(measurement),
            highest_clock_mhz=self._highest_clock_mhz,
            at_ceilings=() if record.telemetry is None else record.telemetry.at_ceilings,
        )

    def _other_medians_ns(self, measurement: Measurement | None) -> dict[str, float]:
        return {
            other.implementation: other.median_ns
            for other in self._timed_like(measurement)
            if measurement is not None
            and other.case_id == measurement.case_id
            and other.implementation != measurement.implementation
            and other.median_ns is not None
        }

    def _floor_ns(self, measurement: Measurement | None) -> float | None:
        """Time of one empty kernel."""
        floors_ns = [
            other.median_ns / max([1, *(block.kernel_count or 1 for block in other.blocks)])
            for other in self._timed_like(measurement)
            if other.median_ns is not None
            and other.case_id in self._cases
            and self._cases[other.case_id].kernel == _EMPTY_KERNEL
        ]
        return min(floors_ns, default=None)

    def _timed_like(self, measurement: Measurement | None) -> list[Measurement]:
        """Measurements with the same timer and cache state."""
        if measurement is None:
            return []
        timed = measurement.timer, measurement.cache
        return [other for other in self._record.measurements if (other.timer, other.cache) == timed]


def subjects_of(record: RunRecord) -> list[tuple[str, str]]:
    """Every case and implementation with times, machine code or counters, in the order of the record."""
    results: list[Measurement | StaticFacts | Counters] = [
        *record.measurements,
        *record.static_facts,
        *record.counters,
    ]
    return list(dict.fromkeys((result.case_id, result.implementation) for result in results))


def _by_subject(results: Iterable[_Result]) -> Mapping[tuple[str, str], Sequence[_Result]]:
    groups: defaultdict[tuple[str, str], list[_Result]] = defaultdict(list)
    for result in results:
        groups[result.case_id, result.implementation].append(result)
    return groups


def _target_of(environment: Environment) -> str | None:
    capability = environment.compute_capability
    if capability is None or environment.device_kind == "cpu":
        return None
    if environment.device_kind == "hip":
        return _AMD_TARGETS.get(capability)
    return f"sm_{capability.replace('.', '')}"
