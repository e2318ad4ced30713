"""What runs differently at the head, by the profiles of both sides and by Triton's autotuner. Pure; no judgement.

Another kernel is neither better nor worse by itself. Times under a profiler are compared with nothing, but what changed
must take enough of a call to explain a change of its time.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from roofwatch.ci.message import Remark
from roofwatch.collector.record.measurement import Autotuning, Measurement
from roofwatch.collector.record.metrics import format_ns
from roofwatch.collector.record.results import CaseProfile

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
    """One thing that a call launches differently."""

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
    """What is launched differently, what takes the largest share of its call first.

    Profiles are paired by case and implementation. A name that one side lacks is reported only if that side left
    nothing out. Of one kind of library, a kernel that went and one that came are one change: the longest that went, for
    the longest that came, and so on.
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
    """Whether what is launched differently takes enough of the slower calls to have changed their time by so much.

    Args:
        moves: Of one case and implementation.
        log_change: Logarithm of the head's time over that of the base.
    """
    share = sum(move.head_share if log_change > 0 else move.base_share for move in moves)
    return share > 0 and share >= _ENOUGH * -math.expm1(-abs(log_change))


_Launched = tuple[float, float]
"""Launches in a call, and their share of its time."""
_NOTHING: _Launched = (0.0, 0.0)


def _moves(base: CaseProfile, head: CaseProfile) -> Iterator[LaunchMove]:
    there, here = _launched(base), _launched(head)
    came = [name for name in here if name not in there] if base.left_out_count == 0 else []
    went = [name for name in there if name not in here] if head.left_out_count == 0 else []
    swapped = [
        pair
        for library in Library
        for pair in zip(
            [name for name in went if library_of(name) is library],
            [name for name in came if library_of(name) is library],
            strict=False,
        )
    ]

    def move(change: LaunchChange, name: str, base_name: str) -> LaunchMove:
        (base_count, base_share), (head_count, head_share) = there.get(base_name, _NOTHING), here.get(name, _NOTHING)
        counts = base_count, head_count, base_share, head_share
        return LaunchMove(head.case_id, head.implementation, change, name, base_name, *counts)

    for old, new in swapped:
        yield move(LaunchChange.LIBRARY_KERNEL, new, old)
    for name in came:
        if all(name != new for _, new in swapped):
            yield move(LaunchChange.NEW, name, "")
    for name in went:
        if all(name != old for old, _ in swapped):
            yield move(LaunchChange.GONE, name, name)
    for name in here:
        if name in there and there[name][0] != here[name][0]:
            yield move(LaunchChange.COUNT, name, name)


def _launched(profile: CaseProfile) -> Mapping[str, _Launched]:
    """By name, the longest first; whatever device, and a copy is told by its name too."""
    found: dict[str, _Launched] = {}
    for row in profile.rows:
        if row.kind != "operator" or _OPERATOR.fullmatch(row.name):
            count, share = found.get(row.name, _NOTHING)
            own_share = row.total_ns / profile.busy_ns if profile.busy_ns else 0.0
            found[row.name] = count + row.count / profile.call_count, share + own_share
    return found


# --- kernels of libraries


class Library(StrEnum):
    """Kinds of libraries: for one call, a kernel of one library may come for that of another of its kind."""

    DENSE = "dense"
    """Matrix products and convolutions: cuBLAS, cuDNN, CUTLASS, rocBLAS and hipBLASLt with Tensile, MIOpen, CK."""
    COLLECTIVES = "collectives"
    """NCCL and RCCL, whose kernels are named by algorithm and protocol."""
    SPARSE = "sparse"
    FFT = "fft"


_INDUCTOR = re.compile(r"triton_(poi|red|per|tem|mm|foreach)_")
"""Of torch.compile, named after its operators; one may be called as a library: `cudnn_batch_norm`."""
_GENERATION = r"(kepler|maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell|sm\d{2,3})_"
_NAMES = (
    (Library.COLLECTIVES, re.compile(r"nccl\w*Kernel|rccl\w*Kernel|msccl", re.IGNORECASE)),
    (
        Library.DENSE,
        re.compile(
            rf"cublas|cudnn|cutlass|cask|nvjet|xmma|{_GENERATION}\w*(gemm|conv)"
            r"|(implicit|explicit|precomputed)_convolve_\w*gemm|conv2d_grouped_direct_kernel"
            r"|rocblas|hipblas|miopen|Cijk_|\bck(_tile)?::|_ZN\w*?(2ck\d|7ck_tile)|igemm_(fwd|bwd|wrw)_gtc",
            re.IGNORECASE,
        ),
    ),
    (Library.SPARSE, re.compile(r"cusparse|rocsparse|hipsparse", re.IGNORECASE)),
    (Library.FFT, re.compile(r"\b(vector|regular)_fft<|cufft|rocfft|fft_rtc_|fft2d_[cr]2[cr]_", re.IGNORECASE)),
)
"""cuDNN's convolutions by FFT name cuDNN too, and count as its."""


def library_of(name: str) -> Library | None:
    """Whose kernel it is, by its name in a profile; None if it is of no known library."""
    if _INDUCTOR.match(name):
        return None
    return next((library for library, names in _NAMES if names.search(name)), None)


# --- the autotuner

Configuration = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True)
class Flip:
    """One function for which Triton's autotuner chose another configuration at the head."""

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
        words = (self.function, _describe(self.head, self.base), _describe(self.base, self.head))
        if self.head_time_ns is None:
            timings = ""
        elif self.base_time_ns is None:
            timings = f"; its own timings: {format_ns(self.head_time_ns)}, and the other was not tried"
        else:
            timings = f"; its own timings: {format_ns(self.head_time_ns)} against {format_ns(self.base_time_ns)}"
        return Remark(f"the autotuner of {{}} chose {{}} instead of {{}}{timings}", words)


def find_flips(base: Measurement, head: Measurement) -> tuple[Flip, ...]:
    """Compare the autotuner's choices on the two sides of one case.

    Choices are paired by function and key; where the key is another, as after a change of the arguments, by function if
    each side has one key alone. A side that chose differently from process to process has flipped only if it never
    chose as the other did.
    """
    there, here = _by_function(base.autotuning), _by_function(head.autotuning)
    flips = []
    for function, keys in here.items():
        known = there.get(function, {})
        for key, after in keys.items():
            before = known.get(key) or (next(iter(known.values())) if len(known) == len(keys) == 1 else None)
            if before is not None and not any(old.chosen == new.chosen for old in before for new in after):
                flips.append(_flip(before, after))
    return tuple(flips)


def _by_function(choices: Sequence[Autotuning]) -> dict[str, dict[str, list[Autotuning]]]:
    """By function and key."""
    found: dict[str, dict[str, list[Autotuning]]] = defaultdict(dict)
    for choice in choices:
        found[choice.function].setdefault(choice.key, []).append(choice)
    return dict(found)


def _flip(before: Sequence[Autotuning], after: Sequence[Autotuning]) -> Flip:
    timed = next((choice for choice in after if choice.timings), after[0])

    def time_ns(configuration: Configuration) -> float | None:
        return next((timing.time_ns for timing in timed.timings if timing.configuration == configuration), None)

    return Flip(
        function=timed.function,
        base=tuple(choice.chosen for choice in before),
        head=(timed.chosen, *(choice.chosen for choice in after if choice is not timed)),
        base_time_ns=time_ns(before[0].chosen),
        head_time_ns=time_ns(timed.chosen),
    )


def _describe(configurations: Sequence[Configuration], others: Sequence[Configuration]) -> str:
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
