"""The regressions of a report with the size of each, and what an acceptance of them covers.

Pure.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from roofwatch.ci.claims.cases import CaseEvidence, is_removed
from roofwatch.ci.judge.change import Change
from roofwatch.ci.report.change_words import worst_first
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.ci.static.analyses import AnalysisEvidence
from roofwatch.ci.static.comparison import StaticChange
from roofwatch.ci.static.facts import DECISIVE_FACTS, CodeFacts, code_facts
from roofwatch.model.acceptance import MAX_BOUNDS, Grain
from roofwatch.model.machine import Outcome
from roofwatch.model.verdict import THRESHOLDS, Reason, Verdict

MAX_SERIES = 300
"""Characters."""
_MAX_CHANGE = 1e6
_NOT_FINITE = 1e31
"""Error of a result with NaN or infinity; larger than any finite error of a record."""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Findings(_Document):
    """The regressions of a report, as far as needed to accept them and to compare them with those
    of another report.
    """

    head_sha: str
    most: dict[str, float]
    """Size up to which an acceptance covers a finding, by hash of the finding or its group."""
    grain: Grain = Grain.FINDING
    """The finest for which `most` has at most `MAX_BOUNDS` entries."""
    wrong_count: int = 0
    """Wrong results among them."""
    worst: tuple[str, str] | None = None
    """Case and implementation of the worst slowdown."""
    project: str = ""
    """Of the records; empty in states of older versions."""
    least: dict[Grain, dict[str, float]] = Field(default_factory=dict, exclude=True)
    """Smallest credible size, by the same hash; of a group the largest of its findings."""


class Acceptance(_Document):
    """Which comment accepted which findings. Its author, date and reason are read from that comment
    each time.
    """

    comment_id: int
    most: dict[str, float]
    """As in `Findings`."""
    grain: Grain = Grain.FINDING
    wrong_results: bool = False
    """Whether its author meant wrong results too."""

    def covers(self, findings: Findings) -> bool:
        """Return whether every finding was accepted, and none is noticeably larger than then."""
        # who accepts a slowdown has not accepted a wrong result
        if findings.wrong_count and not self.wrong_results:
            return False
        least_sizes = findings.least.get(self.grain, {})
        # a state of an older version has no sizes to compare
        if not least_sizes:
            return False
        for key, least_size in least_sizes.items():
            # what was not accepted has no size up to which it is covered
            is_covered = key in self.most and least_size <= self.most[key]
            if not is_covered:
                return False
        return True


def findings_of(judgements: Sequence[PullRequestJudgement], head_sha: str) -> Findings | None:
    """Return what can be accepted in a commit: regressions and removed benchmarks; None without
    any.
    """
    sizes: list[_FindingSize] = []
    cases: list[Change[CaseEvidence]] = []
    for judgement in judgements:
        sizes += _sizes(judgement)
        cases += judgement.cases
    # nothing regressed, so nothing can be accepted
    if not sizes:
        return None
    # a coarser grain names groups of findings instead of each
    most = {grain: _most_by_group(sizes, grain) for grain in Grain}
    # there are fewer reasons and measures than bounds, so the coarsest always fits
    finest_grain = next(grain for grain in Grain if len(most[grain]) <= MAX_BOUNDS)
    ordered = worst_first(cases)
    regressed = [case for case in ordered if case.verdict is Verdict.REGRESSED]
    wrong = [case for case in regressed if case.reason is Reason.WRONG_RESULT]
    return Findings(
        head_sha=head_sha,
        most=most[finest_grain],
        grain=finest_grain,
        worst=_worst_series(regressed),
        least={grain: _least_by_group(sizes, grain) for grain in Grain},
        project=judgements[0].project,
        wrong_count=len(wrong),
    )


def _worst_series(regressed: Iterable[Change[CaseEvidence]]) -> tuple[str, str] | None:
    """Case and implementation of the first slower case; None if its name is too long to store."""
    slower = (case.case_key for case in regressed if case.log_interval is not None)
    worst = next(slower, None)
    if worst is None:
        return None
    # the state of a comment has a limit
    if len("".join(worst)) > MAX_SERIES:
        return None
    return worst


# --- sizes of findings


@dataclass(frozen=True)
class _FindingSize:
    """How bad one finding is, in the unit of its measure; 0 for what has no size."""

    name: tuple[str, ...]
    """Of the finding and of its measure."""
    least: float = 0.0
    """The smallest credible size."""
    most: float = 0.0
    """Up to which an acceptance covers it."""


def _most_by_group(sizes: Iterable[_FindingSize], grain: Grain) -> dict[str, float]:
    keyed_sizes = ((grain.key_of(size.name), size.most) for size in sizes)
    return _largest_of_groups(keyed_sizes)


def _least_by_group(sizes: Iterable[_FindingSize], grain: Grain) -> dict[str, float]:
    keyed_sizes = ((grain.key_of(size.name), size.least) for size in sizes)
    return _largest_of_groups(keyed_sizes)


def _largest_of_groups(sizes: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the largest size of each group, with four digits, by the group's key."""
    largest: dict[str, float] = {}
    for key, size in sizes:
        rounded = float(f"{size:.4g}")
        largest_so_far = largest.get(key, 0.0)
        largest[key] = max(rounded, largest_so_far)
    return largest


def _sizes(judgement: PullRequestJudgement) -> Iterator[_FindingSize]:
    """Every finding of a report that can be accepted."""
    for case in judgement.cases:
        if case.verdict is Verdict.REGRESSED:
            yield from _case_sizes(case)
        elif is_removed(case):
            # a removed case has no size that could grow
            removed = (*case.case_key, Reason.REMOVED_CASE, "")
            yield _FindingSize(removed)
    for code in judgement.static:
        if code.verdict is Verdict.REGRESSED:
            subject = code.subject
            function = (
                *subject.case_key,
                subject.part,
                subject.target,
                code.reason,
            )
            for measure, size in _code_sizes(code).items():
                yield _FindingSize(
                    (*function, measure),
                    least=size,
                    most=size,
                )
    for launch in judgement.secondary_changes:
        if launch.verdict is Verdict.REGRESSED:
            yield _relative_size(launch, measure=launch.metric)


def _relative_size(change: Change[Any], measure: str) -> _FindingSize:
    """The relative change of a value, which may be infinite, as a finite size."""
    low = high = change.relative_change
    # a counted value is exact and has no interval
    if change.relative_interval is not None:
        low, high = change.relative_interval
    return _FindingSize(
        name=(*change.case_key, change.reason, measure),
        least=min(low, _MAX_CHANGE),
        most=min(high, _MAX_CHANGE),
    )


def _case_sizes(case: Change[CaseEvidence]) -> Iterator[_FindingSize]:
    """The size of a slower, failing or wrong case."""
    head = case.evidence.head
    if case.relative_interval is not None:
        yield _relative_size(case, measure="time")
        return
    name = (*case.case_key, case.reason)
    # a failure has no size, only a kind
    if head is None:
        yield _FindingSize((*name, ""))
        return
    # another kind of failure is another finding
    if case.reason is not Reason.WRONG_RESULT:
        yield _FindingSize((*name, str(head.failure)))
        return
    base = case.evidence.base
    # without results of the base, at least one tensor is expected
    tensor_count = 1
    if base is not None:
        tensor_count = base.tensor_count
    # a tensor with NaN or infinity has no error, so it is missing among the tensors
    is_finite = head.tensor_count >= tensor_count
    for measure in ("rmse_ratio", "max_abs_error"):
        error = getattr(head, measure)
        if error is None or not is_finite:
            error = _NOT_FINITE
        yield _FindingSize(
            name=(*name, measure),
            least=error,
            most=error * (1 + THRESHOLDS.error_relative_change),
        )


def _code_sizes(change: StaticChange) -> dict[str, float]:
    """Return what got worse in a function, and how bad it is now."""
    evidence = change.evidence
    # proofs and costs name their own sizes
    if isinstance(evidence, AnalysisEvidence):
        return evidence.head.badness
    # a failure has no size, only a kind
    if evidence.head is None:
        return {"": 0.0}
    if evidence.head.outcome is not Outcome.OK:
        return {str(evidence.head.outcome): 0.0}
    sizes = _badness(code_facts(evidence.head))
    if evidence.base is not None and evidence.base.outcome is Outcome.OK:
        base_sizes = _badness(code_facts(evidence.base))
        # what the base does not have cannot have grown
        grown = [name for name in sizes if sizes[name] > base_sizes.get(name, math.inf)]
        sizes = {name: sizes[name] for name in grown}
    return sizes or {"": 0.0}


def _badness(facts: CodeFacts) -> dict[str, float]:
    """Return the numbers by which machine code is judged, as sizes that grow when it gets worse."""
    known_facts = [name for name in DECISIVE_FACTS if name in facts.values]
    sizes = {name: facts.values[name] for name in known_facts}
    widths_bits = {"read": facts.reads.main_width, "write": facts.writes.main_width}
    for name, width_bits in widths_bits.items():
        # without accesses there is no width
        if width_bits:
            sizes[f"{name} instructions per byte"] = 8 / width_bits
    if facts.tensor_path is not None:
        sizes["tensor path"] = 1 / (1 + facts.tensor_path)
    return sizes
