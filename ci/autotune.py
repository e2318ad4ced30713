"""What Triton's autotuner chose otherwise at the head than at the base: other code ran, if none was written. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.message import Remark
from roofwatch.collector.record.measurement import Autotuning, Measurement
from roofwatch.collector.record.metrics import format_ns

Configuration = Mapping[str, str | int | float | bool | None]
_Key = tuple[str, str]
"""Function, and what its choice depends on."""


@dataclass(frozen=True)
class Flip:
    """One function whose configuration is another at the head."""

    function: str
    base: tuple[Configuration, ...]
    """More than one where processes of one side did not choose alike: the configurations are about as fast."""
    head: tuple[Configuration, ...]
    base_time_ns: float | None
    """Of what the base chose, by the head's own tuning; None where the head did not try it, or has no times."""
    head_time_ns: float | None
    """Of what the head chose, by the same tuning."""

    @property
    def remark(self) -> Remark:
        words = (self.function, _text(self.head, self.base), _text(self.base, self.head))
        return Remark(f"the autotuner of {{}} chose {{}} instead of {{}}{self._timings}", words)

    @property
    def _timings(self) -> str:
        if self.head_time_ns is None:
            return ""
        if self.base_time_ns is None:
            return f"; its own timings: {format_ns(self.head_time_ns)}, and the other was not tried"
        return f"; its own timings: {format_ns(self.head_time_ns)} against {format_ns(self.base_time_ns)}"


def find_flips(base: Measurement, head: Measurement) -> tuple[Flip, ...]:
    """Compare the choices of the two sides of one case.

    Choices are paired by function and key; where the key is another, as after a change of the arguments, by function if
    each side has one key alone. A side that chose differently from process to process has flipped only if it never
    chose as the other did.
    """
    there, here = _by_key(base.autotuning), _by_key(head.autotuning)
    return tuple(
        _flip(before, after)
        for key, after in here.items()
        if (before := there.get(key) or _only_of(key[0], there, here)) is not None
        and not _share_a_choice(before, after)
    )


def _by_key(choices: Sequence[Autotuning]) -> dict[_Key, list[Autotuning]]:
    found: dict[_Key, list[Autotuning]] = defaultdict(list)
    for choice in choices:
        found[choice.function, choice.key].append(choice)
    return dict(found)


def _only_of(
    function: str, there: Mapping[_Key, list[Autotuning]], here: Mapping[_Key, list[Autotuning]]
) -> list[Autotuning] | None:
    sides = [[choices for (name, _), choices in side.items() if name == function] for side in (there, here)]
    return sides[0][0] if [len(side) for side in sides] == [1, 1] else None


def _share_a_choice(before: Sequence[Autotuning], after: Sequence[Autotuning]) -> bool:
    return any(old.chosen == new.chosen for old in before for new in after)


def _flip(before: Sequence[Autotuning], after: Sequence[Autotuning]) -> Flip:
    timed = next((choice for choice in after if choice.timings), after[0])
    old = before[0].chosen
    return Flip(
        function=timed.function,
        base=tuple(choice.chosen for choice in before),
        head=(timed.chosen, *(choice.chosen for choice in after if choice is not timed)),
        base_time_ns=_time_ns(timed, old),
        head_time_ns=_time_ns(timed, timed.chosen),
    )


def _time_ns(choice: Autotuning, configuration: Configuration) -> float | None:
    return next((timing.time_ns for timing in choice.timings if timing.configuration == configuration), None)


def _text(configurations: Sequence[Configuration], others: Sequence[Configuration]) -> str:
    """What tells them from the others."""
    both = (*configurations, *others)
    names = dict.fromkeys(name for each in both for name in each)
    telling = [name for name in names if len({repr(each.get(name)) for each in both}) > 1]
    return " or ".join(
        dict.fromkeys(
            ", ".join(f"{name}={each[name]}" for name in telling if name in each) or "the defaults"
            for each in configurations
        )
    )
