"""What the calls of a case launch at the head that they did not at the base, by the profiles of both. Pure, and without
a judgement: another kernel is neither better nor worse by itself. Times under a profiler are compared with nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ci.remark import Remark
from collector.case_profile import CaseProfile, ProfiledActivity

_LIBRARY = re.compile(
    r"cublas|cudnn|cutlass|nvjet|xmma|rocblas|hipblas|miopen|Cijk_|(volta|turing|ampere|hopper|sm\d{2,3})_\w*(gemm|conv)"
)
"""As kernels of cuBLAS, cuDNN, CUTLASS, rocBLAS with Tensile, and MIOpen are named."""
_OPERATOR = re.compile(r"\w+::\w+")
"""Torch's own operators; what torch.compile calls its regions and graphs is numbered, and another in every run."""


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
    share: float
    """Of the time in which anything was under way: at the head, of what is gone at the base."""

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
    out: else it may be among what was left out. Of one kind of change, a library's kernel that went and one that came
    are one: the longest that went, for the longest that came, and so on.

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


@dataclass(frozen=True)
class _Launched:
    count: float
    share: float


def _moves(base: CaseProfile, head: CaseProfile) -> Iterator[LaunchMove]:
    there, here = _launched(base), _launched(head)
    came = [name for name in here if name not in there] if base.left_out_count == 0 else []
    went = [name for name in there if name not in here] if head.left_out_count == 0 else []
    swapped = list(zip(_of_libraries(went), _of_libraries(came), strict=False))
    subject = (head.case_id, head.implementation)
    for old, new in swapped:
        counts = (there[old].count, here[new].count)
        yield LaunchMove(*subject, LaunchChange.LIBRARY_KERNEL, new, old, *counts, here[new].share)
    for name in _without(came, [new for _, new in swapped]):
        yield LaunchMove(*subject, LaunchChange.NEW, name, "", 0.0, here[name].count, here[name].share)
    for name in _without(went, [old for old, _ in swapped]):
        yield LaunchMove(*subject, LaunchChange.GONE, name, name, there[name].count, 0.0, there[name].share)
    for name, after in here.items():
        if name in there and there[name].count != after.count:
            yield LaunchMove(*subject, LaunchChange.COUNT, name, name, there[name].count, after.count, after.share)


def _launched(profile: CaseProfile) -> Mapping[str, _Launched]:
    """By name, the longest first; whatever device, and a copy is told by its name too."""
    found: dict[str, _Launched] = {}
    for row in filter(_compares, profile.rows):
        known = found.get(row.name, _Launched(0.0, 0.0))
        share = row.total_ns / profile.busy_ns if profile.busy_ns else 0.0
        found[row.name] = _Launched(known.count + row.count / profile.call_count, known.share + share)
    return found


def _compares(row: ProfiledActivity) -> bool:
    return row.kind != "operator" or _OPERATOR.fullmatch(row.name) is not None


def _of_libraries(names: Iterable[str]) -> list[str]:
    return [name for name in names if _LIBRARY.search(name)]


def _without(names: Iterable[str], others: Iterable[str]) -> list[str]:
    left_out = set(others)
    return [name for name in names if name not in left_out]
