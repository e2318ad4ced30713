"""Which results of two records are comparable, and what else differs between them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roofwatch.ci.judge.pairing import Pairing
from roofwatch.ci.messages import Remark, count_of, listed
from roofwatch.model.machine import Environment
from roofwatch.model.measurement import Autotuning, Measurement
from roofwatch.model.provenance import WAY_OUT, LoadedFile
from roofwatch.model.record import RunRecord
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


@dataclass(frozen=True)
class DifferingField:
    """A field that differs between environments."""

    name: str
    values: tuple[str, ...]
    """One for each environment."""
    may_move_times: bool
    """It belongs to the toolchain, which may explain a change."""


def differences_of(environments: Sequence[Environment]) -> list[DifferingField]:
    """List the fields that differ between environments, the toolchain first."""
    differences: list[DifferingField] = []
    for name in dict.fromkeys((*_TOOLCHAIN, *Environment.model_fields)):
        values = tuple(_in_words(getattr(environment, name)) for environment in environments)
        if len(set(values)) == 1:
            continue
        difference = DifferingField(
            name.replace("_", " "),
            values,
            may_move_times=name in _TOOLCHAIN,
        )
        differences.append(difference)
    return differences


def _in_words(value: object) -> str:
    if value is None:
        return "not known"
    return str(value)


# --- refusals


def refuse_whole(pairing: Pairing) -> list[Remark]:
    """Why the two records are not compared at all; empty if they may be."""
    base = pairing.base
    head = pairing.head
    refusals = []
    if base.project != head.project:
        projects = (base.project, head.project)
        refusals.append(Remark("the base is a record of {}, the head of {}", projects))
    refusals += refuse_harness(base.harness_version, head.harness_version)
    # one job measured them as a pair, and they were given the wrong way round
    if pairing.is_one_job and not pairing.is_interleaved:
        sides = [record.pairing.side for record in (base, head) if record.pairing is not None]
        refusals.append(
            Remark(
                f"given as base and head, the records are {sides[0]} and {sides[1]} of their pair"
            )
        )
    refusals += _refuse_contents(base, head)
    return refusals


def _refuse_contents(base: RunRecord, head: RunRecord) -> list[Remark]:
    """Why what the records hold is not compared; only the first reason that applies."""
    # another tool's numbers have no blocks to pair
    if any(record.imported and not record.measurements for record in (base, head)):
        return [
            Remark("imported results are judged over a history: store them with roofwatch ingest")
        ]
    foreign = refuse_foreign(base.foreign_code, head.foreign_code)
    if foreign:
        return foreign
    if not (head.measurements or head.accuracies or head.static_facts):
        return [Remark("the head record holds no results")]
    return []


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
    # once, after the last file, and with its braces kept from the template
    if refusals:
        way_out = WAY_OUT.replace("{", "{{").replace("}", "}}")
        last = refusals.pop()
        refusals.append(replace(last, template=f"{last.template}; {way_out}"))
    return refusals


def refused_reason(pairing: Pairing) -> Reason:
    """Reason of the cases of two records that are not compared."""
    if pairing.base.foreign_code is not None or pairing.head.foreign_code is not None:
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
    base: Measurement | MeasuredCase,
    head: Measurement | MeasuredCase,
) -> Remark | None:
    """Why the medians of one case in two separate runs are not compared; None if they may be."""
    return _refuse(_method_of(base, head))


_Facts = list[tuple[str, object, object]]
"""What must be equal, with the value of base and head."""


def _method_of(base: Measurement | MeasuredCase, head: Measurement | MeasuredCase) -> _Facts:
    """What decides how a time was taken."""
    return [
        ("timer", base.timer, head.timer),
        ("cache", base.cache, head.cache),
    ]


def _refuse(facts: _Facts) -> Remark | None:
    """Name what differs; None if nothing does."""
    differing: list[str] = []
    for name, base, head in facts:
        if base != head:
            differing.append(f"{name} {base} and {head}")
    if not differing:
        return None
    return Remark("; ".join(differing))


def refuse_host_bound(base: Measurement, head: Measurement) -> Remark | None:
    """Why the times of one case say nothing of the device; None if they do."""
    # one side is enough: the ratio has its time in it
    if base.is_hidden_by_host or head.is_hidden_by_host:
        return Remark(
            f"{head.timer} times include waiting for the host: --timer cupti measures the device "
            f"alone"
        )
    return None


def notes_on(pairing: Pairing) -> Iterator[Remark]:
    """List other differences that may explain a change."""
    base = pairing.base
    head = pairing.head
    # without alternation, the machine may have changed between the two
    if not pairing.is_interleaved and base.measurements and head.measurements:
        yield Remark(
            "base and head were not measured in one job, so their times are shown but decide "
            "nothing"
        )
    for difference in differences_of([base.environment, head.environment]):
        if difference.may_move_times:
            name = difference.name.removesuffix(" version")
            yield Remark(
                name + " differs ({} and {}), which may explain changes",
                difference.values,
            )
    for side, record in (("base", base), ("head", head)):
        if record.commit.is_dirty:
            yield Remark(
                f"the {side} has uncommitted changes, so its numbers are not those of its commit"
            )
    # as a calibration does on purpose
    is_same_commit = base.commit.sha == head.commit.sha
    # uncommitted changes make other code of the same commit
    if is_same_commit and base.commit.is_dirty == head.commit.is_dirty:
        yield Remark("base and head are the same commit: any change is noise")
    yield from _notes_on_pinned(base, head)


def _notes_on_pinned(base: RunRecord, head: RunRecord) -> Iterator[Remark]:
    """Say whether the autotuner had no part in the times, and where it had."""
    pinned: set[tuple[str, str]] = set()
    for case_id, choice in _choices(base):
        if choice.is_pinned:
            pinned.add((case_id, choice.function))
    if not pinned:
        return
    yield Remark(
        f"the autotuner's choices are pinned to the base's, for "
        f"{count_of(len(pinned), 'autotuned function')} of the cases: a change is one of code"
    )
    free: set[tuple[str, str]] = set()
    for case_id, choice in _choices(head):
        if not choice.is_pinned:
            free.add((case_id, choice.function))
    for case_id, function in sorted(pinned & free):
        yield Remark(
            "{} of {} is not pinned: the head has no such configuration",
            (function, case_id),
        )


def _choices(record: RunRecord) -> Iterator[tuple[str, Autotuning]]:
    """The choices of the autotuner in a record, with the case of each."""
    for measurement in record.measurements:
        for choice in measurement.autotuning:
            yield measurement.case_id, choice


def note_on_requirements(pairing: Pairing) -> Remark | None:
    """Say which required packages differ, and with which both sides ran; None if none differ."""
    base = pairing.base
    head = pairing.head
    # without provenance, nobody read the files that name the packages
    if not base.provenance or not head.provenance:
        return None
    changed = _changed_requirements(base.requirements, head.requirements)
    if not changed:
        return None
    which = "each side ran with its own packages"
    if not (base.is_isolated and head.is_isolated):
        which = (
            "both sides ran with the head's packages, so their change is not measured; "
            "`isolated = true` in `[build]` measures it"
        )
    return Remark(f"the dependencies differ ({{}}): {which}", (listed(changed),))


def _changed_requirements(base: Mapping[str, str], head: Mapping[str, str]) -> list[str]:
    """Packages that the two sides require in other versions, with both."""
    changed: list[str] = []
    for name in sorted(base.keys() | head.keys()):
        if base.get(name) == head.get(name):
            continue
        # a package without a version is required in any
        versions = [side.get(name, "none") or "any" for side in (base, head)]
        both_versions = " → ".join(versions)
        changed.append(f"{name} {both_versions}")
    return changed
