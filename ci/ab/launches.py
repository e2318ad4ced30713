"""What a call launches differently: by the profiles of both sides and by Triton's autotuner. Pure;
no verdict.

Times under a profiler are not compared. A change of launches explains a change of time only if it
takes enough of the call.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from roofwatch.ci.judge.change import Change, ChangeSubject, log_ratio_of
from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.messages import Remark
from roofwatch.model.grouping import group_by
from roofwatch.model.machine import Configuration
from roofwatch.model.measurement import Autotuning, Measurement
from roofwatch.model.metrics import format_ns
from roofwatch.model.results import CaseProfile
from roofwatch.model.verdict import Reason

_ENOUGH = 1 / 2
"""Share of a change of time that launches must account for. Profiles have a hot cache, and times
often a cold one.
"""


@dataclass(frozen=True)
class LaunchEvidence:
    """One kernel or copy that a call launches differently."""

    base_name: str
    """Empty for a kernel that only the head launches."""
    head_name: str
    """Empty if the head no longer launches it."""
    base_share: float
    """Share of the busy time; 0 if it was not launched."""
    head_share: float

    @property
    def share(self) -> float:
        """At the head; at the base for a kernel that is gone."""
        if self.head_name:
            return self.head_share
        return self.base_share


def judge_profiles(pairing: Pairing) -> list[Change[LaunchEvidence]]:
    """Find launches that differ, the largest share of its call first."""
    changes: list[Change[LaunchEvidence]] = []
    for key in pairing.keys:
        base, head = pairing.of(key)
        if base.profile is not None and head.profile is not None:
            changes += compare_profiles(base.profile, head.profile)
    return sorted(changes, key=_largest_first)


def compare_profiles(base: CaseProfile, head: CaseProfile) -> list[Change[LaunchEvidence]]:
    """Find launches that differ between two profiles of one case, the largest share first.

    A name that one side lacks is reported only if that side's profile is complete. A kernel that
    went and one that came with as many launches are one change, the longest ones first.
    """
    return sorted(_changes(base, head), key=_largest_first)


def _largest_first(change: Change[LaunchEvidence]) -> tuple[float, ChangeSubject]:
    return -change.evidence.share, change.subject


def may_explain(launches: Iterable[Change[LaunchEvidence]], log_change: float) -> bool:
    """Whether launches that differ take enough of the slower call to explain its change ln(head /
    base) of the time.
    """
    # what is new explains a slower call, what is gone a faster one
    if log_change > 0:
        share = sum(launch.evidence.head_share for launch in launches)
    else:
        share = sum(launch.evidence.base_share for launch in launches)
    # by which part the faster call is shorter than the slower one
    saved_share = -math.expm1(-abs(log_change))
    return share > 0 and share >= _ENOUGH * saved_share


@dataclass(frozen=True)
class _Launched:
    """Launches of one kernel in a call."""

    count: float = 0.0
    share: float = 0.0
    """Of the busy time of the call."""


_NOT_LAUNCHED = _Launched()


def _changes(base: CaseProfile, head: CaseProfile) -> Iterator[Change[LaunchEvidence]]:
    """Pair the kernels of both sides, and yield those with another number of launches."""
    base_kernels = _launched(base)
    head_kernels = _launched(head)
    for base_name, head_name in _paired_names(
        base_kernels,
        head_kernels,
        is_base_complete=base.left_out_count == 0,
        is_head_complete=head.left_out_count == 0,
    ):
        base_launched = base_kernels.get(base_name, _NOT_LAUNCHED)
        head_launched = head_kernels.get(head_name, _NOT_LAUNCHED)
        yield Change(
            subject=ChangeSubject(
                head.case_id,
                head.implementation,
                part=head_name or base_name,
            ),
            metric="launch_count",
            base=base_launched.count,
            head=head_launched.count,
            log_ratio=log_ratio_of(base_launched.count, head_launched.count),
            reason=Reason.LAUNCHES_CHANGED,
            detail=_in_words(
                base_name=base_name,
                head_name=head_name,
                base_count=base_launched.count,
                head_count=head_launched.count,
            ),
            evidence=LaunchEvidence(
                base_name=base_name,
                head_name=head_name,
                base_share=base_launched.share,
                head_share=head_launched.share,
            ),
        )


def _paired_names(
    base: Mapping[str, _Launched],
    head: Mapping[str, _Launched],
    *,
    is_base_complete: bool,
    is_head_complete: bool,
) -> Iterator[tuple[str, str]]:
    """Names of base and head for each kernel whose launches differ; one is empty if a side lacks
    it.
    """
    for name in head:
        # a kernel of one side alone is new or gone
        if name in base and base[name].count != head[name].count:
            yield name, name
    # what an incomplete profile lacks may only be left out of it
    new_names = []
    if is_base_complete:
        new_names = [name for name in head if name not in base]
    gone_names = []
    if is_head_complete:
        gone_names = [name for name in base if name not in head]
    for base_name in gone_names:
        count = base[base_name].count
        # a kernel that is launched as often took the place of the one that is gone
        replacements = (name for name in new_names if head[name].count == count)
        head_name = next(replacements, "")
        yield base_name, head_name
        if head_name:
            new_names.remove(head_name)
    for head_name in new_names:
        yield "", head_name


def _in_words(
    base_name: str,
    head_name: str,
    base_count: float,
    head_count: float,
) -> Remark:
    """Write how the launches of a kernel changed; names are untrusted."""
    if not base_name:
        return Remark(f"{{}} is new, {head_count:.3g} in a call", (head_name,))
    if not head_name:
        return Remark(f"{{}} is gone, {base_count:.3g} in a call before", (base_name,))
    if head_name != base_name:
        return Remark("kernel changed: {} instead of {}", (head_name, base_name))
    counts = f"{base_count:.3g} → {head_count:.3g}"
    return Remark(f"{{}}: {counts} in a call", (head_name,))


def _launched(profile: CaseProfile) -> dict[str, _Launched]:
    """Launches by name, the longest first."""
    kernels: dict[str, _Launched] = {}
    for row in profile.rows:
        # the regions of torch.compile have another name in every run
        if not row.has_lasting_name:
            continue
        earlier = kernels.get(row.name, _NOT_LAUNCHED)
        share = 0.0
        if profile.busy_ns:
            share = row.total_ns / profile.busy_ns
        kernels[row.name] = _Launched(
            count=earlier.count + row.count / profile.call_count,
            share=earlier.share + share,
        )
    return kernels


# --- the autotuner


def find_flips(base: Measurement, head: Measurement) -> tuple[Remark, ...]:
    """Describe each function for which Triton's autotuner chose another configuration at the head.

    Choices are paired by function and key, or by function alone if each side has a single key. A
    side whose processes chose differently has flipped only if it never chose as the other side did.
    """
    base_choices = _by_function(base.autotuning)
    flips: list[Remark] = []
    for function, head_by_key in _by_function(head.autotuning).items():
        base_by_key = base_choices.get(function, {})
        for key, head_tunings in head_by_key.items():
            base_tunings = base_by_key.get(key, [])
            # a change of the kernel's arguments changes the key
            if not base_tunings and len(base_by_key) == len(head_by_key) == 1:
                (base_tunings,) = base_by_key.values()
            if base_tunings and not _agree(base_tunings, head_tunings):
                flips.append(_flip(base_tunings, head_tunings))
    return tuple(flips)


def _agree(base: Sequence[Autotuning], head: Sequence[Autotuning]) -> bool:
    """Whether any process of the head chose what one of the base did."""
    base_chosen = [tuning.chosen for tuning in base]
    return any(tuning.chosen in base_chosen for tuning in head)


def _by_function(choices: Sequence[Autotuning]) -> dict[str, dict[str, list[Autotuning]]]:
    """Group choices by function, then by key of the autotuner."""
    by_function = group_by(choices, lambda choice: choice.function)
    return {
        function: group_by(of_function, lambda choice: choice.key)
        for function, of_function in by_function.items()
    }


def _flip(base: Sequence[Autotuning], head: Sequence[Autotuning]) -> Remark:
    """Describe the choices of both sides, with their times by the head's tuning."""
    # a process that found the choice in its cache has no timings
    with_timings = (tuning for tuning in head if tuning.timings)
    timed = next(with_timings, head[0])
    others = [tuning for tuning in head if tuning is not timed]
    base_chosen = [tuning.chosen for tuning in base]
    head_chosen = [tuning.chosen for tuning in (timed, *others)]
    words = (
        timed.function,
        _describe(head_chosen, base_chosen),
        _describe(base_chosen, head_chosen),
    )
    timings = _timings_in_words(timed, base_chosen[0])
    return Remark(f"the autotuner of {{}} chose {{}} instead of {{}}{timings}", words)


def _timings_in_words(timed: Autotuning, base_chosen: Configuration) -> str:
    """What the head's autotuner measured of its choice and of the base's; empty if nothing."""
    head_time = _time_of(timed, timed.chosen)
    if head_time is None:
        return ""
    against = ", and the other was not tried"
    base_time = _time_of(timed, base_chosen)
    if base_time:
        against = f" against {base_time}"
    return f"; its own timings: {head_time}{against}"


def _time_of(timed: Autotuning, configuration: Configuration) -> str | None:
    """What the autotuner measured of a configuration; None if it did not try it."""
    for timing in timed.timings:
        if timing.configuration == configuration and timing.time_ns is not None:
            return format_ns(timing.time_ns)
    return None


def _describe(configurations: Sequence[Configuration], others: Sequence[Configuration]) -> str:
    """The settings that differ from the others."""
    both = (*configurations, *others)
    names = dict.fromkeys(chain.from_iterable(both))
    differing = [name for name in names if _has_several_values(name, both)]
    # processes of one side may have chosen the same
    described: dict[str, None] = {}
    for configuration in configurations:
        set_names = [name for name in differing if name in configuration]
        settings = [f"{name}={configuration[name]}" for name in set_names]
        text = ", ".join(settings) or "the defaults"
        described[text] = None
    return " or ".join(described)


def _has_several_values(name: str, configurations: Sequence[Configuration]) -> bool:
    values = {repr(configuration.get(name)) for configuration in configurations}
    return len(values) > 1
