"""Metrics of Nsight Compute under one name and unit each, and the counters of a record made of
them.

Durations are in ns, sizes in bytes, rates in bytes/s, frequencies in Hz; other metrics keep their
unit. Source: Nsight Compute documentation, metrics reference. `Kbyte` has 1000 bytes in its output.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofwatch.collector.profiling.executed_work import executed_flop_count, local_bytes
from roofwatch.collector.profiling.ncu_names import FACTS
from roofwatch.model.files import JsonObject
from roofwatch.model.results import Counters, ProfilerFinding

_STALL_METRICS = (
    re.compile(r"smsp__average_warps_issue_stalled_(?P<reason>\w+)_per_issue_active\.ratio"),
    re.compile(r"smsp__pcsamp_warps_issue_stalled_(?P<reason>\w+)(?<!_not_issued)"),
)
"""Cycles per issued instruction that a warp is stalled, from counters or from samples."""
_ISSUING = "selected"
"""Listed among the reasons, but the warp issued its instruction."""
_STALL_PREFIX = "stall_"
_SHARE = "_share"
_PERCENT = "_pct"
_MAX_INTEGER = 2**63
"""JSON readers accept no integer over 64 bits, and no infinity."""
_THOUSANDS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}
_NANOSECONDS = {
    "n": 1,
    "u": 10**3,
    "m": 10**6,
    "": 10**9,
}


def _factors_and_units() -> dict[str, tuple[int, str]]:
    """Factor and base unit of each spelling of a unit."""
    units = {
        "cycle/second": (1, "hz"),
        "cycle/usecond": (10**6, "hz"),
        "cycle/nsecond": (10**9, "hz"),
    }
    for prefix, factor in _THOUSANDS.items():
        units[f"{prefix}hz"] = (factor, "hz")
    for prefix, factor in _NANOSECONDS.items():
        # versions of ncu write `ns` or `nsecond`
        units[f"{prefix}s"] = (factor, "ns")
        units[f"{prefix}second"] = (factor, "ns")
    return units


_UNITS = _factors_and_units()
"""Factor and our unit, by the unit in lower case."""
_SIZES = {f"{prefix}byte": factor for prefix, factor in _THOUSANDS.items()}
_MAX_NAME = 500
_MAX_MESSAGE = 4_000
_ADVICE_TYPES = frozenset({"OPT", "WRN"})


@dataclass(frozen=True)
class NcuMetric:
    """A value in a normalised unit; None if ncu wrote no value."""

    value: float | None
    unit: str


_MetricsByName = Mapping[str, Sequence[NcuMetric]]


def normalised(value: float | None, unit: str) -> NcuMetric:
    """Convert a value to our unit; versions of ncu write units differently (`nsecond`, `ns`)."""
    factor, name = _factor_and_name(unit)
    if value is None:
        return NcuMetric(None, name)
    scaled = value * factor
    if not math.isfinite(scaled):
        return NcuMetric(None, name)
    if abs(scaled) >= _MAX_INTEGER:
        scaled = float(scaled)
    return NcuMetric(scaled, name)


def _factor_and_name(unit: str) -> tuple[int, str]:
    """Factor to the base unit, and its name."""
    quantity, _, per = unit.partition("/")
    size = _SIZES.get(quantity.lower())
    if size is None:
        return _UNITS.get(unit.lower(), (1, unit))
    if per in {"second", "s"}:
        return size, "byte/s"
    if per:
        return size, f"byte/{per}"
    return size, "byte"


def facts(metrics: _MetricsByName) -> JsonObject:
    """Select the `FACTS` of a kernel, and `stalls` if they were measured."""
    values: JsonObject = {}
    for fact, names in FACTS.items():
        value = _first_value(metrics, names, is_percent=fact.endswith(_PERCENT))
        if value is not None:
            values[fact] = value
    read_bytes = values.get("dram_read_bytes")
    write_bytes = values.get("dram_write_bytes")
    # smaller sets of sections count the two directions only
    if "dram_bytes" not in values and read_bytes is not None and write_bytes is not None:
        values["dram_bytes"] = read_bytes + write_bytes
    counted: dict[str, float] = {}
    for name, candidates in metrics.items():
        if candidates and candidates[0].value is not None:
            counted[name] = candidates[0].value
    uses_tensor_cores = values.get("tensor_pipe_pct", 0.0) > 0
    calculated = {
        "local_bytes": local_bytes(counted),
        "executed_flop_count": executed_flop_count(counted, uses_tensor_cores=uses_tensor_cores),
    }
    for fact, value in calculated.items():
        # a report without these counters does not tell
        if value is not None:
            values[fact] = value
    stalls = stall_shares(metrics)
    if stalls:
        values["stalls"] = stalls
    return values


def _first_value(
    metrics: _MetricsByName,
    names: Sequence[str],
    *,
    is_percent: bool = False,
) -> float | None:
    """The value of the first name that has one; versions of ncu name a metric differently."""
    for name in names:
        for metric in metrics.get(name, ()):
            # one name may stand for a share of the peak and for a rate
            is_other_quantity = is_percent and metric.unit not in {"%", ""}
            if metric.value is not None and not is_other_quantity:
                return metric.value
    return None


_FACT_NAMES = frozenset(name for names in FACTS.values() for name in names)
_HARDWARE_NAME = re.compile(r"(?!device__attribute_)[a-z]\w*__\w+[\w.]*")
"""A metric of the hardware or of the launch, not an attribute of the device."""


def own_counters(metrics: _MetricsByName) -> dict[str, float]:
    """Select the counters that have no other name in roofwatch, under Nsight Compute's names."""
    counters: dict[str, float] = {}
    for name, values in metrics.items():
        is_stall = any(pattern.fullmatch(name) for pattern in _STALL_METRICS)
        if is_stall or name in _FACT_NAMES or not _HARDWARE_NAME.fullmatch(name):
            continue
        if values and values[0].value is not None:
            counters[name] = values[0].value
    return counters


def stall_shares(metrics: _MetricsByName) -> dict[str, float]:
    """Shares of a warp's time per stall reason, the largest first; counters take precedence over
    samples.
    """
    for pattern in _STALL_METRICS:
        cycles: dict[str, float] = {}
        for name, values in metrics.items():
            match = pattern.fullmatch(name)
            if match and values and values[0].value is not None:
                cycles[match["reason"]] = values[0].value
        total = sum(cycles.values())
        if total > 0:
            reasons = sorted(cycles, key=lambda reason: (-cycles[reason], reason))
            return {
                reason: cycles[reason] / total
                for reason in reasons
                if reason != _ISSUING and cycles[reason] > 0
            }
    return {}


# --- counters of a record


def counters_of(
    kernels: Sequence[Mapping[str, Any]],
    case_id: str,
    implementation: str,
) -> tuple[Counters, ...]:
    """Convert the kernels of a report or CSV to counters, in launch order."""
    return tuple(
        Counters(
            case_id=case_id,
            implementation=implementation,
            function=str(kernel["name"])[:_MAX_NAME] or "(unnamed)",
            launch_index=index,
            values=_values(kernel),
            findings=_findings(kernel.get("findings", ())),
        )
        for index, kernel in enumerate(kernels)
    )


def stalls_of(values: Mapping[str, float]) -> dict[str, float]:
    """Select the stall reasons among the counters of a record, the largest share first."""
    shares: dict[str, float] = {}
    for name, share in values.items():
        if name.startswith(_STALL_PREFIX) and name.endswith(_SHARE):
            reason = name.removeprefix(_STALL_PREFIX).removesuffix(_SHARE)
            shares[reason] = share
    return dict(
        sorted(
            shares.items(),
            key=lambda item: (-item[1], item[0]),
        )
    )


def _values(kernel: Mapping[str, Any]) -> dict[str, float]:
    """Values by name, percentages as shares from 0 to 1."""
    values = {}
    for fact in FACTS:
        if fact in kernel and fact.endswith(_PERCENT):
            values[fact.removesuffix(_PERCENT) + _SHARE] = kernel[fact] / 100
        elif fact in kernel:
            values[fact] = float(kernel[fact])
    for name, value in kernel.get("counters", {}).items():
        values[name] = float(value)
    for reason, share in kernel.get("stalls", {}).items():
        values[f"{_STALL_PREFIX}{reason}{_SHARE}"] = share
    return values


def _findings(rules: Sequence[Mapping[str, Any]]) -> tuple[ProfilerFinding, ...]:
    """Rule results with advice: estimates for the whole kernel first, then for a part, then without
    an estimate.
    """
    findings = [
        ProfilerFinding(
            rule=rule["rule"][:_MAX_NAME],
            message=rule["message"][:_MAX_MESSAGE],
            estimated_speedup=_share_saved(rule["estimated_speedup_pct"]),
            is_estimate_of_a_part=rule["speedup_scope"] == "local",
        )
        for rule in rules
        if rule["type"] in _ADVICE_TYPES
    ]
    return tuple(sorted(findings, key=finding_rank))


def _share_saved(percent: float | None) -> float | None:
    # a rule that divides by a counter that is missing estimates NaN
    if percent is None or not math.isfinite(percent):
        return None
    return min(max(percent / 100, 0.0), 1.0)


def finding_rank(finding: ProfilerFinding) -> tuple[bool, bool, float]:
    """Sort key that puts the largest estimate for a whole kernel first."""
    return (
        finding.estimated_speedup is None,
        finding.is_estimate_of_a_part,
        -(finding.estimated_speedup or 0.0),
    )
