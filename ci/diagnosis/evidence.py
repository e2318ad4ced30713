"""Everything that one record holds about one case and implementation, gathered for a diagnosis. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from roofwatch.ci.static.facts import code_facts
from roofwatch.collector.device.datasheets import PublishedCeiling, beside_datasheet
from roofwatch.collector.device.roofline import LevelPosition, Roof, level_positions, roof_of
from roofwatch.collector.record.machine import Ceiling, DeviceState, Environment, Outcome
from roofwatch.collector.record.measurement import CacheState, CaseRecord, Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Counters, StaticFacts

_Result = TypeVar("_Result", Measurement, StaticFacts, Counters)

_EMPTY_LAUNCH = "empty_launch"
"""The kernel that does nothing, of the suite that comes with roofwatch."""
_AMD_TARGETS = {"9.4": "gfx942", "9.5": "gfx950"}


@dataclass(frozen=True)
class Timing:
    """What was timed of one launch, in ns; medians over all blocks."""

    median_ns: float
    """The device was busy."""
    span_ns: float
    """From the first kernel's start to the last one's end; the median where the timer cannot tell."""
    host_ns: float | None
    """The host took to issue it."""
    kernel_count: int | None
    sm_clock_mhz: float | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """About one case and implementation.

    Args:
        case: What it costs by its model.
        implementation: Its name.
        environment: What it was measured on.
        ceilings: Measured in the same run, and the datasheet's.
        measurement: Its times, or how it failed; None where it was not part of the run.
        target: What the device runs code for; None on a CPU and where that is not known.
        facts: What the compiler made of it, for the device's own target if that was among those compiled for, else
            for all of them.
        counters: One entry a kernel of a call, of the last profile.
        others: Medians of the other implementations of the case that were timed alike, by name.
        floor_ns: What a kernel that does nothing takes in the record; None where none was timed.
        highest_clock_mhz: That the multiprocessors were seen at in the run.
        at_ceilings: Of the device while each ceiling that was measured was taken; empty where nobody watched.
    """

    case: CaseRecord
    implementation: str
    environment: Environment
    ceilings: tuple[Ceiling, ...]
    measurement: Measurement | None
    target: str | None
    facts: tuple[StaticFacts, ...]
    counters: tuple[Counters, ...]
    others: Mapping[str, float]
    floor_ns: float | None
    highest_clock_mhz: float | None
    at_ceilings: tuple[DeviceState, ...] = ()

    @property
    def is_gpu(self) -> bool:
        return self.environment.device_kind != "cpu"

    @property
    def has_own_facts(self) -> bool:
        """The machine code is what the device runs, not what another one would."""
        return any(fact.target == self.target for fact in self.facts)

    @property
    def compiled(self) -> tuple[StaticFacts, ...]:
        """Of the facts those of code that did compile."""
        return tuple(fact for fact in self.facts if fact.outcome is Outcome.OK)

    @cached_property
    def timing(self) -> Timing | None:
        if self.measurement is None or self.measurement.median_ns is None:
            return None
        blocks = self.measurement.blocks
        spans = [span for block in blocks for span in block.span_ns]
        hosts = [block.host_ns for block in blocks if block.host_ns is not None]
        kernels = [block.kernel_count for block in blocks if block.kernel_count is not None]
        states = [block.device_state for block in blocks if block.device_state is not None]
        clocks = [state.sm_clock_mhz for state in states if state.sm_clock_mhz]
        return Timing(
            median_ns=self.measurement.median_ns,
            span_ns=max(statistics.median(spans), self.measurement.median_ns) if spans else self.measurement.median_ns,
            host_ns=statistics.median(hosts) if hosts else None,
            kernel_count=max(kernels, default=None),
            sm_clock_mhz=statistics.median(clocks) if clocks else None,
        )

    @cached_property
    def roof(self) -> Roof:
        return roof_of(self.case, self.ceilings, CacheState.HOT if self.measurement is None else self.measurement.cache)

    @property
    def has_roof(self) -> bool:
        """Its roof is that of its device; what a collective waits for are links, of which no ceiling is measured."""
        return self.roof.least_ns is not None and self.case.bus_bytes is None

    @property
    def memory_share(self) -> float | None:
        """Least time at the memory ceiling / median time."""
        return self._share(self.roof.memory_ns)

    @property
    def dram_share(self) -> float | None:
        """Of device memory's ceiling, whether the data would fit into the cache or not."""
        dram = next((each for each in self.ceilings if each.level == "dram" and each.source == "measured"), None)
        return (
            None
            if dram is None or not self.case.memory_bytes
            else self._share(self.case.memory_bytes / dram.per_s * 1e9)
        )

    @property
    def compute_share(self) -> float | None:
        return self._share(self.roof.compute_ns)

    @property
    def utilisation(self) -> float | None:
        """Of the roof, whichever of its ceilings binds."""
        return self._share(self.roof.least_ns)

    @property
    def vector_share(self) -> float | None:
        """Of what the device does without tensor cores, by the ceiling of float32; None for code that uses them."""
        ordinary = next((each for each in self.ceilings if each.dtype == "float32" and each.source == "measured"), None)
        if ordinary is None or not self.case.flop_count or not self.has_own_facts or self._uses_tensor_cores:
            return None
        return self._share(self.case.flop_count / ordinary.per_s * 1e9)

    @property
    def _uses_tensor_cores(self) -> bool:
        return any(code_facts(fact).tensor_counts or not code_facts(fact).is_disassembled for fact in self.compiled)

    @property
    def intensity(self) -> float | None:
        """FLOP per byte by the model."""
        return self.case.flop_count / self.case.memory_bytes if self.case.memory_bytes else None

    @cached_property
    def counted(self) -> Mapping[str, float]:
        """Bytes that the hardware counted, by counter; only those that were counted of every kernel of the call."""
        sums: dict[str, float] = {}
        for name in ("dram_bytes", "l2_bytes", "l1_bytes"):
            found = [byte_count for entry in self.counters if (byte_count := _bytes(entry, name)) is not None]
            if found and len(found) == len(self.counters):
                sums[name] = sum(found)
        return sums

    @cached_property
    def levels(self) -> tuple[LevelPosition, ...]:
        if self.timing is None:
            return ()
        return level_positions(self.case, self.counted, self.timing.median_ns, self.ceilings)

    @property
    def published(self) -> list[PublishedCeiling]:
        """The run's ceilings beside those of the vendor, at the clock that was seen meanwhile."""
        return beside_datasheet(
            self.ceilings,
            self.environment.device_name,
            at_ceilings=self.at_ceilings,
            sm_clock_mhz=self.highest_clock_mhz,
        )

    def _share(self, least_ns: float | None) -> float | None:
        if self.timing is None or least_ns is None or not self.has_roof:
            return None
        return least_ns / self.timing.median_ns


class RecordEvidence:
    """What a record knows, sorted once for all that is asked of it.

    Args:
        record: It is gone through from end to end, however few cases are asked for.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._cases = {case.case_id: case for case in record.cases}
        self._measurements = _by_subject(record.measurements)
        self._facts = _by_subject(record.static_facts)
        self._counters = _by_subject(record.counters)
        self._of_case: defaultdict[str, list[Measurement]] = defaultdict(list)
        for each in record.measurements:
            self._of_case[each.case_id].append(each)
        self._empty = [
            each for case in record.cases if case.kernel == _EMPTY_LAUNCH for each in self._of_case[case.case_id]
        ]
        self._target = _target_of(record.environment)
        self._highest_clock_mhz = max(
            (
                block.device_state.sm_clock_mhz
                for each in record.measurements
                for block in each.blocks
                if block.device_state is not None and block.device_state.sm_clock_mhz
            ),
            default=None,
        )

    def of(self, case_id: str, implementation: str) -> Evidence:
        """All about one case and implementation.

        Raises:
            KeyError: the record has no such case.
        """
        record, subject = self._record, (case_id, implementation)
        measurement = next(iter(self._measurements.get(subject, ())), None)
        facts = self._facts.get(subject, ())
        return Evidence(
            case=self._cases[case_id],
            implementation=implementation,
            environment=record.environment,
            ceilings=record.ceilings,
            measurement=measurement,
            target=self._target,
            facts=tuple(fact for fact in facts if fact.target == self._target) or tuple(facts),
            counters=tuple(self._counters.get(subject, ())),
            others=_others(self._of_case[case_id], measurement),
            floor_ns=_floor_ns(self._empty, measurement),
            highest_clock_mhz=self._highest_clock_mhz,
            at_ceilings=() if record.telemetry is None else record.telemetry.at_ceilings,
        )


def subjects_of(record: RunRecord) -> list[tuple[str, str]]:
    """Every case and implementation whose times, machine code or counters the record has, in its order."""
    return list(
        dict.fromkeys(
            [
                *((result.case_id, result.implementation) for result in record.measurements),
                *((result.case_id, result.implementation) for result in record.static_facts),
                *((result.case_id, result.implementation) for result in record.counters),
            ]
        )
    )


def _by_subject(results: Iterable[_Result]) -> Mapping[tuple[str, str], Sequence[_Result]]:
    sorted_results: defaultdict[tuple[str, str], list[_Result]] = defaultdict(list)
    for result in results:
        sorted_results[result.case_id, result.implementation].append(result)
    return sorted_results


def _bytes(counters: Counters, name: str) -> float | None:
    if name in counters.values:
        return counters.values[name]
    parts = [counters.values.get(f"dram_{way}_bytes") for way in ("read", "write")]
    return None if name != "dram_bytes" or None in parts else sum(part or 0.0 for part in parts)


def _target_of(environment: Environment) -> str | None:
    capability = environment.compute_capability
    if capability is None or environment.device_kind == "cpu":
        return None
    if environment.device_kind == "hip":
        return _AMD_TARGETS.get(capability)
    return f"sm_{capability.replace('.', '')}"


def _alike(one: Measurement, other: Measurement) -> bool:
    return (one.timer, one.cache) == (other.timer, other.cache)


def _others(of_case: Iterable[Measurement], measurement: Measurement | None) -> dict[str, float]:
    if measurement is None:
        return {}
    return {
        other.implementation: other.median_ns
        for other in of_case
        if other.implementation != measurement.implementation
        and other.median_ns is not None
        and _alike(measurement, other)
    }


def _floor_ns(empty: Iterable[Measurement], measurement: Measurement | None) -> float | None:
    if measurement is None:
        return None
    floors = [
        other.median_ns / max([1, *(block.kernel_count or 1 for block in other.blocks)])
        for other in empty
        if other.median_ns is not None and _alike(measurement, other)
    ]
    return min(floors, default=None)
