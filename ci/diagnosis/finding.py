"""Rules, and what a diagnosis consists of: the limit that binds, findings, and what is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.message import Remark


class Weight(IntEnum):
    """How a finding is to be read; in the order of telling."""

    DOUBT = 0
    """The numbers themselves may be wrong."""
    BINDING = 1
    """It names the limit."""
    CAUSE = 2
    """A measured reason for it, or a way out."""
    HINT = 3
    """Seen in machine code alone; what it costs in time was not measured."""


@dataclass(frozen=True)
class Observation:
    """What a rule saw.

    Args:
        text: The evidence in numbers, with one `{}` for each word that comes from a record.
        words: Those words.
        most_speedup: At most so many times faster if all of it is mended; None if that cannot be bounded.
        is_measured: The speedup is no bound but was measured.
        weight: In place of the rule's; the same for the others.
    """

    text: str
    words: tuple[str, ...] = ()
    most_speedup: float | None = None
    is_measured: bool = False
    weight: Weight | None = None
    limit: Limit | None = None
    title: str | None = None
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing to look for; docs/how-to/diagnose.md lists all rules with their sources.

    Args:
        name: Of the rule.
        limit: What it has to do with; None if it is about no limit.
        weight: How its findings are to be read, unless the limit binds: then they name it.
        title: In a few words.
        advice: What to try.
        observe: Its condition and evidence: gives nothing where the condition does not hold.
    """

    name: str
    title: str
    advice: str
    observe: Callable[[Evidence], Iterator[Observation]]
    limit: Limit | None = None
    weight: Weight = Weight.CAUSE

    def findings(self, evidence: Evidence) -> Iterator[Finding]:
        """What the rule finds in the evidence."""
        for seen in self.observe(evidence):
            yield Finding(
                rule=self.name,
                limit=seen.limit or self.limit,
                weight=self.weight if seen.weight is None else seen.weight,
                title=seen.title or self.title,
                evidence=Remark(seen.text, seen.words),
                advice=seen.advice or self.advice,
                # an estimate may lie below what is there
                most_speedup=None if seen.most_speedup is None else max(seen.most_speedup, 1.0),
                is_measured=seen.is_measured,
            )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a rule saw; the fields are those of `Rule` and `Observation`."""

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
    """What is not known, and how to find it out."""

    what: str
    how: Remark


@dataclass(frozen=True)
class Diagnosis:
    """Of one case and implementation.

    Args:
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


def share_in_words(share: float) -> str:
    """A share in whole percent."""
    return "less than 1%" if share < 0.01 else f"{share:.0%}"
