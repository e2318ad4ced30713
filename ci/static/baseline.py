"""The baseline file: regressions of compiled code that a project accepts, each with a reason.

An accepted function does not fail again unless it gets worse. The file has one entry per
function, in a fixed order.
"""

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofwatch.ci.judge.change import Change, ChangeSubject, subject_of
from roofwatch.ci.messages import Remark, join_remarks
from roofwatch.ci.static.analyses import (
    EVERY_TARGET,
    Analysis,
    AnalysisEvidence,
    judge_analysis,
)
from roofwatch.ci.static.comparison import CodeEvidence, StaticChange, code_change
from roofwatch.ci.static.facts import (
    DECISIVE_FACTS,
    code_facts,
    fact_values,
    facts_in_words,
    judge_code,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts
from roofwatch.model.verdict import Reason, Verdict

_STORED_FACTS = {
    "case_id",
    "implementation",
    "function",
    "target",
    "outcome",
    "code_hash",
    "registers",
    *DECISIVE_FACTS,
    "theoretical_occupancy",
    "instruction_count",
}
_STORED_INSTRUCTIONS = (
    "tensor",
    "global_load",
    "async_copy",
    "global_store",
)
_HEADING = """\
# Compiled code that is accepted although it got worse. `roofwatch static --accept REASON` adds
# entries, `roofwatch static --tighten` updates those that got better and removes those of deleted
# functions.

version = 1
"""


class BaselineError(Exception):
    """The baseline file cannot be read."""


class Accepted(StaticFacts):
    """Accepted facts of one function for one target; those that are not stored are unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Annotated[str, Field(min_length=1)]

    @classmethod
    def of(cls, facts: StaticFacts, reason: str) -> Self:
        counts = sorted(facts.instructions.items())
        stored = {
            kind: count for kind, count in counts if kind.split(".")[0] in _STORED_INSTRUCTIONS
        }
        return cls(
            **facts.model_dump(include=_STORED_FACTS),
            instructions=stored,
            reason=reason,
        )

    def judge(self, head: StaticFacts) -> Verdict:
        """Compare a function with the accepted facts; a failure was accepted as such."""
        was_compiled = self.outcome is Outcome.OK
        compiles = head.outcome is Outcome.OK
        if was_compiled and compiles:
            return judge_code(code_facts(self), code_facts(head))[0]
        if was_compiled == compiles:
            return Verdict.UNCHANGED
        return Verdict.of_change(is_worse=was_compiled)

    def describe_excess(self, head: StaticFacts) -> Remark:
        """Say how a function is worse than accepted."""
        if head.outcome is not Outcome.OK:
            return Remark(f"the accepted code compiles, this one ends with {head.outcome}")
        changed = facts_in_words(fact_values(self), fact_values(head))
        if not changed:
            return Remark("worse than accepted")
        return Remark(f"worse than accepted ({changed})")


class AcceptedAnalysis(BaseModel):
    """Accepted facts about the offsets or operators of one case."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    case_id: str
    implementation: str
    function: str
    target: str = EVERY_TARGET
    values: dict[str, int]
    searched: tuple[str, ...] = ()
    reason: Annotated[str, Field(min_length=1)]

    @classmethod
    def of(cls, analysis: Analysis, reason: str) -> Self:
        return cls(
            case_id=analysis.case_id,
            implementation=analysis.implementation,
            function=analysis.function,
            target=analysis.target,
            values=dict(sorted(analysis.values.items())),
            searched=tuple(sorted(analysis.searched)),
            reason=reason,
        )

    def judge(self, head: Analysis) -> Verdict:
        """Compare an analysis with the accepted values."""
        accepted = Analysis(
            case_id=self.case_id,
            implementation=self.implementation,
            function=self.function,
            values=self.values,
            searched=frozenset(self.searched),
        )
        judged = judge_analysis(accepted, head)
        if judged is None:
            return Verdict.UNCHANGED
        return judged.verdict


Entry = Accepted | AcceptedAnalysis
Facts = StaticFacts | Analysis
Baseline = Mapping[ChangeSubject, Entry]


@dataclass(frozen=True)
class AppliedBaseline:
    changes: tuple[StaticChange, ...]
    """Accepted regressions are `unchanged`."""
    better: tuple[tuple[Entry, Facts], ...] = ()
    """Entries with better new facts."""
    stale: tuple[Entry, ...] = ()

    @property
    def notes(self) -> tuple[Remark, ...]:
        """Ask to tighten entries that are better by now, or belong to deleted functions."""
        notes: list[Remark] = []
        for entry, _ in self.better:
            text = "{} for {} is better than the baseline: update it with --tighten"
            notes.append(Remark(text, (entry.function, entry.target)))
        for entry in self.stale:
            text = "{} for {} was deleted: remove it from the baseline with --tighten"
            notes.append(Remark(text, (entry.function, entry.target)))
        return tuple(notes)


def with_accepted(
    baseline: Baseline,
    facts: Iterable[Facts],
    reason: str,
) -> Baseline:
    accepted = {subject_of(entry): _entry_of(entry, reason) for entry in facts}
    return {**baseline, **accepted}


def _entry_of(facts: Facts, reason: str) -> Entry:
    if isinstance(facts, Analysis):
        return AcceptedAnalysis.of(facts, reason)
    return Accepted.of(facts, reason)


def judge_entry(entry: Entry, head: Facts) -> Verdict:
    """Judge new facts against those that are accepted."""
    if isinstance(entry, Accepted) and isinstance(head, StaticFacts):
        return entry.judge(head)
    if isinstance(entry, AcceptedAnalysis) and isinstance(head, Analysis):
        return entry.judge(head)
    return Verdict.UNCHANGED


def tightened(baseline: Baseline, applied: AppliedBaseline) -> Baseline:
    """Update entries that got better, and remove those of deleted functions."""
    # stale entries are those of deleted functions
    entries = {key: entry for key, entry in baseline.items() if entry not in applied.stale}
    for entry, facts in applied.better:
        entries[subject_of(facts)] = _entry_of(facts, entry.reason)
    return entries


def apply_baseline(
    baseline: Baseline,
    changes: Sequence[StaticChange],
    head: Sequence[Facts],
    *,
    is_complete: bool = False,
) -> AppliedBaseline:
    """Apply a baseline to a comparison; if the head is complete, a missing kernel was deleted."""
    head_facts = {subject_of(facts): facts for facts in head}
    better: list[tuple[Entry, Facts]] = []
    stale: list[Entry] = []
    for subject, entry in sorted(baseline.items()):
        facts = head_facts.get(subject)
        if facts is not None and judge_entry(entry, facts) is Verdict.IMPROVED:
            better.append((entry, facts))
        # the entry has nothing left to accept
        if _is_deleted(subject, head_facts, is_complete=is_complete):
            stale.append(entry)
    return AppliedBaseline(
        changes=tuple(_apply(change, baseline.get(change.subject)) for change in changes),
        better=tuple(better),
        stale=tuple(stale),
    )


def judge_without_base(
    baseline: Baseline,
    head: Sequence[StaticFacts],
) -> tuple[Change[CodeEvidence], ...]:
    """Return functions that are worse than accepted, without a base to compare with."""
    changes: list[Change[CodeEvidence]] = []
    for facts in sorted(head, key=subject_of):
        subject = subject_of(facts)
        entry = baseline.get(subject)
        # what is as bad as accepted needs no second look
        if isinstance(entry, Accepted) and entry.judge(facts) is Verdict.REGRESSED:
            change = code_change(
                subject,
                CodeEvidence(None, facts),
                verdict=Verdict.REGRESSED,
                reason=Reason.WORSE_THAN_ACCEPTED,
                detail=entry.describe_excess(facts),
            )
            changes.append(change)
    return tuple(changes)


def head_of(change: StaticChange) -> Facts | None:
    """What a baseline may accept of a change."""
    evidence: CodeEvidence | AnalysisEvidence = change.evidence
    return evidence.head


def _apply(change: StaticChange, entry: Entry | None) -> StaticChange:
    head = head_of(change)
    if entry is None or head is None or change.verdict is not Verdict.REGRESSED:
        return change
    # accepting one state does not accept the next one
    if judge_entry(entry, head) is Verdict.REGRESSED:
        excess = Remark("worse than accepted")
        if isinstance(entry, Accepted) and isinstance(head, StaticFacts):
            excess = entry.describe_excess(head)
        details = [excess]
        if change.detail is not None:
            details.insert(0, change.detail)
        return replace(change, detail=join_remarks("; ", details))
    detail = Remark("accepted: {}", (entry.reason,))
    return replace(
        change,
        verdict=Verdict.UNCHANGED,
        reason=Reason.ACCEPTED,
        detail=detail,
    )


def _is_deleted(
    subject: ChangeSubject,
    head: Collection[ChangeSubject],
    *,
    is_complete: bool,
) -> bool:
    """Return whether the target was compiled, but not this function of a compiled launch,
    or not this kernel.
    """
    compiled = [function for function in head if function.target == subject.target]
    if subject in head or not compiled:
        return False
    if any(function.case_key == subject.case_key for function in compiled):
        return True
    if not is_complete:
        return False
    return subject.kernel not in {function.kernel for function in compiled}


# --- the file


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    accepted: tuple[Accepted, ...] = ()
    accepted_analysis: tuple[AcceptedAnalysis, ...] = ()


def parse_baseline(text: str, *, name: str) -> Baseline:
    """Parse the text of a baseline file, which errors call `name`.

    Raises:
        BaselineError: invalid TOML, another version, an invalid value, or a repeated function.
    """
    try:
        file = _File.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BaselineError(f"{name}: cannot be read as TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(step) for step in first["loc"])
        where = path or "the file"
        raise BaselineError(f"{name}: {where}: {first['msg']}") from None
    by_function: dict[ChangeSubject, Entry] = {}
    entries: list[Entry] = [*file.accepted, *file.accepted_analysis]
    for entry in entries:
        # two entries could contradict each other
        subject = subject_of(entry)
        if subject in by_function:
            raise BaselineError(
                f"{name}: {entry.function} for {entry.target} of {entry.case_id} is accepted twice"
            )
        by_function[subject] = entry
    return by_function


def to_toml(baseline: Baseline) -> str:
    """Return the text of a baseline file; equal baselines give equal text."""
    tables = [_HEADING]
    for _, entry in sorted(baseline.items()):
        # an analysis has no compiled facts
        if isinstance(entry, AcceptedAnalysis):
            tables.append(_table("accepted_analysis", entry.model_dump(mode="json")))
            continue
        stored = _STORED_FACTS | {"instructions", "reason"}
        fields = entry.model_dump(
            mode="json",
            include=stored,
            exclude_none=True,
            exclude_defaults=True,
        )
        tables.append(_table("accepted", fields))
    return "\n".join(tables)


def _table(name: str, fields: Mapping[str, object]) -> str:
    """Write one entry of an array of tables in TOML."""
    lines = f"[[{name}]]\n"
    for key, value in fields.items():
        lines += f"{key} = {_toml_value(value)}\n"
    return lines


def _toml_value(value: object) -> str:
    if isinstance(value, Mapping):
        # JSON quotes strings as TOML does
        entries = [f"{json.dumps(name)} = {count}" for name, count in value.items()]
        counts = ", ".join(entries)
        return f"{{ {counts} }}"
    # like JSON, except for one control character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
