"""What of two records may be compared, and what else about them differs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roofwatch.ci.message import Remark
from roofwatch.collector.record.machine import Environment
from roofwatch.collector.record.record import RunRecord, Side

_TOOLCHAIN = ("torch_version", "triton_version", "cuda_version", "python_version", "driver_version", "compile_knobs")


@dataclass(frozen=True, order=True)
class ComparabilityClass:
    """What two runs must share for their times to compare. What is of each measurement must be equal too: its
    `BlockTiming`.
    """

    runner_class: str
    harness_version: str


@dataclass(frozen=True)
class Difference:
    """One fact that is not the same in all of some environments."""

    name: str
    values: tuple[str, ...]
    """One of each environment."""
    may_move_times: bool
    """It belongs to the toolchain, so what moved may be its doing."""


def differences_of(environments: Sequence[Environment]) -> list[Difference]:
    """What differs between environments of one class, which are compared all the same; the toolchain first."""
    found = []
    for name in (*_TOOLCHAIN, *(name for name in Environment.model_fields if name not in _TOOLCHAIN)):
        values = tuple("not known" if value is None else str(value) for value in _values(environments, name))
        if len(set(values)) > 1:
            found.append(Difference(name.replace("_", " "), values, may_move_times=name in _TOOLCHAIN))
    return found


def _values(environments: Sequence[Environment], name: str) -> list[object]:
    return [getattr(environment, name) for environment in environments]


def refuse_whole(base: RunRecord, head: RunRecord) -> list[Remark]:
    """Why nothing in the two is compared; none where something may be."""
    refusals = []
    if base.project != head.project:
        refusals.append(Remark("the base is a record of {}, the head of {}", (base.project, head.project)))
    if base.harness_version != head.harness_version:
        refusals.append(
            Remark(
                "the base was measured by harness {}, the head by {}: a change of method moves numbers by itself",
                (base.harness_version, head.harness_version),
            )
        )
    if base.pairing and head.pairing and base.pairing.pair_id == head.pairing.pair_id:
        sides = (base.pairing.side, head.pairing.side)
        if sides != (Side.BASE, Side.HEAD):
            refusals.append(Remark(f"given as base and head, the records are {sides[0]} and {sides[1]} of their pair"))
    if not (head.measurements or head.accuracies or head.static_facts):
        refusals.append(Remark("the head record holds no results"))
    return refusals


def refuse_times(base: RunRecord, head: RunRecord) -> list[Remark]:
    """Why their times are not compared."""
    classes = (base.environment.runner_class, head.environment.runner_class)
    if classes[0] == classes[1]:
        return []
    return [Remark("the base ran on {}, the head on {}: their times do not compare", classes)]


@dataclass(frozen=True)
class Timing:
    """How one case was timed."""

    timer: str
    cache: str
    """State of the cache before each sample."""


@dataclass(frozen=True)
class BlockTiming(Timing):
    """How the samples of its blocks were taken."""

    launches_per_sample: int
    block_count: int


def refuse_timing(base: BlockTiming, head: BlockTiming) -> Remark | None:
    """Why the two times of one case are not compared block by block; None where they may be."""
    return _remark_on(
        [
            *_ways(base, head),
            ("launches per sample", base.launches_per_sample, head.launches_per_sample),
            ("blocks", base.block_count, head.block_count),
        ]
    )


def refuse_medians(base: Timing, head: Timing) -> Remark | None:
    """Why the two medians of one case, of runs that are no pair, are not even set beside each other.

    Each run has as many launches in a sample as its kernel is short: one that became slower has fewer, so that is no
    reason.
    """
    return _remark_on(_ways(base, head))


def _ways(base: Timing, head: Timing) -> list[tuple[str, object, object]]:
    return [("timer", base.timer, head.timer), ("cache", base.cache, head.cache)]


def _remark_on(facts: Sequence[tuple[str, object, object]]) -> Remark | None:
    differing = [f"{what} {there} and {here}" for what, there, here in facts if there != here]
    return Remark("; ".join(differing)) if differing else None


def are_paired(base: RunRecord, head: RunRecord) -> bool:
    """Whether they were measured in one job, blocks interleaved, and are given the right way round."""
    return (
        base.pairing is not None
        and head.pairing is not None
        and base.pairing.pair_id == head.pairing.pair_id
        and base.pairing.side is Side.BASE
        and head.pairing.side is Side.HEAD
    )


def notes_on(base: RunRecord, head: RunRecord, *, is_paired: bool) -> Iterator[Remark]:
    """What else differs and may explain a move."""
    if not is_paired and base.measurements and head.measurements:
        yield Remark("base and head were not measured in one job, so their times are shown but decide nothing")
    for name in _TOOLCHAIN:
        there, here = getattr(base.environment, name), getattr(head.environment, name)
        if there != here:
            what = name.replace("_version", "").replace("_", " ")
            yield Remark(what + " differs ({} and {}): what moved may be its doing", (str(there), str(here)))
    for side, record in (("base", base), ("head", head)):
        if record.commit.is_dirty:
            yield Remark(f"the {side}'s work tree differed from its commit, so its numbers are not the commit's alone")
    if base.commit.sha == head.commit.sha:
        yield Remark("base and head are the same commit: whatever moved is noise")
