"""What of two records may be compared, and what else about them differs. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ci.remark import Remark
from collector.record import RunRecord, Side

_TOOLCHAIN = ("torch_version", "triton_version", "cuda_version", "python_version", "driver_version", "compile_knobs")


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
