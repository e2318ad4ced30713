"""What a diagnosis consists of: the limit that binds, findings, and what is not known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from roofwatch.ci.message import Remark


class Limit(StrEnum):
    """What the time of a kernel goes into."""

    MEMORY = "memory"
    """Bytes wait for device memory."""
    CACHE = "cache"
    """Bytes wait for the last-level cache."""
    COMPUTE = "compute"
    """Arithmetic units are busy."""
    LATENCY = "latency"
    """Neither is busy: there is too little under way at once to hide how long each step takes."""
    LAUNCH = "launch overhead"
    """Starting kernels, and the pauses between them."""
    HOST = "host"
    """The program issues work more slowly than the device does it."""
    LINKS = "links"
    """Bytes wait for the links between devices."""
    UNDETERMINED = "undetermined"
    """What is known names none."""


class Weight(IntEnum):
    """How a finding is to be read; in the order of telling."""

    DOUBT = 0
    """The numbers themselves may be wrong."""
    BINDING = 1
    """It names the limit."""
    CAUSE = 2
    """A measured reason for, or a way out of it."""
    HINT = 3
    """Seen in machine code alone: what it costs in time was not measured."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a rule saw.

    Args:
        rule: Its name; docs/how-to/diagnose.md has its source.
        limit: What it has to do with; None where it is about no limit.
        weight: How it is to be read.
        title: In a few words.
        evidence: In numbers.
        advice: What to try.
        most_speedup: At most so many times faster if all of it is mended; None where that cannot be bounded.
        is_measured: The speedup is no bound but what was seen.
    """

    rule: str
    limit: Limit | None
    weight: Weight
    title: str
    evidence: Remark
    advice: str
    most_speedup: float | None = None
    is_measured: bool = False


@dataclass(frozen=True)
class Missing:
    """What is not known, and how to get to know it."""

    what: str
    how: Remark


@dataclass(frozen=True)
class Diagnosis:
    """Of one case and implementation.

    Args:
        case_id: The case.
        implementation: The implementation.
        limit: What binds.
        headline: Why, in a sentence.
        findings: The most telling first.
        missing: What would make it more certain.
    """

    case_id: str
    implementation: str
    limit: Limit
    headline: Remark
    findings: tuple[Finding, ...]
    missing: tuple[Missing, ...]


def ranked(findings: list[Finding]) -> tuple[Finding, ...]:
    """By weight, then by how much there is to gain; what cannot be bounded after what can, in the order given."""
    return tuple(sorted(findings, key=lambda finding: (finding.weight, -(finding.most_speedup or 0.0))))


def at_least_one(speedup: float) -> float:
    """A bound on a speedup, where the estimate itself may lie below what is there."""
    return max(speedup, 1.0)


def share_in_words(share: float) -> str:
    """A share in whole percent."""
    return "less than 1%" if share < 0.01 else f"{share:.0%}"
