"""What Nsight Compute counted, as parts of a record. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.collector.profiling.ncu_metrics import FACTS
from roofwatch.collector.record.results import Counters, ProfilerFinding

STALL_PREFIX, STALL_SUFFIX = "stall_", "_share"
_PERCENT = "_pct"
_MAX_NAME, _MAX_MESSAGE = 500, 4_000
_ADVICE_TYPES = frozenset({"OPT", "WRN"})


def counters_of(profile: Mapping[str, Any], case_id: str, implementation: str) -> tuple[Counters, ...]:
    """One entry for each kernel of the call, in the order of their launches.

    Args:
        profile: What a report or CSV of Nsight Compute says, from `roofwatch.collector.profiling`.
        case_id: The case that was called.
        implementation: The implementation that was called.
    """
    return tuple(
        Counters(
            case_id=case_id,
            implementation=implementation,
            function=str(kernel["name"])[:_MAX_NAME],
            launch_index=index,
            values=_values(kernel),
            findings=_findings(kernel.get("findings", ())),
        )
        for index, kernel in enumerate(profile["kernels"])
    )


def stalls_of(values: Mapping[str, float]) -> dict[str, float]:
    """Shares of a warp's time that it waits, by reason, the largest first."""
    found = {
        name.removeprefix(STALL_PREFIX).removesuffix(STALL_SUFFIX): share
        for name, share in values.items()
        if name.startswith(STALL_PREFIX) and name.endswith(STALL_SUFFIX)
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _values(kernel: Mapping[str, Any]) -> dict[str, float]:
    values = {_name(fact): _value(fact, kernel[fact]) for fact in FACTS if fact in kernel}
    for reason, share in kernel.get("stalls", {}).items():
        values[f"{STALL_PREFIX}{reason}{STALL_SUFFIX}"] = share
    return values


def _name(fact: str) -> str:
    return fact.removesuffix(_PERCENT) + "_share" if fact.endswith(_PERCENT) else fact


def _value(fact: str, value: float) -> float:
    return value / 100 if fact.endswith(_PERCENT) else float(value)


def _findings(rules: Sequence[Mapping[str, Any]]) -> tuple[ProfilerFinding, ...]:
    """Those that advise something: by estimate those of the whole kernel, then those of a part, then the others."""
    findings = [
        ProfilerFinding(
            rule=rule["rule"][:_MAX_NAME],
            message=rule["message"][:_MAX_MESSAGE],
            estimated_speedup=_share(rule["estimated_speedup_pct"]),
            is_estimate_of_a_part=rule["speedup_scope"] == "local",
        )
        for rule in rules
        if rule["type"] in _ADVICE_TYPES
    ]
    return tuple(sorted(findings, key=_rank))


def _rank(finding: ProfilerFinding) -> tuple[bool, bool, float]:
    return finding.estimated_speedup is None, finding.is_estimate_of_a_part, -(finding.estimated_speedup or 0.0)


def _share(percent: float | None) -> float | None:
    return None if percent is None else min(max(percent / 100, 0.0), 1.0)
