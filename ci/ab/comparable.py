"""What of two records may be compared, what else differs between them, and what each says of a case. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roofwatch.ci.message import Remark
from roofwatch.collector.record.machine import Environment, Outcome
from roofwatch.collector.record.measurement import Measurement
from roofwatch.collector.record.record import RunRecord, Side
from roofwatch.collector.record.results import Accuracy

_TOOLCHAIN = ("torch_version", "triton_version", "cuda_version", "python_version", "driver_version", "compile_knobs")
_NOT_FAILURES = frozenset({Outcome.OK, Outcome.UNSUPPORTED})
Key = tuple[str, str]
"""Case id, implementation."""


@dataclass(frozen=True, order=True)
class ComparabilityClass:
    """What two runs must share for their times to compare; `refuse_timing` says what two measurements must share."""

    runner_class: str
    harness_version: str


@dataclass(frozen=True)
class Difference:
    """One fact that is not the same in all of some environments."""

    name: str
    values: tuple[str, ...]
    """One of each environment."""
    may_move_times: bool
    """It belongs to the toolchain, which may explain a change."""


def differences_of(environments: Sequence[Environment]) -> list[Difference]:
    """What differs between environments of one class, which are compared all the same; the toolchain first."""
    found = []
    for name in (*_TOOLCHAIN, *(name for name in Environment.model_fields if name not in _TOOLCHAIN)):
        given = [getattr(environment, name) for environment in environments]
        values = tuple("not known" if value is None else str(value) for value in given)
        if len(set(values)) > 1:
            found.append(Difference(name.replace("_", " "), values, may_move_times=name in _TOOLCHAIN))
    return found


# --- refusals


def refuse_whole(base: RunRecord, head: RunRecord) -> list[Remark]:
    """Why nothing in the two is compared; none where something may be."""
    refusals = []
    if base.project != head.project:
        refusals.append(Remark("the base is a record of {}, the head of {}", (base.project, head.project)))
    refusals += refuse_harness(base.harness_version, head.harness_version)
    if base.pairing and head.pairing and base.pairing.pair_id == head.pairing.pair_id:
        sides = (base.pairing.side, head.pairing.side)
        if sides != (Side.BASE, Side.HEAD):
            refusals.append(Remark(f"given as base and head, the records are {sides[0]} and {sides[1]} of their pair"))
    if not (head.measurements or head.accuracies or head.static_facts):
        refusals.append(Remark("the head record holds no results"))
    return refusals


def refuse_times(base: RunRecord, head: RunRecord) -> list[Remark]:
    """Why their times are not compared."""
    return refuse_runner(base.environment.runner_class, head.environment.runner_class)


def refuse_harness(base: str, head: str) -> list[Remark]:
    """Why results of two versions of the harness are not compared."""
    if base == head:
        return []
    text = "the base was measured by harness {}, the head by {}: a change of method moves numbers by itself"
    return [Remark(text, (base, head))]


def refuse_runner(base: str, head: str) -> list[Remark]:
    """Why times on two runner classes are not compared."""
    if base == head:
        return []
    return [Remark("the base ran on {}, the head on {}: their times do not compare", (base, head))]


def refuse_timing(base: Measurement, head: Measurement) -> Remark | None:
    """Why the two times of one case are not compared block by block; None where they may be."""
    return _name_differences(
        ("timer", base.timer, head.timer),
        ("cache", base.cache, head.cache),
        ("launches per sample", base.launches_per_sample, head.launches_per_sample),
        ("blocks", len(base.blocks), len(head.blocks)),
    )


@dataclass(frozen=True)
class Timing:
    """How one case was timed."""

    timer: str
    cache: str
    """State of the cache before each sample."""


def refuse_medians(base: Timing, head: Timing) -> Remark | None:
    """Why the two medians of one case, of runs that are no pair, are not even set beside each other."""
    return _name_differences(("timer", base.timer, head.timer), ("cache", base.cache, head.cache))


def _name_differences(*facts: tuple[str, object, object]) -> Remark | None:
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
    """What else differs and may explain a change."""
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


# --- results by case


@dataclass(frozen=True)
class SideResult:
    """What one record says of one case and implementation."""

    measured: Outcome | None
    """None where the record has no measurement of it."""
    accuracy: Outcome | None
    message: str | None
    median_ns: float | None
    utilisation: float | None
    bound: str | None
    rmse_ratio: float | None
    """Of the worst tensor."""
    worst_tensor: str | None

    @property
    def failure(self) -> Outcome | None:
        """How it failed, a wrong result first; None if it works, or is not supported."""
        return next(
            (how for how in (self.accuracy, self.measured) if how is not None and how not in _NOT_FAILURES), None
        )


class SideResults:
    """One record, by case and implementation."""

    def __init__(self, record: RunRecord) -> None:
        self.measurements = {(m.case_id, m.implementation): m for m in record.measurements}
        self.accuracies = {(a.case_id, a.implementation): a for a in record.accuracies}
        self.keys = self.measurements.keys() | self.accuracies.keys()

    def result(self, key: Key) -> SideResult | None:
        """None where the record does not know it."""
        if key not in self.keys:
            return None
        return _side_result(self.measurements.get(key), self.accuracies.get(key))


def _side_result(measurement: Measurement | None, accuracy: Accuracy | None) -> SideResult:
    worst = None if accuracy is None else accuracy.worst
    messages = [part.message for part in (accuracy, measurement) if part is not None and part.message]
    return SideResult(
        measured=None if measurement is None else measurement.outcome,
        accuracy=None if accuracy is None else accuracy.outcome,
        message=messages[0] if messages else None,
        median_ns=None if measurement is None else measurement.median_ns,
        utilisation=None if measurement is None else measurement.utilisation,
        bound=None if measurement is None else measurement.bound,
        rmse_ratio=None if worst is None else worst.rmse_ratio,
        worst_tensor=None if worst is None else worst.tensor,
    )
