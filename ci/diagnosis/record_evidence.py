"""Gathers what one record holds about each case and implementation."""

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

_EMPTY_LAUNCH = "empty_launch"
"""The bundled kernel that does nothing."""
_AMD_TARGETS = {"9.4": "gfx942", "9.5": "gfx950"}


class RecordEvidence:
    """Sorts a record once for all cases that are asked for."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._cases = {case.case_id: case for case in record.cases}
        self._measurements = _by_subject(record.measurements)
        self._facts = _by_subject(record.static_facts)
        self._counters = _by_subject(record.counters)
        self._of_case: defaultdict[str, list[Measurement]] = defaultdict(list)
        for each in record.measurements:
            self._of_case[each.case_id].append(each)
        self._empty = [each for each in record.measurements if self._kernel_of(each.case_id) == _EMPTY_LAUNCH]
        self._target = _target_of(record.environment)
        states = [block.device_state for each in record.measurements for block in each.blocks]
        clocks = [state.sm_clock_mhz for state in states if state is not None and state.sm_clock_mhz]
        self._highest_clock_mhz = max(clocks, default=None)

    def of(self, case_id: str, implementation: str) -> Evidence:
        """All about one case and implementation.

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
            others=_others(self._of_case[case_id], measurement),
            floor_ns=_floor_ns(self._empty, measurement),
            highest_clock_mhz=self._highest_clock_mhz,
            at_ceilings=() if record.telemetry is None else record.telemetry.at_ceilings,
        )

    def _kernel_of(self, case_id: str) -> str | None:
        case = self._cases.get(case_id)
        return None if case is None else case.kernel


def subjects_of(record: RunRecord) -> list[tuple[str, str]]:
    """Every case and implementation whose times, machine code or counters the record has, in its order."""
    return list(
        {**_by_subject(record.measurements), **_by_subject(record.static_facts), **_by_subject(record.counters)}
    )


def _by_subject(results: Iterable[_Result]) -> Mapping[tuple[str, str], Sequence[_Result]]:
    grouped: defaultdict[tuple[str, str], list[_Result]] = defaultdict(list)
    for result in results:
        grouped[result.case_id, result.implementation].append(result)
    return grouped


def _target_of(environment: Environment) -> str | None:
    capability = environment.compute_capability
    if capability is None or environment.device_kind == "cpu":
        return None
    if environment.device_kind == "hip":
        return _AMD_TARGETS.get(capability)
    return f"sm_{capability.replace('.', '')}"


def _is_alike(one: Measurement, other: Measurement) -> bool:
    return (one.timer, one.cache) == (other.timer, other.cache)


def _others(of_case: Iterable[Measurement], measurement: Measurement | None) -> dict[str, float]:
    if measurement is None:
        return {}
    return {
        other.implementation: other.median_ns
        for other in of_case
        if other.implementation != measurement.implementation
        and other.median_ns is not None
        and _is_alike(measurement, other)
    }


def _floor_ns(empty: Iterable[Measurement], measurement: Measurement | None) -> float | None:
    if measurement is None:
        return None
    floors = [
        other.median_ns / max([1, *(block.kernel_count or 1 for block in other.blocks)])
        for other in empty
        if other.median_ns is not None and _is_alike(measurement, other)
    ]
    return min(floors, default=None)
