"""Which results of two records are comparable, what else differs between them, and the results by
case. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.messages import Remark
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.measurement import Measurement
from roofwatch.model.provenance import WAY_OUT, LoadedFile
from roofwatch.model.record import RunRecord, Side
from roofwatch.model.results import Accuracy
from roofwatch.model.stored_results import MeasuredCase
from roofwatch.model.verdict import Reason

_TOOLCHAIN = (
    "torch_version",
    "triton_version",
    "cuda_version",
    "python_version",
    "driver_version",
    "compile_knobs",
)
Key = tuple[str, str]
"""Case id, implementation."""


@dataclass(frozen=True)
class Difference:
    """A field that differs between environments."""

    name: str
    values: tuple[str, ...]
    """One for each environment."""
    may_move_times: bool
    """It belongs to the toolchain, which may explain a change."""


def differences_of(environments: Sequence[Environment]) -> list[Difference]:
    """List the fields that differ between environments, the toolchain first."""
    found = []
    for name in dict.fromkeys((*_TOOLCHAIN, *Environment.model_fields)):
        given = [getattr(environment, name) for environment in environments]
        values = tuple("not known" if value is None else str(value) for value in given)
        if len(set(values)) > 1:
            found.append(
                Difference(name.replace("_", " "), values, may_move_times=name in _TOOLCHAIN)
            )
    return found


# --- refusals


def refuse_whole(base: RunRecord, head: RunRecord) -> list[Remark]:
    """Why the two records are not compared at all; empty if they may be."""
    refusals = []
    if base.project != head.project:
        refusals.append(
            Remark("the base is a record of {}, the head of {}", (base.project, head.project))
        )
    refusals += refuse_harness(base.harness_version, head.harness_version)
    if _is_same_pair(base, head) and not are_paired(base, head):
        sides = [record.pairing.side for record in (base, head) if record.pairing is not None]
        refusals.append(
            Remark(
                f"given as base and head, the records are {sides[0]} and {sides[1]} of their pair"
            )
        )
    if any(record.imported and not record.measurements for record in (base, head)):
        refusals.append(
            Remark("imported results are judged over a history: store them with roofwatch ingest")
        )
    elif foreign := refuse_foreign(base.foreign_code, head.foreign_code):
        refusals += foreign
    elif not (head.measurements or head.accuracies or head.static_facts):
        refusals.append(Remark("the head record holds no results"))
    return refusals


def refuse_foreign(base: LoadedFile | None, head: LoadedFile | None) -> list[Remark]:
    """Why results that are not of their commits are not compared; empty if they are.

    Args:
        base: A file of the base's run that is not of its commit.
        head: The same of the head's run.
    """
    refusals = []
    for side, file in (("base", base), ("head", head)):
        if file is not None:
            text = f"the {side} loaded {{}} from {file.place} ({{}}), not from its commit"
            refusals.append(Remark(text, (file.module, file.path)))
    if refusals:
        way_out = WAY_OUT.replace("{", "{{").replace("}", "}}")
        last = refusals.pop()
        refusals.append(replace(last, template=f"{last.template}; {way_out}"))
    return refusals


def refused_reason(base: RunRecord, head: RunRecord) -> Reason:
    """Reason of the cases of two records that are not compared."""
    if base.foreign_code is not None or head.foreign_code is not None:
        return Reason.FOREIGN_CODE
    return Reason.NOT_COMPARABLE


def refuse_harness(base: str, head: str) -> list[Remark]:
    """Why results of two harness versions are not compared; empty if they are equal."""
    if base == head:
        return []
    text = "the base was measured by harness {}, the head by {}: another method gives other numbers"
    return [Remark(text, (base, head))]


def refuse_runner(base: str, head: str) -> list[Remark]:
    """Why times of two runner classes are not compared; empty if they are equal."""
    if base == head:
        return []
    return [
        Remark("the base ran on {}, the head on {}: their times are not comparable", (base, head))
    ]


def refuse_timing(base: Measurement, head: Measurement) -> Remark | None:
    """Why the blocks of one case are not compared; None if they may be."""
    facts = _method_of(base, head)
    facts.append(("launches per sample", base.launches_per_sample, head.launches_per_sample))
    facts.append(("blocks", len(base.blocks), len(head.blocks)))
    return _refuse(facts)


def refuse_method(
    base: Measurement | MeasuredCase, head: Measurement | MeasuredCase
) -> Remark | None:
    """Why the medians of one case in two separate runs are not compared; None if they may be."""
    return _refuse(_method_of(base, head))


_Facts = list[tuple[str, object, object]]
"""What must be equal, with the value of base and head."""


def _method_of(base: Measurement | MeasuredCase, head: Measurement | MeasuredCase) -> _Facts:
    return [("timer", base.timer, head.timer), ("cache", base.cache, head.cache)]


def _refuse(facts: _Facts) -> Remark | None:
    differing = [f"{what} {one} and {other}" for what, one, other in facts if one != other]
    return Remark("; ".join(differing)) if differing else None


def refuse_host_bound(base: Measurement, head: Measurement) -> Remark | None:
    """Why the times of one case say nothing of the device; None if they do."""
    if base.is_hidden_by_host or head.is_hidden_by_host:
        return Remark(
            f"{head.timer} times include waiting for the host: --timer cupti measures the device "
            f"alone"
        )
    return None


def _is_same_pair(base: RunRecord, head: RunRecord) -> bool:
    return bool(base.pairing and head.pairing and base.pairing.pair_id == head.pairing.pair_id)


def are_paired(base: RunRecord, head: RunRecord) -> bool:
    """Whether the records come from one job with interleaved blocks, in this order."""
    sides = [record.pairing.side for record in (base, head) if record.pairing is not None]
    return _is_same_pair(base, head) and sides == [Side.BASE, Side.HEAD]


def notes_on(base: RunRecord, head: RunRecord, *, is_paired: bool) -> Iterator[Remark]:
    """List other differences that may explain a change."""
    if not is_paired and base.measurements and head.measurements:
        yield Remark(
            "base and head were not measured in one job, so their times are shown but decide "
            "nothing"
        )
    for difference in differences_of([base.environment, head.environment]):
        if difference.may_move_times:
            what = difference.name.removesuffix(" version")
            yield Remark(
                what + " differs ({} and {}), which may explain changes", difference.values
            )
    for side, record in (("base", base), ("head", head)):
        if record.commit.is_dirty:
            yield Remark(
                f"the {side} has uncommitted changes, so its numbers are not those of its commit"
            )
    if base.commit.sha == head.commit.sha and base.commit.is_dirty == head.commit.is_dirty:
        yield Remark("base and head are the same commit: any change is noise")


_MAX_PACKAGES = 10


def note_on_requirements(base: RunRecord, head: RunRecord) -> Remark | None:
    """Say which required packages differ, and with which both sides ran; None if none differ."""
    names = sorted(base.requirements.keys() | head.requirements.keys())
    changed = [
        f"{name} {base.requirements.get(name, 'none') or 'any'} → "
        f"{head.requirements.get(name, 'none') or 'any'}"
        for name in names
        if base.requirements.get(name) != head.requirements.get(name)
    ]
    is_known = bool(base.provenance and head.provenance)  # else the files were not read
    if not changed or not is_known:
        return None
    more = f" and {len(changed) - _MAX_PACKAGES} more" if len(changed) > _MAX_PACKAGES else ""
    which = "each side ran with its own packages"
    if not (base.is_isolated and head.is_isolated):
        which = (
            "both sides ran with the head's packages, so their change is not measured; "
            "`isolated = true` in `[build]` measures it"
        )
    listed = ", ".join(changed[:_MAX_PACKAGES])
    return Remark(f"the dependencies differ ({{}}{more}): {which}", (listed,))


# --- results by case


@dataclass(frozen=True)
class SideResult:
    """What one record has of one case and implementation."""

    measured: Outcome | None
    """None without a measurement."""
    accuracy: Outcome | None
    message: str | None
    median_ns: float | None
    utilisation: float | None
    rmse_ratio: float | None
    """Error of the worst tensor."""
    max_abs_error: float | None = None
    """Largest error of an element of any tensor."""
    tensor_count: int = 0
    """Tensors whose errors are all finite."""

    @classmethod
    def of(cls, measurement: Measurement | None, accuracy: Accuracy | None) -> "SideResult":
        worst, tensors = (None, ()) if accuracy is None else (accuracy.worst, accuracy.tensors)
        messages = [
            part.message for part in (accuracy, measurement) if part is not None and part.message
        ]
        return cls(
            measured=None if measurement is None else measurement.outcome,
            accuracy=None if accuracy is None else accuracy.outcome,
            message=messages[0] if messages else None,
            median_ns=None if measurement is None else measurement.median_ns,
            utilisation=None if measurement is None else measurement.utilisation,
            rmse_ratio=None if worst is None else worst.rmse_ratio,
            max_abs_error=max((tensor.max_abs_error for tensor in tensors), default=None),
            tensor_count=len(tensors),
        )

    @property
    def failure(self) -> Outcome | None:
        """How it failed, a wrong result first; None if it works, or is not supported."""
        return next(
            (
                outcome
                for outcome in (self.accuracy, self.measured)
                if outcome and outcome.is_failure
            ),
            None,
        )


class SideResults:
    """One record, by case and implementation."""

    def __init__(self, record: RunRecord) -> None:
        self.measurements = {(m.case_id, m.implementation): m for m in record.measurements}
        self.accuracies = {(a.case_id, a.implementation): a for a in record.accuracies}
        self.keys = self.measurements.keys() | self.accuracies.keys()

    def result(self, key: Key) -> SideResult | None:
        """None if the record has no results of it."""
        return (
            SideResult.of(self.measurements.get(key), self.accuracies.get(key))
            if key in self.keys
            else None
        )
