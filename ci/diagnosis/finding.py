"""Rules and what a diagnosis consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.messages import Remark


class Weight(IntEnum):
    """The kind of a finding; findings are listed in this order."""

    DOUBT = 0
    """The measurement may be wrong."""
    BINDING = 1
    """It names the limit."""
    CAUSE = 2
    """A measured cause, or a remedy."""
    HINT = 3
    """Seen in machine code only; its cost was not measured."""


@dataclass(frozen=True)
class Observation:
    """What a rule found in the evidence; `weight`, `limit`, `title` and `advice` override those of the rule."""

    text: str
    """The evidence in numbers, with one `{}` for each of `words`."""
    words: tuple[str, ...] = ()
    """Words from the record."""
    most_speedup: float | None = None
    """Upper bound of the speedup if this is fixed; None if unknown."""
    is_measured: bool = False
    """The speedup was measured and is not a bound."""
    weight: Weight | None = None
    limit: Limit | None = None
    title: str | None = None
    advice: str | None = None


Observe = Callable[[Evidence], Iterator[Observation]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A condition with its evidence, and advice; docs/how-to/diagnose.md lists all rules with their sources."""

    name: str
    title: str
    advice: str
    observe: Observe
    """Yields nothing if the condition does not hold."""
    limit: Limit | None
    weight: Weight


def rule(
    *, title: str, advice: str, limit: Limit | None = None, weight: Weight = Weight.CAUSE
) -> Callable[[Observe], Rule]:
    """Make a rule of the function that observes it; the function gives the name."""

    def make(observe: Observe) -> Rule:
        return Rule(name=observe.__name__, title=title, advice=advice, observe=observe, limit=limit, weight=weight)

    return make


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An observation with the title and advice of its rule."""

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
    """What is not known, and how to find out."""

    what: str
    how: Remark


@dataclass(frozen=True)
class Diagnosis:
    """The limit of one case and implementation, the most important findings first, and what is missing."""

    case_id: str
    implementation: str
    limit: Limit
    headline: Remark
    findings: tuple[Finding, ...]
    missing: tuple[Missing, ...]


def evaluate(rules: Iterable[Rule], evidence: Evidence) -> list[Finding]:
    """Apply rules; findings are sorted by weight, then by possible speedup."""
    findings = [
        Finding(
            rule=each.name,
            limit=seen.limit or each.limit,
            weight=each.weight if seen.weight is None else seen.weight,
            title=seen.title or each.title,
            evidence=Remark(seen.text, seen.words),
            advice=seen.advice or each.advice,
            most_speedup=None if seen.most_speedup is None else max(seen.most_speedup, 1.0),
            is_measured=seen.is_measured,
        )
        for each in rules
        for seen in each.observe(evidence)
    ]
    return sorted(findings, key=lambda finding: (finding.weight, -(finding.most_speedup or 0.0)))


def share_in_words(share: float) -> str:
    """A share in whole percent."""
    return "less than 1%" if share < 0.01 else f"{share:.0%}"
