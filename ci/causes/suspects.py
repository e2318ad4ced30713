"""Possible causes of a change, weighed against each other. Pure.

Evidence gives a cause odds against `unknown`, which has odds of 1. A weight is a cause's share of all odds, so no cause
is certain. docs/explanation/causes.md lists the odds.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofwatch.db.values import Cause, Suspect

_MIN_WEIGHT = 0.02
"""A cause with less weight is not reported."""


@dataclass(frozen=True)
class Odds:
    """Odds of one cause against `unknown`, with the evidence."""

    against_unknown: float
    sentence: str

    def updated(self, sentence: str, *, factor: float = 1.0, at_least: float = 0.0) -> "Odds":
        sentences = "; ".join(filter(None, (self.sentence, sentence)))
        return Odds(max(self.against_unknown * factor, at_least), sentences)


def weigh(odds: Mapping[Cause, Odds]) -> tuple[Suspect, ...]:
    """Convert odds to suspects, the likeliest first, with `unknown` among them. Odds of 0 exclude a cause."""
    likely = {cause: one for cause, one in odds.items() if one.against_unknown > 0}
    total = 1.0 + sum(one.against_unknown for one in likely.values())
    suspects = [Suspect(cause, one.against_unknown / total, one.sentence) for cause, one in likely.items()]
    excluded = [one.sentence for one in odds.values() if one.against_unknown <= 0 and one.sentence]
    unknown = "unknown cause" if likely else "no recorded change coincides"
    return ranked([*suspects, Suspect(Cause.UNKNOWN, 1.0 / total, "; ".join([unknown, *excluded]))])


def ranked(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Sort by weight, the likeliest first; of equal weights, `unknown` first."""
    order = [Cause.UNKNOWN, *Cause]
    return tuple(sorted(suspects, key=lambda one: (-round(one.weight, 9), order.index(one.cause))))


def cause_of(suspects: Sequence[Suspect]) -> Cause:
    return ranked(suspects)[0].cause if suspects else Cause.UNKNOWN


def combine(several: Sequence[Sequence[Suspect]]) -> tuple[Suspect, ...]:
    """Combine the suspects of many change points: the mean of their weights, each with its strongest sentence."""
    if not several:
        return weigh({})
    by_cause: dict[Cause, list[Suspect]] = defaultdict(list)
    for suspect in (suspect for suspects in several for suspect in suspects):
        by_cause[suspect.cause].append(suspect)
    combined = []
    for cause, own in by_cause.items():
        weight = sum(suspect.weight for suspect in own) / len(several)
        if weight >= _MIN_WEIGHT or cause is Cause.UNKNOWN:
            sentence = max(own, key=lambda suspect: suspect.weight).sentence
            note = "" if len(own) == len(several) else f" ({len(own)} of {len(several)} series)"
            combined.append(Suspect(cause, weight, sentence + note))
    return ranked(combined)
