"""The baseline file: compiled facts that a project accepts, with a reason, though they got worse.

What is accepted does not fail again while it stays as it is or gets better; once it is better, the baseline asks to be
tightened. The file has one entry for each function, in a fixed order, so that a change of it reads well in a review.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofwatch.ci.message import Remark
from roofwatch.ci.reason import Reason
from roofwatch.ci.static.comparison import Place, StaticJudgement, place_of
from roofwatch.ci.static.facts import DECISIVE_FACTS, CodeFacts, code_facts, facts_in_words, judge_code
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.toml import toml_value
from roofwatch.db.values import Verdict

VERSION = 1
_KEPT_FACTS = ("registers", *DECISIVE_FACTS, "theoretical_occupancy", "instruction_count")
"""What the rules look at, and the registers for those who read the file."""
_KEPT_INSTRUCTIONS = ("tensor", "global_load", "async_copy", "global_store")
_HEADING = """\
# Compiled facts that are accepted though they are worse than before. `roofwatch static --accept REASON` adds to them,
# `roofwatch static --tighten` keeps what got better and drops what is gone.
"""


class BaselineError(Exception):
    """The text is not a baseline that this version can read."""


_Text = Annotated[str, Field(min_length=1, max_length=500)]
_Count = Annotated[int | None, Field(ge=0)]


class Accepted(BaseModel):
    """What is accepted of one function for one target; an entry of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    case: _Text
    implementation: _Text
    function: _Text
    target: _Text
    reason: Annotated[str, Field(min_length=1)]
    outcome: Outcome = Outcome.OK
    registers: _Count = None
    local_bytes: _Count = None
    spilled_registers: _Count = None
    spill_store_count: _Count = None
    spill_load_count: _Count = None
    theoretical_occupancy: Annotated[float | None, Field(ge=0, le=1)] = None
    instruction_count: _Count = None
    instructions: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)

    @classmethod
    def of(cls, facts: StaticFacts, reason: str) -> Self:
        counts = sorted(facts.instructions.items())
        return cls(
            case=facts.case_id,
            implementation=facts.implementation,
            function=facts.function,
            target=facts.target,
            reason=reason,
            outcome=facts.outcome,
            instructions={kind: count for kind, count in counts if kind.split(".")[0] in _KEPT_INSTRUCTIONS},
            **{name: getattr(facts, name) for name in _KEPT_FACTS},
        )

    @property
    def place(self) -> Place:
        return Place(self.case, self.implementation, self.function, self.target)

    @property
    def facts(self) -> CodeFacts:
        known = {name: float(value) for name in _KEPT_FACTS if (value := getattr(self, name)) is not None}
        return CodeFacts(known, self.instructions)

    def judge(self, head: StaticFacts) -> Verdict:
        """Whether facts are worse or better than what is accepted."""
        works = head.outcome is Outcome.OK
        if self.outcome is Outcome.OK and works:
            return judge_code(self.facts, code_facts(head))[0]
        if works == (self.outcome is Outcome.OK):
            return Verdict.UNCHANGED
        return Verdict.IMPROVED if works else Verdict.REGRESSED


@dataclass(frozen=True)
class Baseline:
    """All that a project accepts."""

    by_place: Mapping[Place, Accepted] = field(default_factory=dict)

    def with_accepted(self, facts: Iterable[StaticFacts], reason: str) -> Self:
        """Accept facts as they are, in place of what was accepted there before."""
        added = {place_of(one): Accepted.of(one, reason) for one in facts}
        return replace(self, by_place={**self.by_place, **added})

    def tightened(self, held: Held) -> Self:
        """Keep what got better as it is now, for the same reason, and drop what is gone."""
        better = {place_of(facts): Accepted.of(facts, entry.reason) for entry, facts in held.better}
        kept = {place: entry for place, entry in self.by_place.items() if entry not in held.stale}
        return replace(self, by_place={**kept, **better})


@dataclass(frozen=True)
class Held:
    """A comparison held against a baseline."""

    judged: tuple[StaticJudgement, ...]
    better: tuple[tuple[Accepted, StaticFacts], ...] = ()
    """Entries with the facts that are better than them."""
    stale: tuple[Accepted, ...] = ()
    """Entries of functions that are gone."""

    @property
    def notes(self) -> tuple[Remark, ...]:
        """What to do about the baseline."""
        notes = [
            Remark("{} for {} is better than what is accepted: tighten the baseline", (place.function, place.target))
            for place in (entry.place for entry, _ in self.better)
        ]
        notes += [
            Remark("{} for {} is accepted and gone: the entry is stale", (place.function, place.target))
            for place in (entry.place for entry in self.stale)
        ]
        return tuple(notes)


def hold(
    baseline: Baseline, judged: Sequence[StaticJudgement], head: Sequence[StaticFacts], *, is_whole: bool = False
) -> Held:
    """Take the verdict off regressions that are accepted, and see what the baseline should say instead.

    Args:
        baseline: What is accepted.
        judged: The head against its base.
        head: All of its compiled facts.
        is_whole: The head was compiled without a choice of kernels, so a kernel that is not in it is gone.
    """
    facts_by_place = {place_of(facts): facts for facts in head}
    held = [_held(item, baseline.by_place.get(item.place)) for item in judged]
    better = [
        (entry, facts_by_place[place])
        for place, entry in sorted(baseline.by_place.items())
        if place in facts_by_place and entry.judge(facts_by_place[place]) is Verdict.IMPROVED
    ]
    stale = [
        entry
        for place, entry in sorted(baseline.by_place.items())
        if place not in facts_by_place and _is_gone(place, facts_by_place, is_whole=is_whole)
    ]
    return Held(tuple(held), tuple(better), tuple(stale))


def judge_alone(baseline: Baseline, head: Sequence[StaticFacts]) -> tuple[StaticJudgement, ...]:
    """What is worse than accepted, where there is no base to compare with."""
    return tuple(
        StaticJudgement(
            facts.case_id,
            facts.implementation,
            facts.function,
            facts.target,
            Verdict.REGRESSED,
            Reason.WORSE_THAN_ACCEPTED,
            None,
            facts,
            detail=_beyond(entry, facts),
        )
        for facts in sorted(head, key=place_of)
        if (entry := baseline.by_place.get(place_of(facts))) is not None and entry.judge(facts) is Verdict.REGRESSED
    )


def _held(item: StaticJudgement, entry: Accepted | None) -> StaticJudgement:
    if entry is None or item.head is None or item.verdict is not Verdict.REGRESSED:
        return item
    if entry.judge(item.head) is Verdict.REGRESSED:
        beyond = _beyond(entry, item.head)
        told = (
            beyond
            if item.detail is None
            else Remark(f"{item.detail.template}; {beyond.template}", (*item.detail.words, *beyond.words))
        )
        return replace(item, detail=told)
    return replace(
        item, verdict=Verdict.UNCHANGED, reason=Reason.ACCEPTED, detail=Remark("accepted: {}", (entry.reason,))
    )


def _beyond(entry: Accepted, head: StaticFacts) -> Remark:
    if head.outcome is not Outcome.OK:
        return Remark("it is accepted as something that compiles, and ended as " + str(head.outcome))
    moved = facts_in_words(entry.facts.values, code_facts(head).values)
    return Remark(f"worse than what is accepted{f' ({moved})' if moved else ''}")


def _is_gone(place: Place, facts_by_place: Mapping[Place, StaticFacts], *, is_whole: bool) -> bool:
    compiled = [other for other in facts_by_place if other.target == place.target]
    if any(other.subject == place.subject for other in compiled):
        return True  # of the same launch, but not this function
    kernels = {_kernel_of(other) for other in compiled}
    return is_whole and bool(compiled) and _kernel_of(place) not in kernels


def _kernel_of(place: Place) -> str:
    return place.case_id.split("/")[0]


# --- the file


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    accepted: tuple[Accepted, ...] = ()


def parse_baseline(text: str, *, name: str) -> Baseline:
    """Read the text of a baseline file.

    Args:
        text: TOML.
        name: Of the file, for the error.

    Raises:
        BaselineError: not TOML, of another version, with values that cannot be, or with one function twice.
    """
    try:
        file = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BaselineError(f"{name}: cannot be read as TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "the file"
        raise BaselineError(f"{name}: {where}: {first['msg']}") from None
    by_place: dict[Place, Accepted] = {}
    for entry in file.accepted:
        if entry.place in by_place:
            raise BaselineError(f"{name}: {entry.function} for {entry.target} of {entry.case} is accepted twice")
        by_place[entry.place] = entry
    return Baseline(by_place)


def to_toml(baseline: Baseline) -> str:
    """The text of a baseline file; equal baselines give equal text."""
    lines = [_HEADING, f"version = {VERSION}"]
    for _, entry in sorted(baseline.by_place.items()):
        fields = entry.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        lines += ["", "[[accepted]]", *(f"{name} = {toml_value(value)}" for name, value in fields.items())]
    return "\n".join(lines) + "\n"
