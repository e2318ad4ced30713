"""What the calls of a case launch at the head that they did not at the base, by the profiles of both. Pure, and without
a judgement: another kernel is neither better nor worse by itself. Times under a profiler are compared with nothing, but
what moved must take enough of a call to explain a change of its time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.ci.library_kernels import Library, library_of
from roofwatch.ci.message import Remark
from roofwatch.collector.record.results import CaseProfile, ProfiledActivity

_OPERATOR = re.compile(r"\w+::\w+")
"""Torch's own operators; what torch.compile calls its regions and graphs is numbered, and another in every run."""
_ENOUGH = 1 / 2
"""Of what a change of a time asks for: shares are of calls back to back on a hot cache, and times often of others."""


class LaunchChange(StrEnum):
    LIBRARY_KERNEL = "library_kernel"
    """A library took another kernel than before."""
    NEW = "new"
    GONE = "gone"
    COUNT = "count"
    """More launches of it in a call, or fewer."""


@dataclass(frozen=True)
class LaunchMove:
    """Something that a call launches otherwise."""

    case_id: str
    implementation: str
    change: LaunchChange
    name: str
    """At the head; at the base where the head has none."""
    base_name: str
    base_count: float
    """In one call."""
    head_count: float
    base_share: float
    """Of the time in which anything was under way; 0 where it was not launched."""
    head_share: float

    @property
    def share(self) -> float:
        """At the head, of what is gone at the base."""
        return self.base_share if self.change is LaunchChange.GONE else self.head_share

    @property
    def remark(self) -> Remark:
        if self.change is LaunchChange.LIBRARY_KERNEL:
            return Remark("library kernel changed: {} instead of {}", (self.name, self.base_name))
        if self.change is LaunchChange.NEW:
            return Remark(f"{{}} is new, {self.head_count:.3g} in a call", (self.name,))
        if self.change is LaunchChange.GONE:
            return Remark(f"{{}} is gone, {self.base_count:.3g} in a call before", (self.name,))
        return Remark(f"{{}}: {self.base_count:.3g} → {self.head_count:.3g} in a call", (self.name,))


def find_launch_moves(base: Iterable[CaseProfile], head: Iterable[CaseProfile]) -> tuple[LaunchMove, ...]:
    """What is launched otherwise, what takes the largest share of its call first.

    Profiles are paired by case and implementation. A name that one side lacks is told only if that side left nothing
    out: else it may be among what was left out. Of one kind of library, a kernel that went and one that came are one
    change: the longest that went, for the longest that came, and so on.

    Args:
        base: Of the record to compare against.
        head: Of the new record.
    """
    before = {(profile.case_id, profile.implementation): profile for profile in base}
    moves = [
        move
        for after in head
        if (profile := before.get((after.case_id, after.implementation))) is not None
        for move in _moves(profile, after)
    ]
    return tuple(sorted(moves, key=lambda move: (-move.share, move.case_id, move.implementation, move.name)))


def may_explain(moves: Iterable[LaunchMove], log_change: float) -> bool:
    """Whether what is launched otherwise takes enough of the slower calls to have changed their time by so much.

    Args:
        moves: Of one case and implementation.
        log_change: Logarithm of the head's time over that of the base.
    """
    share = sum(move.head_share if log_change > 0 else move.base_share for move in moves)
    return share > 0 and share >= _ENOUGH * -math.expm1(-abs(log_change))


@dataclass(frozen=True)
class _Launched:
    count: float
    share: float


_NOTHING = _Launched(0.0, 0.0)


def _moves(base: CaseProfile, head: CaseProfile) -> Iterator[LaunchMove]:
    there, here = _launched(base), _launched(head)
    came = [name for name in here if name not in there] if base.left_out_count == 0 else []
    went = [name for name in there if name not in here] if head.left_out_count == 0 else []
    swapped = [
        pair
        for library in Library
        for pair in zip(_of_library(library, went), _of_library(library, came), strict=False)
    ]
    subject = (head.case_id, head.implementation)
    for old, new in swapped:
        yield LaunchMove(*subject, LaunchChange.LIBRARY_KERNEL, new, old, *_both(there[old], here[new]))
    for name in _without(came, [new for _, new in swapped]):
        yield LaunchMove(*subject, LaunchChange.NEW, name, "", *_both(_NOTHING, here[name]))
    for name in _without(went, [old for old, _ in swapped]):
        yield LaunchMove(*subject, LaunchChange.GONE, name, name, *_both(there[name], _NOTHING))
    for name, after in here.items():
        if name in there and there[name].count != after.count:
            yield LaunchMove(*subject, LaunchChange.COUNT, name, name, *_both(there[name], after))


def _both(base: _Launched, head: _Launched) -> tuple[float, float, float, float]:
    return base.count, head.count, base.share, head.share


def _launched(profile: CaseProfile) -> Mapping[str, _Launched]:
    """By name, the longest first; whatever device, and a copy is told by its name too."""
    found: dict[str, _Launched] = {}
    for row in filter(_compares, profile.rows):
        known = found.get(row.name, _NOTHING)
        share = row.total_ns / profile.busy_ns if profile.busy_ns else 0.0
        found[row.name] = _Launched(known.count + row.count / profile.call_count, known.share + share)
    return found


def _compares(row: ProfiledActivity) -> bool:
    return row.kind != "operator" or _OPERATOR.fullmatch(row.name) is not None


def _of_library(library: Library, names: Iterable[str]) -> list[str]:
    return [name for name in names if library_of(name) is library]


def _without(names: Iterable[str], others: Iterable[str]) -> list[str]:
    left_out = set(others)
    return [name for name in names if name not in left_out]
