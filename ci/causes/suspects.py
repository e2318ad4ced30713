"""Possible causes of a change, weighed against each other. Pure.

Each piece of evidence gives a cause odds against what is not known, which has odds of 1. A weight is a cause's share of
all odds, so no cause is ever certain, and two with the same evidence stay level.
docs/explanation/causes.md lists the odds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofwatch.db.values import Cause, Suspect

_NOTHING = "nothing that was recorded changed with it"
_LEAST_TOLD = 0.02
"""A cause with less weight is not worth a sentence."""


@dataclass(frozen=True)
class Odds:
    """How likely one cause is beside what is not known, and what says so."""

    against_unknown: float
    sentence: str


def weigh(odds: Mapping[Cause, Odds], *, unknown: float = 1.0) -> tuple[Suspect, ...]:
    """Odds to suspects, the likeliest first, `unknown` among them.

    Args:
        odds: By cause; 0 excludes it.
        unknown: Odds of what is not known; smaller where only the causes given are possible.
    """
    likely = {cause: one for cause, one in odds.items() if one.against_unknown > 0}
    total = unknown + sum(one.against_unknown for one in likely.values())
    suspects = [Suspect(cause, one.against_unknown / total, one.sentence) for cause, one in likely.items()]
    excluded = [one.sentence for one in odds.values() if one.against_unknown <= 0 and one.sentence]
    told = "; ".join([_NOTHING if not likely else "something that is not recorded", *excluded])
    return ranked([*suspects, Suspect(Cause.UNKNOWN, unknown / total, told)])


def ranked(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """The likeliest first; of two that are level, `unknown`, which accuses nobody."""
    order = list(Cause)
    return tuple(
        sorted(
            suspects,
            key=lambda one: (-round(one.weight, 9), one.cause is not Cause.UNKNOWN, order.index(one.cause)),
        )
    )


def cause_of(suspects: Sequence[Suspect]) -> Cause:
    """The likeliest."""
    return ranked(suspects)[0].cause if suspects else Cause.UNKNOWN


def combine(several: Sequence[Sequence[Suspect]]) -> tuple[Suspect, ...]:
    """Suspects of many change points of one cause: the mean of their weights, each with the sentence of the change
    point that it weighs most in.
    """
    if not several:
        return weigh({})
    weights: dict[Cause, float] = defaultdict(float)
    best: dict[Cause, Suspect] = {}
    counts: dict[Cause, int] = defaultdict(int)
    for suspects in several:
        for suspect in suspects:
            weights[suspect.cause] += suspect.weight / len(several)
            counts[suspect.cause] += 1
            if suspect.cause not in best or suspect.weight > best[suspect.cause].weight:
                best[suspect.cause] = suspect
    return ranked(
        [
            Suspect(cause, weight, _of_how_many(best[cause].sentence, counts[cause], len(several)))
            for cause, weight in weights.items()
            if weight >= _LEAST_TOLD or cause is Cause.UNKNOWN
        ]
    )


def _of_how_many(sentence: str, count: int, total: int) -> str:
    return sentence if count == total else f"{sentence} (so on {count} of {total} series)"
