"""What a call launches differently: by the profiles of both sides and by Triton's autotuner. Pure;
no verdict.

Times under a profiler are not compared. A change of launches explains a change of time only if it
takes enough of the call.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roofwatch.ci.messages import Remark
from roofwatch.model.measurement import Autotuning, Measurement
from roofwatch.model.metrics import format_ns
from roofwatch.model.results import CaseProfile

_ENOUGH = 1 / 2
"""Share of a change of time that launches must account for. Profiles have a hot cache, and times
often a cold one.
"""


@dataclass(frozen=True)
class LaunchMove:
    """One kernel or copy that a call launches differently."""

    case_id: str
    implementation: str
    base_name: str
    """Empty for a kernel that only the head launches."""
    head_name: str
    base_count: float
    """Launches in one call."""
    head_count: float
    base_share: float
    """Share of the busy time; 0 if it was not launched."""
    head_share: float

    @property
    def share(self) -> float:
        """At the head; at the base for a kernel that is gone."""
        return self.head_share if self.head_name else self.base_share

    @property
    def remark(self) -> Remark:
        if not self.base_name:
            return Remark(f"{{}} is new, {self.head_count:.3g} in a call", (self.head_name,))
        if not self.head_name:
            return Remark(
                f"{{}} is gone, {self.base_count:.3g} in a call before", (self.base_name,)
            )
        if self.head_name != self.base_name:
            return Remark("kernel changed: {} instead of {}", (self.head_name, self.base_name))
        return Remark(
            f"{{}}: {self.base_count:.3g} → {self.head_count:.3g} in a call", (self.head_name,)
        )


def find_launch_moves(
    base: Iterable[CaseProfile], head: Iterable[CaseProfile]
) -> tuple[LaunchMove, ...]:
    """Find launches that differ, the largest share of its call first.

    Profiles are paired by case and implementation. A name that one side lacks is reported only if
    that side's profile is complete. A kernel that went and one that came with as many launches are
    one change, the longest ones first.
    """
    before = {(profile.case_id, profile.implementation): profile for profile in base}
    moves = [
        move
        for after in head
        if (profile := before.get((after.case_id, after.implementation))) is not None
        for move in _moves(profile, after)
    ]
    return tuple(
        sorted(
            moves,
            key=lambda one: (
                -one.share,
                one.case_id,
                one.implementation,
                one.head_name or one.base_name,
            ),
        )
    )


def may_explain(moves: Iterable[LaunchMove], log_change: float) -> bool:
    """Whether launches that differ take enough of the slower call to explain its change ln(head /
    base) of the time.
    """
    share = sum(move.head_share if log_change > 0 else move.base_share for move in moves)
    return share > 0 and share >= _ENOUGH * -math.expm1(-abs(log_change))


_Launched = tuple[float, float]
"""Launches in a call, and their share of its busy time."""


def _moves(base: CaseProfile, head: CaseProfile) -> Iterator[LaunchMove]:
    before, after = _launched(base), _launched(head)
    pairs = [(name, name) for name in after if name in before and before[name][0] != after[name][0]]
    came = [name for name in after if name not in before] if base.left_out_count == 0 else []
    went = [name for name in before if name not in after] if head.left_out_count == 0 else []
    for old in went:
        new = next((name for name in came if after[name][0] == before[old][0]), "")
        pairs.append((old, new))
        if new:
            came.remove(new)
    for old, new in [*pairs, *(("", name) for name in came)]:
        (base_count, base_share), (head_count, head_share) = (
            before.get(old, (0, 0)),
            after.get(new, (0, 0)),
        )
        counts = base_count, head_count, base_share, head_share
        yield LaunchMove(head.case_id, head.implementation, old, new, *counts)


def _launched(profile: CaseProfile) -> dict[str, _Launched]:
    """Launches by name, the longest first."""
    found: dict[str, _Launched] = {}
    for row in profile.rows:
        if row.has_lasting_name:
            count, share = found.get(row.name, (0.0, 0.0))
            own_share = row.total_ns / profile.busy_ns if profile.busy_ns else 0.0
            found[row.name] = count + row.count / profile.call_count, share + own_share
    return found


# --- the autotuner

Configuration = Mapping[str, str | int | float | bool | None]


def find_flips(base: Measurement, head: Measurement) -> tuple[Remark, ...]:
    """Describe each function for which Triton's autotuner chose another configuration at the head.

    Choices are paired by function and key, or by function alone if each side has a single key. A
    side whose processes chose differently has flipped only if it never chose as the other side did.
    """
    before, after = _by_function(base.autotuning), _by_function(head.autotuning)
    flips = []
    for function, keys in after.items():
        known = before.get(function, {})
        for key, new in keys.items():
            old = known.get(key) or (
                next(iter(known.values())) if len(known) == len(keys) == 1 else []
            )
            if old and not any(one.chosen == other.chosen for one in old for other in new):
                flips.append(_flip(old, new))
    return tuple(flips)


def _by_function(choices: Sequence[Autotuning]) -> dict[str, dict[str, list[Autotuning]]]:
    found: dict[str, dict[str, list[Autotuning]]] = defaultdict(dict)
    for choice in choices:
        found[choice.function].setdefault(choice.key, []).append(choice)
    return found


def _flip(before: Sequence[Autotuning], after: Sequence[Autotuning]) -> Remark:
    """Describe the choices of both sides, with their times by the head's tuning."""
    timed = next((choice for choice in after if choice.timings), after[0])

    def time_of(choice: Autotuning) -> str | None:
        timing = next((one for one in timed.timings if one.configuration == choice.chosen), None)
        return None if timing is None or timing.time_ns is None else format_ns(timing.time_ns)

    new, old = time_of(timed), time_of(before[0])
    timings = ""
    if new is not None:
        timings = f"; its own timings: {new}" + (
            f" against {old}" if old else ", and the other was not tried"
        )
    base = [choice.chosen for choice in before]
    head = [timed.chosen, *(choice.chosen for choice in after if choice is not timed)]
    words = (timed.function, _describe(head, base), _describe(base, head))
    return Remark(f"the autotuner of {{}} chose {{}} instead of {{}}{timings}", words)


def _describe(configurations: Sequence[Configuration], others: Sequence[Configuration]) -> str:
    """The settings that differ from the others."""
    both = (*configurations, *others)
    names = dict.fromkeys(name for each in both for name in each)
    differing = [name for name in names if len({repr(each.get(name)) for each in both}) > 1]
    described = [
        ", ".join(f"{name}={each[name]}" for name in differing if name in each)
        for each in configurations
    ]
    return " or ".join(dict.fromkeys(one or "the defaults" for one in described))
