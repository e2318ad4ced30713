"""Odds of causes against `unknown`, and the suspects that they make. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from roofwatch.model.grouping import group_by
from roofwatch.model.history import Cause, Suspect

AT_STEP = 9.0
"""Odds of a change exactly at the step: such commits are few, so coincidence is rare."""
NEAR_STEP = 3.0
"""Odds of a change at a neighbouring commit that the series does not exclude."""
_MIN_WEIGHT = 0.02
"""A cause with less weight is not reported."""


@dataclass(frozen=True)
class Odds:
    """Odds of one cause against `unknown`, with the evidence."""

    against_unknown: float
    """How much likelier the cause is than one that nothing recorded."""
    sentence: str
    """The evidence, for readers."""

    def updated(
        self,
        sentence: str,
        *,
        factor: float = 1.0,
        at_least: float = 0.0,
    ) -> "Odds":
        """Add evidence: multiply the odds, and join the sentences."""
        sentences = "; ".join(filter(None, (self.sentence, sentence)))
        return Odds(max(self.against_unknown * factor, at_least), sentences)


CauseOdds = dict[Cause, Odds]


def weigh(odds: Mapping[Cause, Odds]) -> tuple[Suspect, ...]:
    """Convert odds to suspects, the likeliest first, with `unknown` among them. Odds of 0 exclude a
    cause.
    """
    total = 1.0 + sum(cause_odds.against_unknown for cause_odds in odds.values())
    suspects: list[Suspect] = []
    excluded: list[str] = []
    for cause, cause_odds in odds.items():
        if cause_odds.against_unknown > 0:
            weight = cause_odds.against_unknown / total
            suspects.append(
                Suspect(
                    cause=cause,
                    weight=weight,
                    sentence=cause_odds.sentence,
                )
            )
        elif cause_odds.sentence:
            # the unknown cause names those that are excluded
            excluded.append(cause_odds.sentence)
    unknown = "no recorded change coincides"
    if suspects:
        unknown = "unknown cause"
    sentence = "; ".join([unknown, *excluded])
    suspects.append(
        Suspect(
            cause=Cause.UNKNOWN,
            weight=1.0 / total,
            sentence=sentence,
        )
    )
    return ranked(suspects)


def ranked(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Sort by weight, the likeliest first; of equal weights, `unknown` first."""
    order = [Cause.UNKNOWN, *Cause]

    def rank(suspect: Suspect) -> tuple[float, int]:
        # weights that differ by rounding only are equal
        return -round(suspect.weight, 9), order.index(suspect.cause)

    return tuple(sorted(suspects, key=rank))


def cause_of(suspects: Sequence[Suspect]) -> Cause:
    """The likeliest cause; unknown without suspects."""
    if not suspects:
        return Cause.UNKNOWN
    return ranked(suspects)[0].cause


def combine(several: Sequence[Sequence[Suspect]]) -> tuple[Suspect, ...]:
    """Combine the suspects of many change points: the mean of their weights, each with its
    strongest sentence.
    """
    if not several:
        return weigh({})
    combined = []
    by_cause = group_by(chain.from_iterable(several), lambda suspect: suspect.cause)
    for cause, same_cause in by_cause.items():
        weight = sum(suspect.weight for suspect in same_cause) / len(several)
        # a cause that hardly any series suspects only makes the list longer
        if weight < _MIN_WEIGHT and cause is not Cause.UNKNOWN:
            continue
        sentence = max(same_cause, key=lambda suspect: suspect.weight).sentence
        if len(same_cause) < len(several):
            sentence += f" ({len(same_cause)} of {len(several)} series)"
        combined.append(
            Suspect(
                cause=cause,
                weight=weight,
                sentence=sentence,
            )
        )
    return ranked(combined)
