"""Collect what one record holds about its cases and implementations."""

from collections import defaultdict
from collections.abc import Iterable

from roofwatch.ci.diagnosis.evidence import Evidence
from roofwatch.collector.record.machine import Environment
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import Counters, StaticFacts

Subject = tuple[str, str]
"""Case id and implementation."""

_EMPTY_KERNEL = "empty_launch"
_AMD_TARGETS = {"9.4": "gfx942", "9.5": "gfx950"}


def subjects_of(record: RunRecord) -> list[Subject]:
    """Every case and implementation with times, machine code or counters, in the order of the record."""
    results: list[Measurement | StaticFacts | Counters] = [*record.measurements, *record.static_facts, *record.counters]
    return list(dict.fromkeys((result.case_id, result.implementation) for result in results))


def collect_evidence(record: RunRecord, subjects: Iterable[Subject]) -> list[Evidence]:
    """Collect the evidence for cases and implementations.

    Raises:
        KeyError: the record has no such case.
    """
    cases = {case.case_id: case for case in record.cases}
    measurements = {(each.case_id, each.implementation): each for each in reversed(record.measurements)}
    facts: dict[Subject, list[StaticFacts]] = defaultdict(list)
    for fact in record.static_facts:
        facts[fact.case_id, fact.implementation].append(fact)
    counters: dict[Subject, list[Counters]] = defaultdict(list)
    for entry in record.counters:
        counters[entry.case_id, entry.implementation].append(entry)
    # times compare only by the same timer and cache state
    medians_ns: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    floors_ns: dict[tuple[str, str], float] = {}
    for each in record.measurements:
        if each.median_ns is not None:
            medians_ns[each.case_id, each.timer, each.cache][each.implementation] = each.median_ns
            if each.case_id in cases and cases[each.case_id].kernel == _EMPTY_KERNEL:
                kernel_count = max([1, *(block.kernel_count or 1 for block in each.blocks)])
                floor_ns = floors_ns.get((each.timer, each.cache), each.median_ns)
                floors_ns[each.timer, each.cache] = min(floor_ns, each.median_ns / kernel_count)
    states = [block.device_state for each in record.measurements for block in each.blocks]
    clocks_mhz = [state.sm_clock_mhz for state in states if state is not None and state.sm_clock_mhz]
    target = _target_of(record.environment)

    def collect(case_id: str, implementation: str) -> Evidence:
        measurement, own = measurements.get((case_id, implementation)), facts[case_id, implementation]
        timing = None if measurement is None else (measurement.timer, measurement.cache)
        others = {} if timing is None else medians_ns[case_id, *timing]
        return Evidence(
            case=cases[case_id],
            implementation=implementation,
            environment=record.environment,
            ceilings=record.ceilings,
            measurement=measurement,
            target=target,
            facts=tuple(fact for fact in own if fact.target == target) or tuple(own),
            counters=tuple(counters[case_id, implementation]),
            others={name: median_ns for name, median_ns in others.items() if name != implementation},
            floor_ns=None if timing is None else floors_ns.get(timing),
            highest_clock_mhz=max(clocks_mhz, default=None),
            at_ceilings=() if record.telemetry is None else record.telemetry.at_ceilings,
        )

    return [collect(*subject) for subject in subjects]


def _target_of(environment: Environment) -> str | None:
    capability = environment.compute_capability
    if capability is None or environment.device_kind == "cpu":
        return None
    if environment.device_kind == "hip":
        return _AMD_TARGETS.get(capability)
    return f"sm_{capability.replace('.', '')}"
