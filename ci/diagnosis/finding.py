"""What a diagnosis consists of."""

from collections.abc import Callable, Iterator
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


@dataclass(frozen=True, kw_only=True)
class DiagnosisFinding:
    title: str
    text: str
    """The numbers, with one `{}` for each of the words."""
    words: tuple[str, ...] = ()
    """Words from the record."""
    advice: str
    """What to try."""
    rule: str = ""
    """Name of the rule; `diagnose` sets it."""
    weight: Weight = Weight.CAUSE
    most_speedup: float | None = None
    """Upper bound of the speedup if this is fixed; None if unknown."""
    is_measured: bool = False
    """The speedup was measured and is not a bound."""

    @property
    def evidence(self) -> Remark:
        return Remark(self.text, self.words)


Rule = Callable[[Evidence], Iterator[DiagnosisFinding]]
"""Yields nothing if its condition does not hold. docs/how-to/diagnose.md lists all rules with their
sources.
"""


@dataclass(frozen=True)
class Diagnosis:
    """What limits one case and implementation, and the most important findings first."""

    evidence: Evidence
    headline: Remark
    """The limit in one sentence."""
    findings: tuple[DiagnosisFinding, ...]
    missing: tuple[Remark, ...]
    """What is not known, and how to find out."""

    @property
    def limit(self) -> Limit:
        return self.evidence.limit


def share_in_words(share: float) -> str:
    """A share in whole percent."""
    if share < 0.01:
        return "less than 1%"
    return f"{share:.0%}"
